use std::{
    fs,
    path::{Path, PathBuf},
};

use askama::Template;

use super::*;
use crate::dashboard::page::{
    Button, Cell, Control, DetailPage, Field, FilterForm, FormPage, LinksPage, Live, MessagePage,
    Moment, Pages, Section, Shell, Table, TablePage, Who,
};

/// A language in which every phrase is marked, so that what is not translated stands out.
pub static MARKED: Language = Language {
    code: "x",
    translate: |english| Cow::Owned(format!("⟦{english}⟧")),
};

/// What is written in marks is taken out, marks in marks included.
fn without_marked(html: &str) -> String {
    let mut depth = 0_usize;
    let mut left = String::new();
    for character in html.chars() {
        match character {
            '⟦' => depth += 1,
            '⟧' => depth -= 1,
            character if depth == 0 => left.push(character),
            _ => {}
        }
    }
    assert_eq!(depth, 0, "{html}");
    left
}

/// Attributes whose values nobody reads, or that have what was typed.
const FOR_MACHINES: &str = " action aria-current aria-describedby aria-invalid autocapitalize \
    autocomplete charset class content d data-copy data-live data-part datetime for height href id inputmode lang \
    method name rel role rows scope spellcheck src tabindex type value viewBox width x y ";

/// The words of a page that are no phrase, what stands in attributes that people are told included.
fn unmarked(html: &str) -> Vec<String> {
    let mut told = String::new();
    let html = without_marked(html);
    let mut rest = html.as_str();
    while let Some((text, tag)) = rest.split_once('<') {
        let (tag, after) = tag.split_once('>').expect("a tag ends");
        told.push_str(text);
        for part in tag.split("\" ") {
            let Some((before, value)) = part.split_once("=\"") else {
                continue;
            };
            let name = before.rsplit(' ').next().unwrap_or_default();
            if !FOR_MACHINES.contains(&format!(" {name} ")) {
                told.push_str(&format!(" {value} "));
            }
        }
        told.push(' ');
        rest = after;
    }
    told.push_str(rest);
    let words = told.split(|character: char| !character.is_alphabetic());
    let words = words.filter(|word| word.chars().count() > 1 && *word != "GMT");
    words.map(str::to_owned).collect()
}

/// Renders the page in the marked language: it must have no word outside of marks.
pub fn check_marked(page: &impl Template) {
    let html = page.render_with_values(&InLanguage(&MARKED));
    let html = html.expect("a page").replace("&#34;", "\"");
    assert!(html.contains('⟦'), "{html}");
    let words = unmarked(&html);
    assert!(words.is_empty(), "{words:?} in {html}");
}

/// Pages have digits where data stands.
pub fn shell() -> Shell {
    let who = Who {
        person_id: "0".to_owned(),
        merchant: "1".to_owned(),
        email: "2".to_owned(),
        is_test: true,
    };
    let mut shell = Shell::inside(who, Section::Home, "Overview").done(Some("It is done."));
    shell.live = Some(Live {
        is_open: true,
        state: told().into(),
    });
    shell.help.email = Some("9".into());
    shell.language = &MARKED;
    shell
}

fn told() -> Phrase {
    phrase!("Until {0}.", moment("2026-11-25T18:05:03.000Z"))
}

fn fields() -> Vec<Field> {
    const CHOICES: [(&str, &str); 2] = [("", "Any"), ("1", "The first")];
    let choice = |control| Field::new("c", "Which", control).value("1");
    let wrong = Field::text("f", "Name").hint("As it is.");
    vec![
        wrong.error(Some(told())),
        Field::new("a", "What", Control::Area),
        Field::code(),
        Field::totp(),
        choice(Control::Choice(&CHOICES)),
        choice(Control::Checks(&CHOICES)),
    ]
}

fn rows() -> Vec<Vec<Cell>> {
    let first = vec![
        Cell::text("3")
            .detail(told())
            .link("/x".to_owned())
            .button("End it", "i", "4"),
        Cell::time("2026-11-25T18:05:03.000Z").action("Change", "/x"),
        Cell::state("Failed", "bad"),
        Cell::amount("5".to_owned()),
    ];
    vec![first]
}

pub fn table() -> Table {
    Table {
        caption: "Refunds",
        columns: vec!["Created", "Refund", "State", "Amount"],
        rows: rows(),
    }
}

fn secrets() -> Vec<(&'static str, String)> {
    vec![("Secret", "6".to_owned())]
}

fn pages() -> Pages {
    let address = || Some("/x".to_owned());
    Pages {
        older: address(),
        newer: address(),
        newest: address(),
    }
}

