//! What the edge does when a service, or the connection to it, fails.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use chassis::{
    shutdown::{Shutdown, Tasks},
    testing::listen,
};
use proto::charges::{ChargeAnswer, ChargeStatus};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    sync::{Notify, watch},
    time::Instant,
};
use tonic::{Code, Status};

use crate::{
    gateway::{CHARGE, Gateway, NOBODY, SUBMIT_OTP},
    http::Answer,
    services::{REFERENCE, SESSION_ID, charge, money, refusal},
};

const DEBIT: &str = r#"{"amount":25.50,"mobile_number":"0241234567","provider":"MTN"}"#;

fn initiated() -> ChargeAnswer {
    ChargeAnswer {
        charge: Some(charge(ChargeStatus::Initiated, money(2550, "GHS"))),
        message: "Approve the payment on your phone.".to_owned(),
        replayed: true,
    }
}

/// A wire that can be cut: whatever is in transit then is lost, and later connections pass.
struct Wire {
    address: SocketAddr,
    cuts: watch::Sender<()>,
    stop: Shutdown,
}

impl Wire {
    /// A wire to the address in `far`, which must be known once something connects.
    async fn lay(far: watch::Receiver<Option<SocketAddr>>) -> Self {
        let listener = listen().await;
        let address = listener.local_addr().expect("a bound address");
        let cuts = watch::Sender::new(());
        let stop = Shutdown::new();
        let tasks = Tasks::new();
        let (cut, ends, each) = (cuts.clone(), stop.clone(), tasks.clone());
        tasks.spawn(async move {
            while let Some(Ok((near, _))) = tokio::select! {
                accepted = listener.accept() => Some(accepted),
                () = ends.wait() => None,
            } {
                let (mut cut, far) = (cut.subscribe(), far.borrow().expect("a far end"));
                each.spawn(async move {
                    let mut near = near;
                    let Ok(mut far) = TcpStream::connect(far).await else {
                        return;
                    };
                    tokio::select! {
                        copied = tokio::io::copy_bidirectional(&mut near, &mut far) => drop(copied),
                        cut = cut.changed() => drop(cut),
                    }
                });
            }
        });
        Self {
            address,
            cuts,
            stop,
        }
    }

    fn cut(&self) {
        self.cuts.send_replace(());
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

/// A gateway whose calls to charges-svc run through a [`Wire`].
async fn wired() -> (Gateway, Wire) {
    let far = watch::Sender::new(None);
    let wire = Wire::lay(far.subscribe()).await;
    let url = format!("http://{}", wire.address);
    let gateway = Gateway::start_with(&["--charges-url", &url]).await;
    far.send_replace(Some(gateway.behind.address));
    (gateway, wire)
}

/// For the service's side: a signal that a call has arrived, and a count of calls.
fn arrivals() -> (Arc<Notify>, Arc<AtomicUsize>) {
    (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)))
}

#[tokio::test]
async fn a_charge_whose_answer_was_lost_is_asked_again_under_the_same_key() {
    let (gateway, wire) = wired().await;
    let (arrived, calls) = arrivals();
    let (tell, count) = (arrived.clone(), calls.clone());
    gateway.services.create_charge.answers_late(move |_| {
        let (tell, call) = (tell.clone(), count.fetch_add(1, Ordering::SeqCst));
        async move {
            match call {
                0 => {
                    tell.notify_one();
                    std::future::pending().await
                }
                // The first call is still running there, but that must not reach the caller.
                1..=4 => Err(refusal(Code::Aborted, "IDEMPOTENCY_IN_PROGRESS")),
                _ => Ok(initiated()),
            }
        }
    });
    let cutting = async {
        arrived.notified().await;
        wire.cut();
    };
    let (answer, ()) = tokio::join!(gateway.charge(DEBIT), cutting);
    assert_eq!(answer.status, 202);
    assert_eq!(
        answer.header("idempotent-replayed"),
        None,
        "the caller asked once"
    );
    let asked = gateway.services.create_charge.asked();
    assert_eq!(asked.len(), 6);
    assert!(
        asked.iter().all(|request| *request == asked[0]),
        "byte for byte the same"
    );
}

/// Debits once. The first answer is lost on the way back, and `later` gives all others. Returns the
/// answer to the debit, and how often charges-svc was called.
async fn charge_and_lose_the_first_answer(
    later: impl Fn(usize) -> Result<ChargeAnswer, Status> + Send + Sync + 'static,
) -> (Answer, usize) {
    let (gateway, wire) = wired().await;
    let (arrived, calls) = arrivals();
    let (tell, later) = (arrived.clone(), Arc::new(later));
    gateway.services.create_charge.answers_late(move |_| {
        let (tell, call) = (tell.clone(), calls.fetch_add(1, Ordering::SeqCst));
        let later = later.clone();
        async move {
            if call == 0 {
                tell.notify_one();
                std::future::pending::<()>().await;
            }
            later(call)
        }
    });
    let cutting = async {
        arrived.notified().await;
        wire.cut();
    };
    let (answer, ()) = tokio::join!(gateway.charge(DEBIT), cutting);
    let asked = gateway.services.create_charge.asked().len();
    (answer, asked)
}

