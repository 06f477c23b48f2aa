//! Bodies that nobody thought of: valid ones with random damage, the same on every run. Each is
//! carried out or refused in the standard form, and exactly what was acknowledged is stored.

use futures::{StreamExt as _, stream};
use proptest::{prelude::*, sample::Index, strategy::ValueTree as _, test_runner::TestRunner};

use super::rows;
use crate::{
    shop::{NO_LIMITS, Shop},
    wire::{CHARGE, INITIATE, Reply, SUBMIT_OTP, Wire},
};

/// Number of requests in a run.
const BODIES: usize = 600;

/// Number of requests at the same time.
const PARALLEL: usize = 8;

/// Pieces that damage inserts.
const PIECES: [&str; 32] = [
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\\",
    "null",
    "true",
    "-",
    "0",
    "9",
    ".",
    "e",
    "e400",
    "1e-29",
    "0.001",
    "\\u0000",
    "\\ud800",
    "\\n",
    "\u{0}",
    "\u{7f}",
    "\u{202e}",
    "é",
    "😀",
    " ",
    "\n",
    "\"amount\":1,",
    "\"currency\":\"USD\",",
    "javascript:",
    "@",
];

/// Bodies that are carried out. The charge's payer has no wallet, so the charge ends at once.
const SEEDS: [(&str, &str); 3] = [
    (
        INITIATE,
        r#"{"amount":25.50,"currency":"GHS","description":"Order 17","redirect_url":"https://example.com/a?b=c","customer_email":"ama@example.com","customer_name":"Ama Mensah","customer_phone":"+233 24 000 0006"}"#,
    ),
    (
        CHARGE,
        r#"{"amount":25.50,"mobile_number":"0240000006","provider":"MTN","currency":"GHS","description":"Order 17","payer_email":"ama@example.com","payer_name":"Ama Mensah"}"#,
    ),
    (
        SUBMIT_OTP,
        r#"{"reference":"TX-0000000000-000000","otp":"123456"}"#,
    ),
];

/// One kind of damage to a body.
#[derive(Clone, Debug)]
enum Damage {
    Change(Index, u8),
    Remove(Index, usize),
    Insert(Index, &'static str),
    Repeat(Index, usize),
    CutOff(Index),
}

impl Damage {
    fn any() -> impl Strategy<Value = Self> {
        let place = any::<Index>;
        prop_oneof![
            3 => (place(), any::<u8>()).prop_map(|(at, byte)| Self::Change(at, byte)),
            3 => (place(), 1..12_usize).prop_map(|(at, length)| Self::Remove(at, length)),
            6 => (place(), prop::sample::select(&PIECES[..]))
                .prop_map(|(at, piece)| Self::Insert(at, piece)),
            2 => (place(), 1..40_usize).prop_map(|(at, length)| Self::Repeat(at, length)),
            1 => place().prop_map(Self::CutOff),
        ]
    }

    fn hurt(&self, body: &mut Vec<u8>) {
        if body.is_empty() {
            return;
        }
        let until = |at: usize, length: usize| (at + length).min(body.len());
        match self {
            Self::Change(at, byte) => {
                let at = at.index(body.len());
                body[at] = *byte;
            }
            Self::Remove(at, length) => {
                let at = at.index(body.len());
                body.drain(at..until(at, *length));
            }
            Self::Insert(at, piece) => {
                let at = at.index(body.len());
                body.splice(at..at, piece.bytes());
            }
            Self::Repeat(at, length) => {
                let at = at.index(body.len());
                let again = body[at..until(at, *length)].to_vec();
                body.splice(at..at, again);
            }
            Self::CutOff(at) => body.truncate(at.index(body.len())),
        }
    }
}

/// Every damaged body with its path.
fn bodies() -> Vec<(&'static str, Vec<u8>)> {
    let mut runner = TestRunner::deterministic();
    let damages = prop::collection::vec(Damage::any(), 1..4);
    let seeds = SEEDS.into_iter().cycle().take(BODIES);
    let damaged = seeds.map(|(path, seed)| {
        let mut body = seed.as_bytes().to_vec();
        let damages = damages.new_tree(&mut runner).unwrap().current();
        damages.iter().for_each(|damage| damage.hurt(&mut body));
        (path, body)
    });
    damaged.collect()
}

/// Checks the reply. Returns whether the request was carried out.
fn check(path: &str, body: &[u8], reply: &Reply) -> bool {
    let shown = || format!("{path} {:?}: {reply:?}", String::from_utf8_lossy(body));
    match (path, reply.status) {
        (INITIATE, 201) => assert!(reply.field("session_id").len() == 36, "{}", shown()),
        (CHARGE, 202 | 422) => assert!(reply.field("reference").starts_with("TX-")),
        (_, 400) | (SUBMIT_OTP, 404) => {
            reply.assert_form_of_error();
            return false;
        }
        _ => panic!("{}", shown()),
    }
    true
}

#[tokio::test]
async fn whatever_a_body_says_nothing_breaks_and_nothing_is_half_written() {
    let shop = Shop::open_with(NO_LIMITS).await;
    let wire = Wire::of(&shop);
    let (mut sessions, mut charges, mut refused) = (0, 0, 0);
    let replies = stream::iter(bodies()).map(|(path, body)| {
        let wire = wire.clone();
        async move {
            let reply = wire.post(path, &body).await;
            (path, body, reply)
        }
    });
    let mut replies = replies.buffer_unordered(PARALLEL);
    while let Some((path, body, reply)) = replies.next().await {
        match (check(path, &body, &reply), path) {
            (true, INITIATE) => sessions += 1,
            (true, _) => charges += 1,
            (false, _) => refused += 1,
        }
    }
    let kept = rows(&shop).await;
    assert_eq!((kept[0], kept[4]), (charges, sessions + charges));
    assert!(sessions > 10 && charges > 10 && refused > 200);
    shop.close().await;
}
