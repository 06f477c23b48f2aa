//! The rails over real connections: what is sent, and what every kind of answer, or of missing
//! answer, is taken for.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod callback;
mod hubtel;
mod momo;
mod paystack;
mod token;
mod transfers;

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, LazyLock, Mutex},
};

use chassis::{
    config::{Mode, Refusals},
    failure::FailureReason,
    ids::{RailReference, Reference, TxIdDisplay},
    money::{Currency, Money},
    phone::Phone,
    provider::Provider,
    testing::fake_server::{FakeServer, json},
};
use clap::Parser;
use rails::{PaymentRequest, Query, Rail, RailName, RailSettings, Rails, RequestOutcome};
use tracing::{Dispatch, dispatcher::DefaultGuard};
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

const SUBSCRIPTION_KEY: &str = "subscription-key-1f2e3d";
const API_USER: &str = "6f9a1c54-1d6c-4a38-9a56-0b8a6c1f7a11";
const API_KEY: &str = "api-key-9c8b7a";
const SECRET_KEY: &str = "sk_test_abcdef";
const CALLBACK_TOKEN: &str = "callback-token-configured";

/// One character longer than the gateway takes.
const LONG_TOKEN: &str = "\
    0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
    0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0";

const ACCEPTED: RequestOutcome = RequestOutcome::Accepted { instruction: None };

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    rails: RailSettings,
}

/// The rails with these flags, which override or extend those of every test.
fn rails(flags: &[(&str, &str)]) -> anyhow::Result<Rails> {
    let mut all = BTreeMap::from([
        ("momo-base-url", "http://127.0.0.1:9"),
        ("momo-subscription-key", SUBSCRIPTION_KEY),
        ("momo-api-user", API_USER),
        ("momo-api-key", API_KEY),
        ("momo-target-environment", "mtnghana"),
        ("paystack-base-url", "http://127.0.0.1:9"),
        ("paystack-secret-key", SECRET_KEY),
        ("paystack-email-domain", "payers.example.com"),
        ("paystack-callback-token", CALLBACK_TOKEN),
    ]);
    all.extend(flags.iter().copied());
    let flags = all
        .into_iter()
        .map(|(name, value)| format!("--{name}={value}"));
    let flags = Flags::try_parse_from(["rails".to_owned()].into_iter().chain(flags))?;
    let mut refusals = Refusals::new(Mode::Development);
    flags.rails.check(&mut refusals);
    refusals.into_result()?;
    Rails::new(&flags.rails)
}

/// The rail that debits wallets of `provider`, on `network`.
fn rail(network: &FakeServer, provider: Provider, flags: &[(&str, &str)]) -> Rail {
    let at = network.address();
    let mut all = vec![
        ("momo-base-url", at.as_str()),
        ("paystack-base-url", at.as_str()),
    ];
    all.extend_from_slice(flags);
    rails(&all).unwrap().for_provider(provider).clone()
}

fn payment(provider: Provider) -> PaymentRequest {
    PaymentRequest {
        rail_reference: RailReference::new(),
        reference: Reference::new(&TxIdDisplay::new()),
        amount: Money::new(2550, Currency::GHS),
        phone: Phone::parse_ghana_mobile("0241234567").unwrap(),
        provider,
        payer_email: None,
        merchant_name: "Ama's Shop".to_owned(),
        description: Some("Order #17".to_owned()),
        callback_token: "callback-token-of-this-charge".to_owned(),
    }
}

fn query(rail_reference: RailReference) -> Query {
    Query {
        rail_reference,
        may_want_code: false,
    }
}

fn refused(reason: FailureReason) -> RequestOutcome {
    RequestOutcome::Refused(reason)
}

/// Everything that is logged on this thread while the guard lives.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

/// With only one subscriber, tracing asks that of the current thread whether it is interested, and
/// caches the answer even of a thread that has none. So there is always a second one.
static SECOND_SUBSCRIBER: LazyLock<Dispatch> = LazyLock::new(|| Logged::default().subscriber());

impl Logged {
    fn from_now_on() -> (Self, DefaultGuard) {
        LazyLock::force(&SECOND_SUBSCRIBER);
        let logged = Self::default();
        let guard = tracing::dispatcher::set_default(&logged.subscriber());
        (logged, guard)
    }