/// "Nothing was started" is then only about the second attempt: the first may have charged.
#[tokio::test]
async fn after_a_lost_answer_a_refusal_that_started_nothing_is_not_the_answer() {
    for refused in [
        refusal(Code::Unavailable, "NOTHING_STARTED"),
        refusal(Code::Unavailable, "OUTCOME_UNKNOWN"),
        Status::resource_exhausted("full"),
    ] {
        let (answer, asked) = charge_and_lose_the_first_answer(move |call| match call {
            1..=2 => Err(refused.clone()),
            _ => Ok(initiated()),
        })
        .await;
        assert_eq!((answer.status, asked), (202, 4), "{}", answer.text());
    }
}

#[tokio::test]
async fn after_a_lost_answer_nobody_is_told_that_nothing_was_started() {
    let (answer, asked) =
        charge_and_lose_the_first_answer(|_| Err(refusal(Code::Unavailable, "NOTHING_STARTED")))
            .await;
    answer.assert_error(503, "UNAVAILABLE");
    assert_eq!(
        answer.header("retry-after"),
        None,
        "it may have been charged"
    );
    assert!(!answer.text().contains("Nothing"), "{}", answer.text());
    assert!(asked > 2, "asked again while there was time: {asked}");
}

/// Sessions are created by the same rule.
#[tokio::test]
async fn after_a_lost_answer_a_full_service_does_not_say_that_no_session_was_created() {
    let far = watch::Sender::new(None);
    let wire = Wire::lay(far.subscribe()).await;
    let url = format!("http://{}", wire.address);
    let gateway = Gateway::start_with(&["--sessions-url", &url]).await;
    far.send_replace(Some(gateway.behind.address));
    let (arrived, calls) = arrivals();
    let tell = arrived.clone();
    gateway.services.create_session.answers_late(move |_| {
        let (tell, call) = (tell.clone(), calls.fetch_add(1, Ordering::SeqCst));
        async move {
            if call == 0 {
                tell.notify_one();
                std::future::pending::<()>().await;
            }
            Err(Status::resource_exhausted("full"))
        }
    });
    let cutting = async {
        arrived.notified().await;
        wire.cut();
    };
    let (answer, ()) = tokio::join!(gateway.initiate(r#"{"amount":1}"#), cutting);
    answer.assert_error(503, "UNAVAILABLE");
    assert_eq!(answer.header("retry-after"), None);
}

/// Submits a code whose answer is lost on the way back.
async fn submit_otp_and_lose_the_answer(gateway: &Gateway, wire: &Wire) -> Answer {
    let (arrived, _) = arrivals();
    let tell = arrived.clone();
    let before = gateway.services.submit_otp.asked().len();
    gateway.services.submit_otp.answers_late(move |_| {
        tell.notify_one();
        std::future::pending()
    });
    let cutting = async {
        arrived.notified().await;
        wire.cut();
    };
    let body = format!(r#"{{"reference":"{REFERENCE}","otp":"123456"}}"#);
    let (answer, ()) = tokio::join!(gateway.post(SUBMIT_OTP, body).send(), cutting);
    let submitted = gateway.services.submit_otp.asked().len() - before;
    assert_eq!(submitted, 1, "never submitted again");
    answer
}

#[tokio::test]
async fn an_otp_whose_answer_was_lost_is_answered_from_the_record() {
    let (gateway, wire) = wired().await;
    for (status, code) in [
        (ChargeStatus::Initiated, 202),
        (ChargeStatus::Settled, 202),
        (ChargeStatus::OtpRequired, 202),
        (ChargeStatus::Failed, 422),
    ] {
        let known = charge(status, money(2550, "GHS"));
        gateway
            .services
            .get_charge
            .answers(move |_| Ok(known.clone()));
        let answer = submit_otp_and_lose_the_answer(&gateway, &wire).await;
        assert_eq!(answer.status, code, "{status:?}");
    }
}

#[tokio::test]
async fn an_otp_whose_answer_and_record_are_lost_is_no_invitation_to_try_again() {
    let (gateway, wire) = wired().await;
    let answer = submit_otp_and_lose_the_answer(&gateway, &wire).await;
    answer.assert_error(503, "UNAVAILABLE");
    let retry_after = answer.header("retry-after");
    assert_eq!(retry_after, None, "it may have been submitted");
}

#[tokio::test]
async fn a_read_whose_answer_was_lost_is_asked_again() {
    let (gateway, wire) = wired().await;
    let (arrived, calls) = arrivals();
    let (tell, count) = (arrived.clone(), calls.clone());
    gateway.services.get_charge.answers_late(move |_| {
        let (tell, call) = (tell.clone(), count.fetch_add(1, Ordering::SeqCst));
        async move {
            if call == 0 {
                tell.notify_one();
                std::future::pending::<()>().await;
            }
            Ok(charge(ChargeStatus::Settled, money(2550, "GHS")))
        }
    });
    let cutting = async {
        arrived.notified().await;
        wire.cut();
    };
    let path = format!("{CHARGE}/{REFERENCE}");
    let (answer, ()) = tokio::join!(gateway.get(&path).send(), cutting);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["status"], "SETTLED");
}

/// A service that accepts connections, closes each in good order before it processes any call, and
/// counts them.
async fn leaving_service(tasks: &Tasks, stop: &Shutdown) -> (String, Arc<AtomicUsize>) {
    // SETTINGS, and a GOAWAY without an error whose last stream is 0 (RFC 9113 §6.8).
    const LAST_WORDS: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let listener = listen().await;
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let taken = Arc::new(AtomicUsize::new(0));
    let (count, stop) = (taken.clone(), stop.clone());
    tasks.spawn(async move {
        while let Some(Ok((mut caller, _))) = tokio::select! {
            accepted = listener.accept() => Some(accepted),
            () = stop.wait() => None,
        } {
            count.fetch_add(1, Ordering::SeqCst);
            let told = caller.write_all(LAST_WORDS).await;
            // Reads the caller's bytes to their end, so that the caller can read the last words.
            if told.is_ok() && caller.shutdown().await.is_ok() {
                drop(tokio::io::copy(&mut caller, &mut tokio::io::sink()).await);
            }
        }
    });
    (url, taken)
}

/// Each send takes a connection of its own, and so does each opening of the stream over which the
/// gateway hears of changes: at most four a second.
#[tokio::test]
async fn a_call_that_nobody_processes_is_sent_five_times_in_all() {
    let (tasks, stop) = (Tasks::new(), Shutdown::new());
    let (url, taken) = leaving_service(&tasks, &stop).await;
    let gateway = Gateway::start_with(&["--charges-url", &url]).await;
    let otp = format!(r#"{{"reference":"{REFERENCE}","otp":"123456"}}"#);
    let path = format!("{CHARGE}/{REFERENCE}");
    for request in [
        gateway.post(CHARGE, DEBIT),
        gateway.post(SUBMIT_OTP, otp),
        gateway.get(&path),
    ] {
        let (before, begun) = (taken.load(Ordering::SeqCst), Instant::now());
        let answer = request.send().await;
        answer.assert_error(503, "UNAVAILABLE");
        assert_eq!(answer.header("retry-after"), Some("1"));
        let quarters = begun.elapsed().as_millis() / 250;
        let openings = usize::try_from(quarters).unwrap() + 1;
        let sends = taken.load(Ordering::SeqCst) - before;
        assert!((1..=5 + openings).contains(&sends), "{sends} sends");
    }
    stop.begin();
    tasks.drain(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_started() {
    let flags = ["--charges-url", NOBODY, "--sessions-url", NOBODY];
    let gateway = Gateway::start_with(&flags).await;
    let otp = format!(r#"{{"reference":"{REFERENCE}","otp":"123456"}}"#);
    let answers = [
        gateway.charge(DEBIT).await,
        gateway.initiate(r#"{"amount":1}"#).await,
        gateway.post(SUBMIT_OTP, otp).send().await,
        gateway.get(&format!("{CHARGE}/{REFERENCE}")).send().await,
        gateway
            .get(&format!("/api/v1/payments/{SESSION_ID}/status"))
            .send()
            .await,
    ];
    for answer in answers {
        answer.assert_error(503, "UNAVAILABLE");
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert!(
            answer.header("ratelimit").is_some(),
            "all authenticated answers carry it"
        );
    }
}

#[tokio::test]
async fn a_session_that_is_not_answered_in_time_may_have_been_created() {
    let gateway = Gateway::start().await;
    gateway
        .services
        .create_session
        .answers_late(|_| std::future::pending());
    let answer = gateway.initiate(r#"{"amount":1}"#).await;
    answer.assert_error(503, "UNAVAILABLE");
    assert_eq!(answer.header("retry-after"), None);
    assert_eq!(
        gateway.services.create_session.asked().len(),
        1,
        "late is not asked again"
    );
}

#[tokio::test]
async fn a_service_that_refuses_for_want_of_room_has_started_nothing() {
    let gateway = Gateway::start().await;
    gateway
        .services
        .create_charge
        .answers(|_| Err(Status::resource_exhausted("full")));
    let answer = gateway.charge(DEBIT).await;
    answer.assert_error(503, "UNAVAILABLE");
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn a_process_that_stops_answers_what_it_has_begun() {
    let gateway = Gateway::start().await;
    let (arrived, _) = arrivals();
    let release = Arc::new(Notify::new());
    let (tell, wait) = (arrived.clone(), release.clone());
    gateway.services.create_charge.answers_late(move |_| {
        let (tell, wait) = (tell.clone(), wait.clone());
        async move {
            tell.notify_one();
            wait.notified().await;
            Ok(initiated())
        }
    });
    let stopping = async {
        arrived.notified().await;
        gateway.stop();
        release.notify_one();
    };
    let (answer, ()) = tokio::join!(gateway.charge(DEBIT), stopping);
    assert_eq!(answer.status, 202);
}
