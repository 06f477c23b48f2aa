//! The mobile-money networks, behaving in every way they really may, and the only true book of
//! what they debited.
//!
//! `life` draws what becomes of a payment, and of each call about it, by seed, phone and count;
//! `book` holds what is true. Here both meet the wire.
//!
//! Promise: a request whose connection has ended is never accepted later, a reference is never
//! accepted twice, and what rails.md documents as a refusal never becomes a debit.

mod book;
mod calls;
mod life;
mod momo;
mod payment;
mod paystack;
#[cfg(test)]
mod tests;
mod wire;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use axum::Router;
use chassis::shutdown::Tasks;
use tokio::{net::TcpListener, sync::Notify};

pub use self::{
    book::RIGHT_CODE,
    payment::{Asker, Debit, Payment, Rail, RailMessage, Word},
};
use self::{
    book::{Book, DebitRequest, Key, View},
    life::{EffectTime, Fare, Odd, Outage},
};
use crate::time::{Millis, Time};

/// The credentials of our services at the rails.
#[derive(Clone, Debug)]
pub struct RailCredentials {
    pub momo_subscription_key: String,
    pub momo_api_user: String,
    pub momo_api_key: String,
    pub momo_target_environment: String,
    pub paystack_secret_key: String,
    pub paystack_callback_token: String,
}

/// Both rails. Clones are the same ones.
#[derive(Clone)]
pub struct Rails(Arc<Shared>);

struct Shared {
    seed: u64,
    time: Time,
    settings: RailCredentials,
    momo: SocketAddr,
    paystack: SocketAddr,
    book: Mutex<Book>,
    /// Something was planned.
    planned: Notify,
    tokens: momo::Tokens,
    outages: Vec<(Rail, Outage)>,
    is_calm: AtomicBool,
    callback_base: Mutex<Option<String>>,
    /// Calls that are being answered or placed.
    open: AtomicU64,
}

/// A call, until it is answered or its client hangs up.
struct OpenCall<'r>(&'r Rails);