    fn subscriber(&self) -> Dispatch {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(self.clone())
            .finish();
        Dispatch::new(subscriber)
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Logged {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[test]
fn each_provider_goes_over_its_configured_rail() {
    let names = |rails: &Rails| {
        [Provider::Mtn, Provider::Telecel, Provider::At]
            .map(|provider| rails.for_provider(provider).name.code())
    };
    assert_eq!(
        names(&rails(&[]).unwrap()),
        ["momo", "paystack", "paystack"]
    );
    let all_paystack = rails(&[("rail-mtn", "paystack")]).unwrap();
    assert_eq!(names(&all_paystack), ["paystack"; 3]);
}

#[test]
fn a_rail_is_found_by_the_name_it_gives_itself() {
    let rails = rails(&[]).unwrap();
    for (code, name) in [
        ("momo", RailName::Momo),
        ("paystack", RailName::Paystack),
        ("hubtel", RailName::Hubtel),
    ] {
        assert_eq!(code.parse(), Ok(name));
        assert_eq!(rails.get(name).name, name);
    }
    assert!(
        rails
            .each()
            .map(|rail| rail.name)
            .eq(RailName::ALL.iter().copied())
    );
    for code in ["flutterwave", "MOMO", ""] {
        assert!(code.parse::<RailName>().is_err(), "{code}");
    }
}

#[test]
fn the_approval_window_is_the_networks_unless_configured_shorter() {
    for (configured, momo, paystack) in [
        ("300s", 300, 180),
        ("20s", 20, 20),
        ("4m", 240, 180),
        ("1h", 300, 180),
    ] {
        let rails = rails(&[("approval-window", configured)]).unwrap();
        let window = |provider| rails.for_provider(provider).approval_window.as_secs();
        assert_eq!(window(Provider::Mtn), momo, "{configured}");
        assert_eq!(window(Provider::At), paystack, "{configured}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_at_start() {
    for (name, value) in [
        ("rail-telecel", "momo"),
        ("rail-at", "momo"),
        ("rail-mtn", "hubtel"),
        ("momo-base-url", "ftp://example.com"),
        ("momo-base-url", "example.com"),
        ("paystack-base-url", "https://user:pass@example.com"),
        ("paystack-base-url", "https://example.com/?a=b"),
        ("callback-base-url", "data:,x"),
        ("momo-request-timeout", "9s"),
        ("momo-query-timeout", "0s"),
        ("paystack-request-timeout", "1h"),
        ("approval-window", "0s"),
        ("paystack-callback-token", "half/of+it=="),
        ("paystack-callback-token", "half?of#it"),
        ("paystack-callback-token", LONG_TOKEN),
        ("momo-api-key", ""),
        ("momo-subscription-key", ""),
        ("paystack-secret-key", ""),
        ("paystack-callback-token", ""),
        ("paystack-email-domain", ""),
        ("paystack-secret-key", "sk\ntest"),
        ("momo-target-environment", "a\nb"),
    ] {
        assert!(rails(&[(name, value)]).is_err(), "{name}={value}");
    }
}

#[test]
fn secrets_are_printed_nowhere() {
    let flags = rails(&[]).unwrap();
    let error = rails(&[("paystack-secret-key", "sk_test_\nabcdef")]).unwrap_err();
    let printed = format!("{flags:?} {error:?}");
    for secret in [
        SUBSCRIPTION_KEY,
        API_KEY,
        SECRET_KEY,
        CALLBACK_TOKEN,
        "abcdef",
    ] {
        assert!(!printed.contains(secret), "{printed}");
    }
}

#[tokio::test]
async fn calls_and_reasons_that_nobody_knows_are_counted() {
    chassis::metrics::render();
    let network = FakeServer::start(|_| {
        json(
            200,
            r#"{"data":{"status":"failed","message":"Mercury is in retrograde"}}"#,
        )
    })
    .await;
    let rail = rail(&network, Provider::At, &[]);
    let answer = rail.request_payment(&payment(Provider::At)).await;
    assert_eq!(answer.outcome, refused(FailureReason::RailError));
    let metrics = chassis::metrics::render();
    for line in [
        r#"rail_unmapped_text_total{rail="paystack"}"#,
        r#"rail_calls_total{rail="paystack",call="request_payment",outcome="refused"}"#,
        r#"rail_call_seconds_count{rail="paystack",call="request_payment"}"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}
