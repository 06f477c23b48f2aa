//! How mails leave: each at least once, and nobody's secrets with them.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use chassis::testing::{gauged_seconds, until};
use proto::merchants::{BeginTotpRequest, confirm_request::Proof};
use tracing_subscriber::EnvFilter;

use crate::{
    browser::{Browser, MINUTE, OTHER_PASSWORD, PASSWORD},
    mail_server::Manner,
};

const AMA: &str = "ama@example.com";
const WAITING: &str = "select count(*) from mails";

#[tokio::test]
async fn mails_wait_for_the_server_and_are_then_sent_once() {
    let mut browser = Browser::start().await;
    browser.mail.behave(Manner::Refuses);
    browser.sign_up(AMA).await;
    browser.wait(60 * MINUTE).await;
    assert_eq!(browser.count(WAITING).await, 1);
    assert!(browser.mail.arrived(AMA).is_empty());
    browser.mail.behave(Manner::Takes);
    browser.wait(10 * MINUTE).await;
    let mail = browser.mail.newest(AMA, 1).await;
    assert_eq!(mail.header("Auto-Submitted"), "auto-generated");
    assert_eq!(browser.count(WAITING).await, 0);
    browser.wait(60 * MINUTE).await;
    let link = browser.mail.newest(AMA, 1).await.token("verify-email");
    browser.verify_email(&link).await.unwrap();
}

#[tokio::test]
async fn operators_see_how_long_a_mail_has_waited() {
    // Gauges are kept from the first rendering on.
    chassis::metrics::render();
    let mut browser = Browser::start().await;
    let waited = async |browser: &Browser| {
        let metrics = browser.service.ask_admin("/metrics").await;
        gauged_seconds(&metrics, "mails_oldest_seconds").map(Duration::from_secs)
    };
    let nothing_waits = async |browser: &Browser| {
        until("nothing waits", async || {
            waited(browser).await == Some(Duration::ZERO)
        })
        .await;
    };
    nothing_waits(&browser).await;
    browser.mail.behave(Manner::Refuses);
    browser.sign_up(AMA).await;
    browser.wait(200 * MINUTE).await;
    // Other tests of this process share its metrics, and let mails wait for other times.
    until("its age is shown", async || {
        let age = waited(&browser).await;
        age.is_some_and(|age| age >= 199 * MINUTE && age < 202 * MINUTE)
    })
    .await;
    browser.mail.behave(Manner::Takes);
    browser.wait(10 * MINUTE).await;
    browser.mail.newest(AMA, 1).await;
    browser.wait(MINUTE).await;
    nothing_waits(&browser).await;
}

#[tokio::test]
async fn a_crash_loses_no_mail() {
    let mut browser = Browser::start().await;
    browser.mail.behave(Manner::Stalls);
    browser.sign_up(AMA).await;
    browser.mail.newest(AMA, 1).await;
    // The server has it, and the service does not know.
    browser.mail.behave(Manner::Takes);
    let mut browser = browser.crash().await;
    let again = browser.mail.newest(AMA, 2).await;
    let before = browser.mail.arrived(AMA).remove(0);
    let id = again.header("Message-ID");
    assert!(!id.is_empty());
    assert_eq!(id, before.header("Message-ID"), "mailboxes see one mail");
    until("it is recorded", async || browser.count(WAITING).await == 0).await;
    for mail in [before, again] {
        let link = mail.token("verify-email");
        browser.verify_email(&link).await.unwrap();
    }
}

#[tokio::test]
async fn a_mail_that_cannot_be_sent_for_a_day_is_given_up() {
    let mut browser = Browser::start().await;
    browser.mail.behave(Manner::Refuses);
    browser.sign_up(AMA).await;
    browser.wait(Duration::from_secs(23 * 3_600)).await;
    assert_eq!(browser.count(WAITING).await, 1);
    browser.wait(Duration::from_secs(2 * 3_600)).await;
    assert_eq!(browser.count(WAITING).await, 0);
    browser.mail.behave(Manner::Takes);
    browser.wait(MINUTE).await;
    assert!(browser.mail.arrived(AMA).is_empty());
}

/// Everything that this process logs from now on.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn capture() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Self::default();
            let writer = log.clone();
            tracing_subscriber::fmt()
                .with_env_filter(EnvFilter::new("trace"))
                .with_ansi(false)
                .with_writer(move || writer.clone())
                .init();
            log
        });
        log.clone()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_secret_and_no_address_is_logged_or_stored() {
    const CANARY: &str = "canary-4711@example.com";
    let log = Log::capture();
    let mut browser = Browser::start().await;
    browser.mail.behave(Manner::Refuses);
    browser.sign_up(CANARY).await;
    browser.wait(MINUTE).await;
    browser.mail.behave(Manner::Takes);
    browser.wait(10 * MINUTE).await;
    let verify = browser.mail.newest(CANARY, 1).await.token("verify-email");
    browser.verify_email(&verify).await.unwrap();
    browser
        .try_log_in(CANARY, OTHER_PASSWORD)
        .await
        .unwrap_err();
    let login = browser.log_in(CANARY).await;
    let person_id = browser.person_id(&login).await;
    let begin = BeginTotpRequest { person_id };
    let totp = browser.people.begin_totp(begin).await.unwrap();
    let proof = Proof::Code("918273".to_owned());
    browser.confirm(&login, proof).await.unwrap_err();
    browser.ask_reset(CANARY).await.unwrap();
    let reset = browser.mail.newest(CANARY, 2).await.token("reset");
    browser.reset(&reset, OTHER_PASSWORD).await.unwrap();
    let secret = totp.into_inner().secret;

    let told = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(told.contains("password reset"), "nothing was captured");
    let secrets = [
        PASSWORD,
        OTHER_PASSWORD,
        &verify,
        &login,
        &reset,
        &secret,
        "918273",
        "canary-4711",
        "$argon2id$",
    ];
    for word in secrets {
        assert!(!told.contains(word), "{word} was logged");
    }
    if !browser.db.is_postgres() {
        let file = browser.database.url.trim_start_matches("sqlite://");
        let stored = std::fs::read(file).unwrap();
        let stored = String::from_utf8_lossy(&stored);
        for word in [PASSWORD, &verify, &login, &reset, &secret] {
            assert!(!stored.contains(word), "{word} was stored");
        }
    }
}
