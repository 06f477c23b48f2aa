//! The dashboard's routes as its source declares them, each asked for by who must not get it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{PASSWORD, Person};
use crate::shop::{NO_LIMITS, Shop};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway/src");

/// What is there for everybody.
const PUBLIC: [&str; 10] = [
    "/signup",
    "/signup/sent",
    "/verify-email/{token}",
    "/change-email/{token}",
    "/login",
    "/login/totp",
    "/forgot",
    "/forgot/sent",
    "/reset/{token}",
    "/assets/{name}",
];

/// A route, such as `/payouts/{payout_id}`.
#[derive(Debug)]
struct Route {
    path: String,
    takes_get: bool,
    takes_post: bool,
}

/// A file's text, and the paths that its constants name.
struct File {
    text: String,
    constants: BTreeMap<String, String>,
}

fn files() -> BTreeMap<PathBuf, File> {
    let mut found = BTreeMap::new();
    let mut folders = vec![Path::new(SOURCE).join("dashboard")];
    let mut paths = vec![Path::new(SOURCE).join("dashboard.rs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => paths.push(path),
            }
        }
    }
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let constants = text.lines().filter_map(|line| {
            let (_, constant) = line.split_once("const ")?;
            let (name, value) = constant.split_once(": &str = \"")?;
            Some((name.to_owned(), value.strip_suffix("\";")?.to_owned()))
        });
        let constants = constants.collect();
        found.insert(path, File { text, constants });
    }
    found
}

/// The value of a constant as a file sees it: its own, or one that it takes from another.
fn constant(files: &BTreeMap<PathBuf, File>, path: &Path, name: &str) -> String {
    let folder = path.parent().unwrap();
    let (module, name) = name.rsplit_once("::").unwrap_or(("", name));
    let is_of_payments = files[path].text.contains("payments::{PATH");
    let of_module = folder.join(format!("{module}.rs"));
    let of_payments = folder.join("payments.rs");
    let of_parent = folder.with_extension("rs");
    let places: [&Path; 4] = [
        &of_module,
        path,
        if is_of_payments { &of_payments } else { path },
        &of_parent,
    ];
    let mut values = places
        .iter()
        .filter_map(|place| files.get(*place)?.constants.get(name));
    let value = values.next();
    value
        .unwrap_or_else(|| panic!("{name} of {}", path.display()))
        .clone()
}