fn table_page() -> TablePage {
    let mut page = TablePage::new(shell(), &["Created", "Refund", "State", "Amount"]);
    page.lead = vec!["What it is about."];
    page.facts = vec![("Account", Cell::phrase("Where it goes"))];
    page.button = Some(("Ask for one", "/x".to_owned()));
    page.empty = "Nothing yet.";
    page.all_action = Some("End all others");
    page.pages = pages();
    let form = |fields| FilterForm {
        action: "/x".to_owned(),
        submit: "Filter",
        fields,
        notice: None,
        export: "/x".to_owned(),
    };
    let filled = fields().into_iter().map(|field| field.error(None));
    page.filters = Some(form(filled.collect()));
    page.below = Some(form(fields()));
    page
}

#[test]
fn every_kind_of_page_is_written_in_its_language() {
    let mut form = FormPage::new(shell(), "/x", "Send");
    form.lead = vec![told()];
    form.notice = Some(told());
    form.shell.is_error = true;
    form.secrets = secrets();
    form.qr = Some((String::new(), 1));
    form.fields = fields();
    form.table = Some(table());
    form.links = vec![("Back", "/x")];
    check_marked(&form);

    let mut message = MessagePage::saying(shell(), told()).next("Go on", "/x");
    message.secrets = secrets();
    check_marked(&message);

    let links = vec![("Keys", "/x", "What they are for.")];
    check_marked(&LinksPage {
        shell: shell(),
        links,
    });

    let mut detail = DetailPage::new(shell());
    detail.lead = vec![told()];
    detail.facts = vec![("State", Cell::state("On", "good").detail(told()))];
    detail.table = Some(table());
    detail.pages = pages();
    detail.moments = vec![Moment {
        at: "2026-11-25T18:05:03.000Z".to_owned(),
        phrase: "Failed",
        state: "bad",
        told: "It was not paid.",
        detail: told().into(),
        named: vec![("Request", Cell::id("8"))],
    }];
    detail.texts = vec![("Body", "7".to_owned())];
    detail.buttons = vec![Button {
        label: "Send it again",
        action: "/x".to_owned(),
        hidden: Vec::new(),
    }];
    detail.links = vec![("All of them", "/x".to_owned())];
    check_marked(&detail);

    let mut list = table_page();
    // No rows, and filters that may be why.
    check_marked(&list);
    list.rows = rows();
    check_marked(&list);
    list.rows = Vec::new();
    list.pages.older = None;
    check_marked(&list);
    list.filters = None;
    check_marked(&list);
    let mut wrong = table_page();
    if let Some(filters) = &mut wrong.filters {
        filters.notice = Some(told());
        filters.fields = fields();
    }
    check_marked(&wrong);
}

#[test]
fn a_word_that_goes_around_the_catalogue_is_found() {
    let html = "<p title=\"Hello\" class=\"lead\">⟦Sum: 1 ⟦Nov⟧⟧ total</p>";
    assert_eq!(unmarked(html), ["Hello", "total"]);
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("a folder").flatten();
    let files = files.map(|file| file.path());
    let found = files.flat_map(|path| match path.is_dir() {
        true => sources(&path),
        false => vec![path],
    });
    found.collect()
}

/// What makes data of a text: what comes before the text, and what after it.
const MAKES_DATA: [(&str, &str); 7] = [
    ("format!(", ""),
    ("Cell::text(", ""),
    ("Cell::amount(", ""),
    (".detail(", ""),
    ("String::from(", ""),
    ("", ".to_owned()"),
    ("", ".to_string()"),
];

/// Words that are the same everywhere.
const EVERYWHERE: [&str; 2] = ["HTTP", "ms"];

/// What is kept with what a person did, as it was then.
const KEPT: [&str; 2] = ["since {since}", "{} of {reference}"];

/// Sentences of ours that are made data of, in this source.
fn untranslatable(source: &str) -> Vec<&str> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let code = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let lines: Vec<&str> = code.map(str::trim).collect();
    let line = |at: usize| lines.get(at).copied().unwrap_or_default();
    let mut found = Vec::new();
    for at in 0..lines.len() {
        let mut parts = line(at).split('"');
        let mut before = parts.next().unwrap_or_default();
        if before.is_empty() {
            before = line(at.wrapping_sub(1));
        }
        while let (Some(text), Some(after)) = (parts.next(), parts.next()) {
            let next = if after.is_empty() {
                line(at + 1)
            } else {
                after
            };
            let is_data = MAKES_DATA.iter().any(|(from, to)| {
                let begins = from.is_empty() || before.ends_with(from);
                begins && next.starts_with(to)
            });
            let is_address = text.contains(['/', '=', '\\']) || KEPT.contains(&text);
            let mut bare = text.split('{').flat_map(|part| part.rsplit('}').next());
            let has_words = bare.any(|part| {
                let mut words = part.split(|character: char| !character.is_alphabetic());
                words.any(|word| word.len() > 1 && !EVERYWHERE.contains(&word))
            });
            if is_data && has_words && text.contains(' ') && !is_address {
                found.push(text);
            }
            before = after;
        }
    }
    found
}

