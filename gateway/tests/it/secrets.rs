//! What must never be logged or answered: keys, OTPs, whole phone numbers.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
};

use proto::charges::{ChargeAnswer, ChargeStatus};
use tonic::{Code, Status};
use tracing_subscriber::EnvFilter;

use crate::{
    gateway::{CHARGE, Gateway, NOBODY, SUBMIT_OTP},
    services::{REFERENCE, charge, money},
};

/// Everything that this process has logged since the first `capture`.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn capture() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Self::default();
            let writer = log.clone();
            tracing_subscriber::fmt()
                .with_env_filter(EnvFilter::new(
                    "gateway=trace,chassis=trace,tonic=trace,axum=trace",
                ))
                .with_ansi(false)
                .with_writer(move || writer.clone())
                .init();
            log
        });
        log.clone()
    }

    fn text(&self) -> String {
        let bytes = self.0.lock().expect("no test panics with it");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .expect("no test panics with it")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_key_no_otp_and_no_phone_number_is_logged_or_answered() {
    const OTP: &str = "CANARY-7431";
    const PHONE: &str = "0249876543";
    let log = Log::capture();
    let gateway = Gateway::start().await;
    let debit = format!(r#"{{"amount":1,"mobile_number":"{PHONE}","provider":"MTN"}}"#);
    let wrong = format!(r#"{{"amount":0,"mobile_number":"{PHONE}9","provider":"{PHONE}"}}"#);
    let submit = format!(r#"{{"reference":"{REFERENCE}","otp":"{OTP}"}}"#);
    let blank = format!(r#"{{"reference":"{REFERENCE}","otp":"{OTP} {OTP}"}}"#);
    let mut answers = vec![
        gateway.charge(&debit).await,
        gateway.charge(&wrong).await,
        gateway.post(SUBMIT_OTP, &blank).send().await,
        gateway.post(SUBMIT_OTP, &submit).send().await,
        gateway.get(&format!("{CHARGE}/{OTP}")).send().await,
        gateway
            .request("GET", &format!("/rails/momo/{OTP}"))
            .send()
            .await,
    ];
    for answer in [
        Err(Status::internal("broken")),
        Err(Status::new(Code::Unavailable, "away")),
        Ok(ChargeAnswer {
            charge: Some(charge(ChargeStatus::Failed, money(100, "GHS"))),
            message: "no".to_owned(),
            replayed: false,
        }),
    ] {
        gateway.services.submit_otp.answers(move |_| answer.clone());
        answers.push(gateway.post(SUBMIT_OTP, &submit).send().await);
    }
    let alone = Gateway::start_with(&["--charges-url", NOBODY, "--merchants-url", NOBODY]).await;
    answers.push(alone.charge(&debit).await);
    let refused = gateway
        .request("POST", CHARGE)
        .key(&format!("{}x", gateway.key.expose()));
    answers.push(refused.json(&debit).send().await);

    let log = log.text();
    assert!(
        log.contains(REFERENCE) || log.contains("answered"),
        "something is logged: {log}"
    );
    for secret in [OTP, &PHONE[1..], gateway.key.expose(), alone.key.expose()] {
        assert!(!log.contains(secret), "{secret} is in the log");
        for answer in &answers {
            assert!(
                !answer.text().contains(secret),
                "{secret} is in {}",
                answer.text()
            );
        }
    }
}
