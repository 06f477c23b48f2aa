//! What the rails do by themselves: move payments on and call the gateway back.

use std::time::Duration;

use futures::{StreamExt as _, stream::FuturesUnordered};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{Method, header::CONTENT_TYPE};
use reqwest::{Client, RequestBuilder};
use sha2::Sha512;

use super::{
    Asker, OpenCall, Rail, RailMessage, Rails, Word,
    book::{Call, Key, View},
    hubtel,
    life::Stray,
    momo, paystack,
};
use crate::time::{Millis, SECOND};

/// How long a rail waits for its callback to be acknowledged.
const CALL_MAX: Millis = 30 * SECOND;

/// A reference that belongs to no payment.
const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";

/// What a callback is about.
#[derive(Clone, Copy)]
enum Called {
    Payment(Call),
    Transfer,
}

/// Keeps the agenda of all rails.
pub struct Calls {
    rails: Rails,
    client: Client,
}

impl Calls {
    /// # Errors
    /// No client can be made.
    pub fn new(rails: Rails) -> anyhow::Result<Self> {
        // Simulated time ends calls. This only ends what the simulation has left behind.
        let real_max = Duration::from_secs(60);
        let client = chassis::http::client_builder(real_max)
            .pool_max_idle_per_host(0)
            .build()?;
        Ok(Self { rails, client })
    }

    /// Does everything when it is due, for ever.
    pub async fn keep_agenda(self) {
        let shared = &self.rails.0;
        let mut calling = FuturesUnordered::new();
        loop {
            // Held from before a call leaves the agenda until it is in progress.
            let open = OpenCall::of(&self.rails);
            let due = {
                let now = shared.time.now();
                let mut book = self.rails.book_mut();
                for (key, call) in book.pass(now) {
                    calling.push(self.call(OpenCall::of(&self.rails), key, Called::Payment(call)));
                }
                let mut credits = self.rails.credits_mut();
                for key in credits.pass(now) {
                    calling.push(self.call(OpenCall::of(&self.rails), key, Called::Transfer));
                }
                let due = [book.next_due(), credits.next_due()];
                due.into_iter().flatten().min()
            };
            drop(open);
            let next = async {
                match due {
                    Some(due) => shared.time.sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shared.planned.notified() => {}
                () = next => {}
                Some(()) = calling.next() => {}
            }
        }
    }

    async fn call(&self, _open: OpenCall<'_>, key: Key, about: Called) {
        let said = match about {
            Called::Payment(call) => self.rails.book_mut().call(&key, call),
            Called::Transfer => Some(self.rails.credits_mut().call(&key)),
        };
        let Some((word, view)) = said else {
            return;
        };
        let base = self.rails.callback_base().clone();
        let Some(request) = base.and_then(|base| self.request(&base, key.0, about, (word, view)))
        else {
            return;
        };
        let at = self.rails.now();
        let answered = tokio::select! {
            answered = request.send() => answered.is_ok_and(|answer| answer.status().is_success()),
            () = self.rails.0.time.sleep(CALL_MAX) => false,
        };
        let said = RailMessage {
            at,
            to: Asker::Callback,
            what: word,
            delivered: answered,
        };
        match about {
            Called::Payment(Call::Real) => self.rails.book_mut().say(&key, said),
            Called::Payment(Call::Stray(_)) => {}
            Called::Transfer => self.rails.credits_mut().say(&key, said),
        }
    }

    /// `None` if the rail knows no address.
    fn request(
        &self,
        base: &str,
        rail: Rail,
        about: Called,
        (word, mut view): (Word, View),
    ) -> Option<RequestBuilder> {
        let stray = match about {
            Called::Payment(Call::Stray(stray)) => Some(stray),
            Called::Payment(Call::Real) | Called::Transfer => None,
        };
        if stray == Some(Stray::UnknownReference) {
            UNKNOWN.clone_into(&mut view.reference);
        }
        let request = match rail {
            Rail::Momo => {
                let path = match stray {
                    None => view.callback.clone()?,
                    Some(_) => "/rails/momo/nobody".to_owned(),
                };
                let method = if view.shape & 1 == 0 {
                    Method::PUT
                } else {
                    Method::POST
                };
                let request = self.client.request(method, format!("{base}{path}"));
                request.body(match about {
                    Called::Payment(_) => momo::callback_body("payer", word, &view),
                    Called::Transfer => momo::callback_body("payee", word, &view),
                })
            }
            Rail::Paystack => {
                let settings = &self.rails.0.settings;
                let token = &settings.paystack_callback_token;
                let body = match about {
                    Called::Payment(_) => paystack::webhook_body(&view),
                    Called::Transfer => paystack::transfers::webhook_body(word, &view),
                };
                let mut signed = Hmac::<Sha512>::new_from_slice(match stray {
                    Some(Stray::BadSignature) => b"somebody else's key",
                    _ => settings.paystack_secret_key.as_bytes(),
                })
                .expect("HMAC takes keys of any length");
                signed.update(body.as_bytes());
                let signature = hex::encode(signed.finalize().into_bytes());
                let request = self.client.post(format!("{base}/rails/paystack/{token}"));
                request.header("x-paystack-signature", signature).body(body)
            }
            Rail::Hubtel => {
                let path = match stray {
                    None => view.callback.clone()?,
                    Some(_) => "/rails/hubtel/nobody".to_owned(),
                };
                let request = self.client.post(format!("{base}{path}"));
                request.body(match about {
                    Called::Payment(_) => hubtel::callback_body(&self.rails, word, &view),
                    Called::Transfer => hubtel::transfers::callback_body(&self.rails, word, &view),
                })
            }
        };
        Some(request.header(CONTENT_TYPE, "application/json"))
    }
}