#[test]
fn no_sentence_is_made_data_of() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dashboard");
    let sources = sources(&folder);
    assert!(sources.len() > 30, "{sources:?}");
    for path in sources {
        let source = fs::read_to_string(&path).expect("a source");
        let found = untranslatable(&source);
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
    let wrong = "let a = format!(\"Wait {minutes} minutes.\"); let b = \"Not now.\".to_owned();";
    assert_eq!(
        untranslatable(wrong),
        ["Wait {minutes} minutes.", "Not now."]
    );
}

/// What is left of a template without tags, expressions and statements.
fn bare_text(template: &str) -> String {
    let mut left = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['<', '{']) {
        left.push_str(&rest[..at]);
        let from = &rest[at..];
        let end = match from {
            from if from.starts_with("{{") => "}}",
            from if from.starts_with("{%") => "%}",
            from if from.starts_with("{#") => "#}",
            _ => ">",
        };
        let after = from.find(end).expect("what begins ends");
        rest = &from[after + end.len()..];
    }
    left + rest
}

#[test]
fn no_text_of_a_template_goes_around_the_catalogue() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/dashboard");
    let templates = sources(&folder);
    assert!(templates.len() > 3, "{templates:?}");
    for file in templates {
        let template = fs::read_to_string(&file).expect("a template");
        let text = bare_text(&template);
        let words: Vec<&str> = text
            .split_whitespace()
            .filter(|word| word.chars().any(char::is_alphabetic))
            .collect();
        assert!(words.is_empty(), "{}: {words:?}", file.display());
    }
    assert_eq!(bare_text("<p>Hello {{ name }}</p>"), "Hello ");
}

#[test]
fn what_is_told_is_filled_in_and_not_read_again() {
    let phrase = phrase!("{0} is {1}.", "{1}", Phrase::from("late"));
    assert_eq!(phrase.say(&ENGLISH), "{1} is late.");
    assert_eq!(phrase.say(&MARKED), "⟦{1} is ⟦late⟧.⟧");
    let said = Phrase::of_a_service("must have {0}".to_owned());
    assert_eq!(said.say(&ENGLISH), "must have {0}");
}

#[test]
fn another_language_may_order_anew_and_lack_phrases() {
    let twi = Language {
        code: "tw",
        translate: |english| match english {
            "Log in" => "Hyɛn mu".into(),
            "{0} of {1}" => "{1} mu {0}".into(),
            "Nov" => "Obubuo".into(),
            english => english.into(),
        },
    };
    assert_eq!("Log in".say(&twi), "Hyɛn mu");
    assert_eq!("Sign up".say(&twi), "Sign up");
    assert_eq!("Log in".say(&ENGLISH), "Log in");
    assert_eq!(phrase!("{0} of {1}", "1", "2").say(&twi), "2 mu 1");
    let at = moment("2026-11-25T18:05:03.000Z");
    assert_eq!(at.say(&ENGLISH), "25 Nov 2026, 18:05:03\u{a0}GMT");
    assert_eq!(date("2026-11-25").say(&twi), "25 Obubuo 2026");
    assert_eq!(date("some day").say(&twi), "some day");
}

#[test]
fn how_long_it_is_until_something_ends_is_told_in_days_hours_and_minutes() {
    let now: Timestamp = "2026-11-25T18:00:00.000Z".parse().expect("a moment");
    for (until, told) in [
        ("2026-11-25T17:00:00.000Z", "0 min"),
        ("2026-11-25T18:00:01.000Z", "1 min"),
        ("2026-11-25T18:59:59.000Z", "1 h 0 min"),
        ("2026-11-26T17:13:20.000Z", "23 h 14 min"),
        ("2026-11-26T18:00:00.000Z", "1 day 0 h"),
        ("2026-12-05T20:30:00.000Z", "10 days 2 h"),
    ] {
        let at = until.parse().expect("a moment");
        assert_eq!(left(now, at).say(&ENGLISH), told, "{until}");
    }
    let ends = left_until(now, "2026-11-26T17:13:20.000Z");
    let told = "23 h 14 min (26 Nov 2026, 17:13:20\u{a0}GMT)";
    assert_eq!(ends.say(&ENGLISH), told);
}

#[test]
fn each_value_has_a_place_and_each_place_a_value() {
    assert!(has_places("{1} of {0}, {0}", 2));
    for wrong in [
        "{0}",
        "{0} {2}",
        "{0} {1} {2}",
        "{} {}",
        "{0} {1",
        "{0} }{1}",
    ] {
        assert!(!has_places(wrong, 2), "{wrong}");
    }
}