impl<'r> OpenCall<'r> {
    fn of(rails: &'r Rails) -> Self {
        rails.0.open.fetch_add(1, Ordering::SeqCst);
        Self(rails)
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The answer to a call.
enum RailReply {
    Says(Word, View),
    Odd(Odd),
}

impl Rails {
    /// Serves both rails on loopback, for as long as the runtime lives.
    ///
    /// # Errors
    /// No address to listen on, or no client to call back with.
    pub async fn start(seed: u64, time: Time, settings: RailCredentials) -> anyhow::Result<Self> {
        let momo = TcpListener::bind("127.0.0.1:0").await?;
        let paystack = TcpListener::bind("127.0.0.1:0").await?;
        let outages = [Rail::Momo, Rail::Paystack].map(|rail| {
            let outages = Outage::draw(seed, rail).into_iter();
            outages.map(move |outage| (rail, outage))
        });
        let rails = Self(Arc::new(Shared {
            seed,
            time,
            settings,
            momo: momo.local_addr()?,
            paystack: paystack.local_addr()?,
            book: Mutex::new(Book::new(seed)),
            planned: Notify::new(),
            tokens: momo::Tokens::default(),
            outages: outages.into_iter().flatten().collect(),
            is_calm: AtomicBool::new(false),
            callback_base: Mutex::new(None),
            open: AtomicU64::new(0),
        }));
        let calls = calls::Calls::new(rails.clone())?;
        let tasks = Tasks::new();
        tasks.spawn(serve(momo, momo::routes(rails.clone())));
        tasks.spawn(serve(paystack, paystack::routes(rails.clone())));
        tasks.spawn(calls.keep_agenda());
        Ok(rails)
    }

    pub fn momo(&self) -> SocketAddr {
        self.0.momo
    }

    pub fn paystack(&self) -> SocketAddr {
        self.0.paystack
    }

    /// Tells the rails where the gateway is: `http://host:port`. Until then they call nobody back.
    pub fn call_back_to(&self, base: String) {
        let mut kept = self.callback_base();
        *kept = Some(base);
    }

    /// From now on every call is answered promptly and properly. What payments will still go
    /// through stays as it was drawn.
    pub fn calm(&self) {
        self.0.is_calm.store(true, Ordering::SeqCst);
        self.book_mut().remember();
    }

    /// Whether nothing will change any more unless somebody asks for something.
    pub fn is_settled(&self) -> bool {
        let nothing_planned = self.book_mut().next_due().is_none();
        nothing_planned && self.0.open.load(Ordering::SeqCst) == 0
    }

    /// All payments that the rails heard of, in order.
    pub fn book(&self) -> Vec<Payment> {
        self.book_mut().payments()
    }

    fn is_calm(&self) -> bool {
        self.0.is_calm.load(Ordering::SeqCst)
    }

    fn now(&self) -> Millis {
        self.0.time.now()
    }

    fn book_mut(&self) -> MutexGuard<'_, Book> {
        // A panic while the lock is held has already ended the run.
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn callback_base(&self) -> MutexGuard<'_, Option<String>> {
        let base = self.0.callback_base.lock();
        base.unwrap_or_else(PoisonError::into_inner)
    }

    async fn request(&self, asked: DebitRequest) -> RailReply {
        let _open = OpenCall::of(self);
        let (mut life, fare) = self.book_mut().arrive(&asked, self.now());
        if self.is_calm() {
            life.unseen = 0;
            life.forgotten = 0;
        }
        let key = asked.key();
        let take = || {
            let taken = self.book_mut().take(&asked, life, self.now());
            self.0.planned.notify_one();
            taken
        };
        let fare = self.fare(key.0, fare);
        let taken = self.travel(fare, take).await;
        self.answer(&key, Asker::Request, fare, taken)
    }

    async fn submit_code(&self, reference: String, code: String) -> RailReply {
        let _open = OpenCall::of(self);
        let key = (Rail::Paystack, reference);
        let fare = self.book_mut().code_arrives(&key);
        let take = || {
            let taken = self.book_mut().submit_code(&key, &code, self.now());
            self.0.planned.notify_one();
            taken
        };
        let fare = self.fare(key.0, fare);
        let taken = self.travel(fare, take).await;
        self.answer(&key, Asker::Otp, fare, taken)
    }

    /// `checks`: as [`Book::look`].
    async fn query(&self, key: Key, checks: bool) -> RailReply {
        let _open = OpenCall::of(self);
        let (choices, fare) = self.book_mut().query_arrives(&key);
        let look = || self.book_mut().look(&key, checks, choices, self.now());
        let fare = self.fare(key.0, fare);
        let seen = self.travel(fare, look).await;
        self.answer(&key, Asker::Query, fare, seen)
    }

    /// How a call fares, given the fare drawn for it and any outage.
    fn fare(&self, rail: Rail, fare: Fare) -> Fare {
        if self.is_calm() {
            return Fare::PROMPT;
        }
        let now = self.now();
        let mut outages = self.0.outages.iter().filter(|(whose, _)| *whose == rail);
        let away = outages.find_map(|(_, outage)| outage.fare_at(now));
        away.unwrap_or(fare)
    }

    /// Waits as long as the fare says, and acts when it says so. If the client hangs up, this is
    /// dropped, and with it whatever has not happened yet.
    async fn travel<T>(&self, fare: Fare, act: impl FnOnce() -> T) -> Option<T> {
        let time = &self.0.time;
        match fare.taken {
            EffectTime::Never => {
                time.sleep(fare.delay).await;
                None
            }
            EffectTime::After(after) => {
                time.sleep(after).await;
                let done = act();
                time.sleep(fare.delay.saturating_sub(after)).await;
                Some(done)
            }
            EffectTime::AtHangUp => {
                let mut pending = AtLast(Some(act));
                time.sleep(fare.delay).await;
                pending.0.take().map(|act| act())
            }
        }
    }

    fn answer(&self, key: &Key, to: Asker, fare: Fare, found: Option<(Word, View)>) -> RailReply {
        let odd = match (fare.odd, &found) {
            (None, None) => Some(Odd::Cut),
            (odd, _) => odd,
        };
        let what = match (&found, odd) {
            (Some((word, _)), None | Some(Odd::Cut)) => *word,
            _ => Word::Nothing,
        };
        let said = RailMessage {
            at: self.now(),
            to,
            what,
            delivered: odd != Some(Odd::Cut),
        };
        self.book_mut().say(key, said);
        match (odd, found) {
            (None, Some((word, view))) => RailReply::Says(word, view),
            (odd, _) => RailReply::Odd(odd.unwrap_or(Odd::Cut)),
        }
    }
}

/// Acts when dropped, unless it already has.
struct AtLast<T, F: FnOnce() -> T>(Option<F>);

impl<T, F: FnOnce() -> T> Drop for AtLast<T, F> {
    fn drop(&mut self) {
        if let Some(act) = self.0.take() {
            act();
        }
    }
}

async fn serve(listener: TcpListener, routes: Router) {
    let ended = axum::serve(listener, routes).await;
    ended.expect("serving ends with the runtime alone");
}