/// What is in the brackets that open here.
fn in_brackets(text: &str) -> &str {
    let mut depth = 0;
    let end = text.char_indices().find(|(_, character)| {
        depth += match character {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &text[1..end.expect("the brackets close").0]
}

fn routes() -> Vec<Route> {
    let files = files();
    let mut routes = Vec::new();
    for (path, file) in &files {
        for (at, _) in file.text.match_indices(".route(") {
            let call = in_brackets(&file.text[at + ".route".len()..]).trim();
            let (address, handlers) = match call.strip_prefix("&format!") {
                Some(rest) => {
                    let inside = in_brackets(rest);
                    (formatted(&files, path, inside), &rest[inside.len() + 2..])
                }
                None => {
                    let (first, rest) = call.split_once(',').unwrap();
                    let address = match first.strip_prefix('"') {
                        Some(literal) => literal.trim_end_matches('"').to_owned(),
                        None => constant(&files, path, first),
                    };
                    (address, rest)
                }
            };
            routes.push(Route {
                path: address,
                takes_get: handlers.contains("get("),
                takes_post: handlers.contains("post("),
            });
        }
    }
    routes
}

/// The value of `"{PATH}/{{id}}"`, or of `"{}/{{id}}", other::PATH`.
fn formatted(files: &BTreeMap<PathBuf, File>, path: &Path, inside: &str) -> String {
    let (_, rest) = inside.split_once('"').unwrap();
    let (template, arguments) = rest.split_once('"').unwrap();
    let argument = arguments.trim_matches([',', ' ', '\n']);
    let template = template.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let (before, after) = template.split_once('{').unwrap();
    let (name, after) = after.split_once('}').unwrap();
    let name = if name.is_empty() { argument } else { name };
    let value = constant(files, path, name);
    format!("{before}{value}{after}")
        .replace('\u{1}', "{")
        .replace('\u{2}', "}")
}

/// The parameter in a path.
fn parameter(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once('{')?;
    Some(rest.split_once('}')?.0)
}

/// Ids of one thing of each kind, by the names of the parameters.
async fn things(owner: &Person) -> BTreeMap<&'static str, String> {
    let webhooks = "/settings/integrations/webhooks";
    owner.have_events().await;
    let reference = owner
        .take("0240000001", json!({ "payer_name": "Kofi" }))
        .await;
    let refund = format!("/payments/{reference}/refund");
    let nonce = owner.get(&refund).await.field("nonce");
    let fields = [("amount", "5"), ("nonce", nonce.as_str())];
    let refund_id = owner.post(&refund, &fields).await.leads_to("/refunds/");
    let nonce = owner.get("/payments/new").await.field("nonce");
    let fields = [("amount", "5"), ("description", "Lunch"), ("nonce", &nonce)];
    let link = owner.post("/payments/new", &fields).await;
    let replay = uuid::Uuid::new_v4().to_string();
    let replay = [
        ("step", "start"),
        ("since", "2026-01-01T00:00"),
        ("nonce", replay.as_str()),
    ];
    let replay = owner.post(&format!("{webhooks}/replay"), &replay).await;
    let run = owner.post(&format!("{webhooks}/conformance"), &[]).await;
    let keys = owner.get("/settings/integrations/keys").await.html;
    let (_, key) = keys.split_once("/settings/integrations/keys/").unwrap();
    let key = key.split_once("new\"").map_or(key, |(_, rest)| {
        rest.split_once("/settings/integrations/keys/").unwrap().1
    });
    let only = |found: Vec<String>| found.into_iter().next().expect("one");
    let customers = owner.walk("/customers", "/customers/").await;
    let deliveries = owner.deliveries_of(&reference).await;
    BTreeMap::from([
        ("reference", reference),
        ("refund_id", refund_id),
        ("session_id", link.leads_to("/payments/link/")),
        ("customer_id", only(customers)),
        ("delivery_id", only(deliveries)),
        ("key_id", key.split_once('/').unwrap().0.to_owned()),
        ("replay_id", replay.leads_to(&format!("{webhooks}/replay/"))),
        ("run_id", run.leads_to(&format!("{webhooks}/conformance/"))),
    ])
}

#[tokio::test]
async fn no_route_gives_a_stranger_what_is_anothers() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let owner = Person::sign_up(&shop, "The house next door").await;
    let stranger = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let things = things(&owner).await;
    let mut asked = BTreeSet::new();
    for route in routes() {
        let Some(name) = parameter(&route.path) else {
            continue;
        };
        // Payouts have a test of their own: they need an authenticator and an account.
        if PUBLIC.contains(&route.path.as_str()) || name == "payout_id" {
            continue;
        }
        let id = things.get(name).unwrap_or_else(|| panic!("no {name}"));
        let path = route.path.replace(&format!("{{{name}}}"), id);
        if route.takes_get {
            assert_eq!(owner.get(&path).await.code, 200, "{path}");
            let page = stranger.get(&path).await;
            assert_eq!(page.code, 404, "{path}");
            page.says("Page not found");
        }
        if route.takes_post {
            let page = stranger
                .post(&path, &[("label", "x"), ("amount", "1")])
                .await;
            assert_eq!(page.code, 404, "POST {path}");
        }
        asked.insert(name.to_owned());
    }
    let known: BTreeSet<String> = things.into_keys().map(str::to_owned).collect();
    assert_eq!(asked, known);
    shop.close().await;
}

#[tokio::test]
async fn no_route_but_the_public_ones_lets_anybody_in_without_a_login() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let mut nobody = 0;
    let cookie = std::mem::take(&mut person.cookie);
    for route in routes() {
        if PUBLIC.contains(&route.path.as_str()) {
            continue;
        }
        let path = match parameter(&route.path) {
            Some(name) => route.path.replace(&format!("{{{name}}}"), "x"),
            None => route.path.clone(),
        };
        if route.takes_get {
            person.get(&path).await.leads_to("/login?then=");
        }
        if route.takes_post && path != "/logout" {
            let page = person.post(&path, &[("password", PASSWORD)]).await;
            assert_eq!(page.code, 401, "POST {path}");
            page.says("Log in");
        }
        nobody += 1;
    }
    assert!(nobody > 35, "{nobody} routes");
    person.cookie = cookie;
    for route in routes().iter().filter(|route| route.takes_post) {
        let url = format!("{}{}", person.base, route.path.replace(['{', '}'], ""));
        for site in [Some("cross-site"), Some("same-site"), None] {
            let request = person.client.post(&url).header("cookie", &person.cookie);
            let request = match site {
                Some(site) => request.header("sec-fetch-site", site),
                None => request,
            };
            let form = "application/x-www-form-urlencoded";
            let request = request.header("content-type", form).body("x=1");
            let code = request.send().await.unwrap().status().as_u16();
            assert_eq!(code, 403, "{site:?} {url}");
        }
    }
    assert_eq!(person.get("/payments").await.code, 200, "still logged in");
    shop.close().await;
}

/// What is typed into the forms, by the names of their fields, and what must never be shown or kept.
const TYPED: [(&str, &str); 13] = [
    ("amount", "12.34"),
    ("description", "12.34"),
    ("label", "12.34"),
    ("email", "12.34"),
    ("holder_name", "12.34"),
    ("registered_name", "12.34"),
    ("url", "12.34"),
    ("header", "12.34"),
    ("since", "12.34"),
    ("to", "MTN 024 ••• 0201"),
    ("key", "•••• 12ab"),
    ("code", "987654"),
    ("password", PASSWORD),
];

