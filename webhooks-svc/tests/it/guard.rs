//! Only public addresses are called, however they are written or named, or change meanwhile.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chassis::{
    ids::{DeliveryId, EventId, MerchantId},
    testing::check_invalid,
};
use proto::webhooks::DeliveryStatus;
use webhooks_svc::{
    delivery::AttemptVerdict,
    guard::{Guard, Lookup},
    send::{Message, Sender},
};

use crate::{
    receiver::Receiver,
    world::{NO_NETS, World},
};

/// One or more of every IPv4 network that is not public.
const REFUSED_V4: [[u8; 4]; 40] = [
    [0, 0, 0, 0],
    [0, 1, 2, 3],
    [0, 255, 255, 255],
    [10, 0, 0, 1],
    [10, 255, 255, 254],
    [100, 64, 0, 1],
    [100, 100, 100, 200],
    [100, 127, 255, 254],
    [127, 0, 0, 1],
    [127, 0, 1, 1],
    [127, 255, 255, 254],
    [168, 63, 129, 16],
    [169, 254, 0, 1],
    [169, 254, 169, 254],
    [169, 254, 170, 2],
    [172, 16, 0, 1],
    [172, 20, 30, 40],
    [172, 31, 255, 254],
    [192, 0, 0, 1],
    [192, 0, 0, 170],
    [192, 0, 0, 192],
    [192, 0, 2, 1],
    [192, 88, 99, 1],
    [192, 168, 0, 1],
    [192, 168, 255, 254],
    [198, 18, 0, 1],
    [198, 19, 255, 254],
    [198, 51, 100, 1],
    [203, 0, 113, 1],
    [224, 0, 0, 1],
    [232, 1, 2, 3],
    [233, 252, 0, 1],
    [239, 255, 255, 250],
    [240, 0, 0, 1],
    [245, 1, 2, 3],
    [250, 0, 0, 1],
    [254, 1, 1, 1],
    [255, 0, 0, 1],
    [255, 255, 255, 254],
    [255, 255, 255, 255],
];

const REFUSED_V6: [&str; 30] = [
    "::",
    "::1",
    "::2",
    "::ffff:0:7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::a00:1",
    "100::1",
    "100:0:0:1::1",
    "200::1",
    "400::1",
    "1000::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:1ff::1",
    "2001:db8::1",
    "2001:db8:ffff::1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::",
    "3fff::1",
    "3fff:fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "ff02::1",
];

const PUBLIC_V4: [[u8; 4]; 25] = [
    [1, 1, 1, 1],
    [8, 8, 8, 8],
    [9, 9, 9, 9],
    [11, 0, 0, 1],
    [41, 66, 0, 1],
    [93, 184, 216, 34],
    [100, 63, 255, 254],
    [100, 128, 0, 1],
    [126, 255, 255, 254],
    [128, 0, 0, 1],
    [154, 160, 1, 1],
    [169, 253, 1, 1],
    [169, 255, 1, 1],
    [172, 15, 255, 254],
    [172, 32, 0, 1],
    [192, 0, 1, 1],
    [192, 1, 0, 1],
    [192, 167, 1, 1],
    [192, 169, 1, 1],
    [196, 201, 1, 1],
    [198, 17, 1, 1],
    [198, 20, 0, 1],
    [203, 0, 112, 1],
    [203, 0, 114, 1],
    [223, 255, 255, 254],
];

const PUBLIC_V6: [&str; 15] = [
    "2001:200::1",
    "2001:4860:4860::8888",
    "2003::1",
    "2400:cb00::1",
    "2404:6800::1",
    "2600::1",
    "2606:4700:4700::1111",
    "2620:fe::fe",
    "2800:3f0::1",
    "2a00:1450::1",
    "2a02:26f0::1",
    "2a03:2880::1",
    "2c0f:fb50::1",
    "2c0f:f248::1",
    "3ffe::1",
];

const PUBLIC_NAMES: [&str; 10] = [
    "https://example.com",
    "https://example.com/",
    "https://EXAMPLE.com:8443/hook?a=b#c",
    "https://merchant.com.gh/webhooks/momo",
    "https://xn--nxasmq6b.example/",
    "https://münchen.de/x",
    "https://a.b.c.d.example:65535/",
    "https://example.com:1/",
    "https://127.0.0.1.nip.io/",
    "https://example.com./",
];

/// Spellings that URL parsers and system libraries read as the same address.
fn spellings(address: [u8; 4]) -> Vec<String> {
    let [a, b, c, d] = address;
    let number = u32::from_be_bytes(address);
    let low = number & 0xff_ffff;
    let fullwidth = |text: String| {
        let wide = |c: char| match c {
            '0'..='9' => char::from_u32(u32::from(c) - 0x30 + 0xff10).unwrap(),
            '.' => '。',
            other => other,
        };
        text.chars().map(wide).collect::<String>()
    };
    let escaped = |text: String| {
        text.bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect::<String>()
    };
    vec![
        format!("{a}.{b}.{c}.{d}"),
        format!("{a}.{b}.{c}.{d}."),
        format!("{number}"),
        format!("0x{number:x}"),
        format!("0X{number:X}"),
        format!("0{number:o}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a}.{low}"),
        format!("{a}.{b}.{}", low & 0xffff),
        fullwidth(format!("{a}.{b}.{c}.{d}")),
        escaped(format!("{a}.{b}.{c}.{d}")),
        format!("[::ffff:{a}.{b}.{c}.{d}]"),
        format!("[::{a}.{b}.{c}.{d}]"),
        format!("[64:ff9b::{a}.{b}.{c}.{d}]"),
        format!("[2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1]"),
    ]
}