/// Where the forms of a page send what somebody types, unless all of it is secret.
fn typed_forms(html: &str, path: &str) -> Vec<String> {
    let attribute = |tag: &str, name: &str| {
        let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let forms = html.split("<form").skip(1);
    let forms = forms.filter_map(|rest| rest.split("</form>").next()?.split_once('>'));
    let forms = forms.filter(|(head, _)| head.contains("method=\"post\""));
    let typed = forms.filter(|(_, inside)| {
        let fields = inside.split('<').filter(|tag| {
            let tag = tag.trim_start_matches('/');
            ["input", "textarea", "select"]
                .iter()
                .any(|field| tag.starts_with(field))
        });
        let names = fields.filter(|tag| attribute(tag, "type").as_deref() != Some("hidden"));
        let mut names = names.filter_map(|tag| attribute(tag, "name"));
        names.any(|name| !["password", "current_password", "code"].contains(&&*name))
    });
    let actions = typed.map(|(head, _)| attribute(head, "action"));
    let actions = actions.map(|action| action.unwrap_or_else(|| path.to_owned()));
    actions.collect()
}

#[tokio::test]
async fn whatever_somebody_types_outlives_a_login() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let things = things(&person).await;
    let mut typed = BTreeSet::new();
    for route in routes().iter().filter(|route| route.takes_get) {
        let path = match parameter(&route.path) {
            _ if PUBLIC.contains(&route.path.as_str()) => continue,
            Some(name) => match things.get(name) {
                Some(id) => route.path.replace(&format!("{{{name}}}"), id),
                None => continue,
            },
            None => route.path.clone(),
        };
        let page = person.get(&path).await;
        typed.extend(typed_forms(&page.html, &path));
    }
    assert!(typed.len() > 8, "{typed:?}");
    person.cookie = String::new();
    for path in typed {
        let page = person.post(&path, &TYPED).await;
        assert_eq!(page.code, 401, "POST {path}");
        let is_kept = page.html.contains("name=\"carried\"");
        assert!(is_kept, "{path} is missing in dashboard/forms.rs");
    }
    shop.close().await;
}

#[tokio::test]
async fn whoever_logs_in_next_does_not_see_what_somebody_typed() {
    const PATH: &str = "/settings/business";
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut ama = Person::sign_up(&shop, "Ama’s Kitchen").await;
    let kofi = Person::sign_up(&shop, "Kofi’s Garage").await;
    let person = ama.get(PATH).await.field("person");
    ama.cookie = String::new();
    let mut sent = TYPED.to_vec();
    sent.push(("person", &person));
    let carried = ama.post(PATH, &sent).await.field("carried");
    let carried = carried.replace("&#38;", "&");
    for (email, sees) in [(kofi.email, false), (ama.email.clone(), true)] {
        ama.cookie = String::new();
        let login = [
            ("email", email.as_str()),
            ("password", PASSWORD),
            ("then", PATH),
            ("carried", &carried),
        ];
        let answer = ama.post("/login", &login).await;
        match sees {
            true => answer.says(">12.34</dd>"),
            false => assert_eq!(answer.leads_to(PATH), ""),
        }
    }
    shop.close().await;
}

#[tokio::test]
async fn what_a_login_interrupts_is_shown_before_it_is_sent_again() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let mut person = Person::sign_up(&shop, "Ama’s Kitchen").await;
    person.cookie = String::new();
    let filled = |route: &Route| match parameter(&route.path) {
        Some(name) => route.path.replace(&format!("{{{name}}}"), "x"),
        None => route.path.clone(),
    };
    let pages = routes();
    let pages: BTreeSet<String> = pages
        .iter()
        .filter(|route| route.takes_get)
        .map(filled)
        .collect();
    let mut shown = BTreeSet::new();
    for route in routes() {
        let is_elsewhere = ["/logout", "/confirm"].contains(&route.path.as_str());
        if !route.takes_post || is_elsewhere || PUBLIC.contains(&route.path.as_str()) {
            continue;
        }
        let path = filled(&route);
        let page = person.post(&path, &TYPED).await;
        assert_eq!(page.code, 401, "POST {path}");
        let then = page.field("then");
        let mut login = vec![("email", person.email.as_str()), ("password", PASSWORD)];
        login.push(("then", &then));
        let is_kept = page.html.contains("name=\"carried\"");
        let carried = match is_kept {
            true => page.field("carried").replace("&#38;", "&"),
            false => String::new(),
        };
        login.push(("carried", &carried));
        let answer = person.post("/login", &login).await;
        if !is_kept {
            page.says("nothing was done");
            // A button, or a form for a secret alone: its page has it again.
            assert!(
                pages.contains(&answer.leads_to("")),
                "{path} leads to {then}"
            );
            continue;
        }
        assert_eq!(answer.code, 200, "{path}");
        answer.says("Send it again");
        answer.says(">12.34</dd>");
        answer.says(&format!("action=\"{path}\""));
        for secret in [PASSWORD, "kente", "987654"] {
            page.says_not(secret);
            answer.says_not(secret);
        }
        if path == "/payouts/new" {
            answer.says(">MTN 024 ••• 0201</dd>");
        }
        if path.ends_with("/revoke") {
            answer.says(">•••• 12ab</dd>");
        }
        shown.insert(path);
    }
    assert!(shown.len() > 10, "{shown:?}");
    shop.close().await;
}