/// Every refused host in every spelling, and tricks around them.
fn refused_urls(port: u16) -> Vec<String> {
    let v4 = REFUSED_V4.into_iter().flat_map(spellings);
    let v6 = REFUSED_V6.into_iter().map(|address| format!("[{address}]"));
    let hosts = v4
        .chain(v6)
        .map(|host| format!("http://{host}:{port}/hook"));
    let tricks = [
        format!("http://example.com@127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{port}@example.com/"),
        format!("http://example.com:password@127.0.0.1:{port}/"),
        format!("http:\\\\127.0.0.1:{port}\\"),
        format!("http:127.0.0.1:{port}/"),
        format!("http:////127.0.0.1:{port}/"),
        format!("HTTP://127.0.0.1:{port}/"),
        format!("http://127.0.0.1\\@example.com:{port}/"),
        format!("http://127.0.0.1#@example.com:{port}/"),
        format!("http://0:{port}/"),
        format!("http://127.1:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://0177.0.0.01:{port}/"),
        format!("http://⑫7.0.0.1:{port}/"),
        format!("http://[0:0:0:0:0:0:0:1]:{port}/"),
        format!("http://[::ffff:7f00:1]:{port}/"),
        format!("http://[::1%25lo]:{port}/"),
        format!("gopher://127.0.0.1:{port}/"),
        "file:///etc/passwd".to_owned(),
        format!("data:text/plain,127.0.0.1:{port}"),
        "unix:/run/docker.sock".to_owned(),
        format!("//127.0.0.1:{port}/"),
    ];
    hosts.chain(tricks).collect()
}

/// A lookup in which `choose` gives each name its addresses.
pub fn lookup(choose: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static) -> Lookup {
    Arc::new(move |name| {
        let found = choose(&name);
        Box::pin(async move {
            if found.is_empty() {
                return Err(io::Error::other("no such name"));
            }
            Ok(found)
        })
    })
}

pub fn sender(guard: &Guard) -> Sender {
    Sender::new(guard.clone(), Duration::from_secs(2)).unwrap()
}

/// Sends to a URL; returns whether it succeeded, and the reason if not.
pub async fn send(sender: &Sender, url: &str) -> (AttemptVerdict, String) {
    let message = Message {
        event_id: &EventId::new(),
        delivery_id: &DeliveryId::new(),
        attempt: 1,
        body: "{}",
        signature: "t=0,v1=00",
    };
    let outcome = sender.send(url, &message).await;
    (outcome.verdict, outcome.error.unwrap_or_default())
}

/// Listens on every local address, on one port.
async fn listen_everywhere() -> Vec<Receiver> {
    let first = Receiver::start_at("0.0.0.0:0", |_, _| crate::receiver::Answer::Status(200)).await;
    let port = first.address.port();
    let v6 = format!("[::1]:{port}");
    let second = Receiver::start_at(&v6, |_, _| crate::receiver::Answer::Status(200)).await;
    vec![first, second]
}

#[tokio::test]
async fn none_of_seven_hundred_urls_reaches_this_machine_or_its_network() {
    let listeners = listen_everywhere().await;
    let port = listeners[0].address.port();
    let nowhere = lookup(|_| Vec::new());
    let guard = Guard::new(true, Vec::new(), nowhere);
    let refusing = sender(&guard);
    let urls = refused_urls(port);
    assert!(urls.len() >= 500, "{}", urls.len());
    for url in &urls {
        if let Ok(parsed) = guard.check_url(url) {
            // Whatever passes is a name, which our resolvers do not know.
            assert!(parsed.domain().is_some(), "{url} passed as {parsed}");
        }
        let (verdict, reason) = send(&refusing, url).await;
        assert_eq!(verdict, AttemptVerdict::Failed, "{url}");
        let refused = reason.starts_with("not sent") || reason.contains("no such name");
        assert!(
            refused || reason == "the host cannot be looked up",
            "{url}: {reason}"
        );
    }
    for listener in &listeners {
        assert_eq!(listener.connections(), 0);
    }
    // The listeners do receive what is allowed.
    let allowing = Guard::new(
        true,
        vec!["127.0.0.0/8".parse().unwrap()],
        lookup(|_| Vec::new()),
    );
    let (verdict, reason) = send(&sender(&allowing), &format!("http://2130706433:{port}/")).await;
    assert_eq!(verdict, AttemptVerdict::Succeeded, "{reason}");
    assert_eq!(listeners[0].connections(), 1);
}

#[tokio::test]
async fn names_that_lead_to_refused_addresses_are_not_called() {
    let listeners = listen_everywhere().await;
    let port = listeners[0].address.port();
    let v4 = REFUSED_V4
        .into_iter()
        .map(|address| IpAddr::from(Ipv4Addr::from(address)));
    let v6 = REFUSED_V6
        .into_iter()
        .map(|address| IpAddr::from(address.parse::<Ipv6Addr>().unwrap()));
    let addresses: Vec<IpAddr> = v4.chain(v6).collect();
    let numbered = addresses.clone();
    // `merchant-7.example` resolves to `addresses[7]`.
    let guard = Guard::new(
        true,
        Vec::new(),
        lookup(move |name| {
            let number = name
                .trim_start_matches("merchant-")
                .trim_end_matches(".example");
            vec![numbered[number.parse::<usize>().unwrap()]]
        }),
    );
    let refusing = sender(&guard);
    for (number, address) in addresses.into_iter().enumerate() {
        assert!(!guard.allows(address), "{address}");
        let url = format!("http://merchant-{number}.example:{port}/");
        let parsed = guard.check_url(&url).unwrap();
        assert!(guard.check_name(&parsed).await.is_err(), "{address}");
        let (verdict, reason) = send(&refusing, &url).await;
        assert_eq!(verdict, AttemptVerdict::Failed);
        assert_eq!(reason, "the host leads to no public address");
    }
    for listener in &listeners {
        assert_eq!(listener.connections(), 0);
    }
}

#[tokio::test]
async fn fifty_public_urls_pass() {
    let guard = Guard::new(false, Vec::new(), lookup(|_| Vec::new()));
    let v4 = PUBLIC_V4.map(|address| format!("https://{}/", Ipv4Addr::from(address)));
    let v6 = PUBLIC_V6.map(|address| format!("https://[{address}]:8443/"));
    let names = PUBLIC_NAMES.map(str::to_owned);
    let urls: Vec<String> = v4.into_iter().chain(v6).chain(names).collect();
    assert!(urls.len() >= 50);
    for url in urls {
        let parsed = guard.check_url(&url);
        let parsed = parsed.unwrap_or_else(|refusal| panic!("{url}: {refusal}"));
        assert_eq!(
            guard.check_name(&parsed).await,
            Ok(()),
            "a name without an answer may be saved"
        );
    }
}

#[tokio::test]
async fn a_name_that_changes_meanwhile_is_called_only_where_it_may_be() {
    // 127.0.0.2 stands for a public address: it is allowed, 127.0.0.1 is not.
    let refused =
        Receiver::start_at("127.0.0.1:0", |_, _| crate::receiver::Answer::Status(200)).await;
    let port = refused.address.port();
    let public = format!("127.0.0.2:{port}");
    let public = Receiver::start_at(&public, |_, _| crate::receiver::Answer::Status(200)).await;
    let asked = AtomicUsize::new(0);
    let rebinding = lookup(move |_| {
        let (good, bad) = (IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 1]));
        match asked.fetch_add(1, Ordering::SeqCst) % 4 {
            0 => vec![good],
            1 => vec![bad],
            2 => vec![bad, good],
            _ => vec![good, bad],
        }
    });
    let guard = Guard::new(true, vec!["127.0.0.2/32".parse().unwrap()], rebinding);
    let url = format!("http://rebinding.example:{port}/");
    let sender = sender(&guard);
    let mut succeeded = 0;
    for _ in 0..40 {
        let (verdict, _) = send(&sender, &url).await;
        succeeded += usize::from(verdict == AttemptVerdict::Succeeded);
    }
    assert_eq!(refused.connections(), 0);
    assert_eq!((succeeded, public.connections()), (30, 30));
}

#[tokio::test]
async fn an_endpoint_at_a_refused_address_cannot_be_saved() {
    let mut world = World::start_with(&[NO_NETS]).await;
    let merchant_id = MerchantId::new().to_string();
    for url in refused_urls(8_080)
        .iter()
        .filter(|url| !url.contains("%3") && !url.contains("%2"))
    {
        check_invalid(world.try_endpoint(&merchant_id, url).await, "url");
    }
    check_invalid(
        world
            .try_endpoint(&merchant_id, "http://localhost:8080/")
            .await,
        "url",
    );
}

#[tokio::test]
async fn an_endpoint_that_was_saved_is_checked_again_at_each_attempt() {
    let receiver = Receiver::always(200).await;
    let mut world = World::start().await;
    let merchant_id = world.endpoint(&receiver.url()).await.merchant_id;
    let named = receiver.url().replace("127.0.0.1", "localhost");
    let named_merchant = world.endpoint(&named).await.merchant_id;
    world.flags = vec![NO_NETS.to_owned()];
    let mut world = world.restart().await;
    let reasons = [
        (
            merchant_id,
            "not sent: the URL must lead to a public address",
        ),
        (named_merchant, "the host leads to no public address"),
    ];
    for (merchant_id, reason) in reasons {
        let id = world.deliver(&merchant_id).await;
        let delivery = world.after_attempts(&id, 1).await;
        assert_eq!(delivery.status(), DeliveryStatus::Pending);
        assert_eq!(delivery.attempts[0].error(), reason);
    }
    assert_eq!(receiver.connections(), 0);
}
