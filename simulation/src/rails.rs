//! The mobile-money networks, behaving in every way they really may, and the only true books of
//! what they debited and credited.
//!
//! `life` draws what becomes of a payment, and of each call about it, by seed, phone and count;
//! `book` holds what is true. `credits` does both for transfers. Here they meet the wire.
//!
//! Promise: a request whose connection has ended is never accepted later, a reference is accepted
//! twice by Hubtel alone, which does not say that it refuses one, what is documented as a refusal
//! never becomes a debit or a credit, and no rail pays out more than its float holds.

mod book;
mod calls;
mod credentials;
mod credits;
mod hubtel;
mod life;
mod momo;
mod payment;
mod paystack;
#[cfg(test)]
mod tests;
mod transfer;
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
    credentials::RailCredentials,
    payment::{Asker, Debit, Payment, Rail, RailMessage, Word},
    transfer::{Credit, Float, Transfer},
};
use self::{
    book::{Book, DebitRequest, Key, View},
    credits::{CreditRequest, Credits},
    life::{EffectTime, Fare, Odd, Outage},
};
use crate::time::{Millis, Time};

/// All rails. Clones are the same ones.
#[derive(Clone)]
pub struct Rails(Arc<Shared>);

struct Shared {
    seed: u64,
    time: Time,
    settings: RailCredentials,
    momo: SocketAddr,
    paystack: SocketAddr,
    hubtel: SocketAddr,
    book: Mutex<Book>,
    credits: Mutex<Credits>,
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
    /// Serves all rails on loopback, for as long as the runtime lives.
    ///
    /// # Errors
    /// No address to listen on, or no client to call back with.
    pub async fn start(seed: u64, time: Time, settings: RailCredentials) -> anyhow::Result<Self> {
        let momo = TcpListener::bind("127.0.0.1:0").await?;
        let paystack = TcpListener::bind("127.0.0.1:0").await?;
        let hubtel = TcpListener::bind("127.0.0.1:0").await?;
        let outages = Rail::ALL.map(|rail| {
            let outages = Outage::draw(seed, rail).into_iter();
            outages.map(move |outage| (rail, outage))
        });
        let rails = Self(Arc::new(Shared {
            seed,
            time,
            settings,
            momo: momo.local_addr()?,
            paystack: paystack.local_addr()?,
            hubtel: hubtel.local_addr()?,
            book: Mutex::new(Book::new(seed)),
            credits: Mutex::new(Credits::new(seed)),
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
        tasks.spawn(serve(hubtel, hubtel::routes(rails.clone())));
        tasks.spawn(calls.keep_agenda());
        Ok(rails)
    }

    pub fn momo(&self) -> SocketAddr {
        self.0.momo
    }

    pub fn paystack(&self) -> SocketAddr {
        self.0.paystack
    }

    pub fn hubtel(&self) -> SocketAddr {
        self.0.hubtel
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
        self.credits_mut().remember();
    }

    /// Whether no payment will change any more unless somebody asks for something.
    pub fn is_settled(&self) -> bool {
        let nothing_planned = self.book_mut().next_due().is_none();
        nothing_planned && self.0.open.load(Ordering::SeqCst) == 0
    }

    /// All payments that the rails heard of, in order.
    pub fn book(&self) -> Vec<Payment> {
        self.book_mut().payments()
    }

    /// All transfers that the rails heard of, in order.
    pub fn transfers(&self) -> Vec<Transfer> {
        self.credits_mut().transfers()
    }

    /// Whether a transfer may still change by itself.
    pub fn may_change(&self, transfer: &Transfer) -> bool {
        let key = (transfer.rail, transfer.reference.clone());
        self.credits_mut().may_change(&key)
    }

    pub fn float(&self, rail: Rail) -> Float {
        self.credits_mut().float(rail)
    }

    /// Treasury pays into a rail's float.
    pub fn fill(&self, rail: Rail, amount_minor: i64) {
        self.credits_mut().fill(rail, amount_minor);
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

    fn credits_mut(&self) -> MutexGuard<'_, Credits> {
        let credits = self.0.credits.lock();
        credits.unwrap_or_else(PoisonError::into_inner)
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
        let (said, reply) = self.answer(Asker::Request, fare, taken);
        self.book_mut().say(&key, said);
        reply
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
        let (said, reply) = self.answer(Asker::Otp, fare, taken);
        self.book_mut().say(&key, said);
        reply
    }

    /// `checks`: as [`Book::look`].
    async fn query(&self, key: Key, checks: bool) -> RailReply {
        let _open = OpenCall::of(self);
        let (choices, fare) = self.book_mut().query_arrives(&key);
        let look = || self.book_mut().look(&key, checks, choices, self.now());
        let fare = self.fare(key.0, fare);
        let seen = self.travel(fare, look).await;
        let (said, reply) = self.answer(Asker::Query, fare, seen);
        self.book_mut().say(&key, said);
        reply
    }

    async fn transfer(&self, asked: CreditRequest) -> RailReply {
        let _open = OpenCall::of(self);
        let (mut life, fare) = self.credits_mut().arrive(&asked, self.now());
        if self.is_calm() {
            life.unseen = 0;
            life.forgotten = 0;
        }
        let key = asked.key();
        let take = || {
            let taken = self.credits_mut().take(&asked, life, self.now());
            self.0.planned.notify_one();
            taken
        };
        let fare = self.fare(key.0, fare);
        let taken = self.travel(fare, take).await;
        let (said, reply) = self.answer(Asker::Request, fare, taken);
        self.credits_mut().say(&key, said);
        reply
    }

    async fn query_transfer(&self, key: Key) -> RailReply {
        let _open = OpenCall::of(self);
        let mut choices = self
            .credits_mut()
            .draw(&format!("looks at {}", key.0.name()));
        let fare = self.fare(key.0, Fare::of_query(&mut choices));
        let look = || self.credits_mut().look(&key, choices, self.now());
        let seen = self.travel(fare, look).await;
        let (said, reply) = self.answer(Asker::Query, fare, seen);
        self.credits_mut().say(&key, said);
        reply
    }

    /// Answers a call that moves no money.
    async fn tell<T>(&self, rail: Rail, kind: &str, tell: impl FnOnce() -> T) -> Result<T, Odd> {
        let _open = OpenCall::of(self);
        let drawn = self.credits_mut().draw(&format!("{kind} {}", rail.name()));
        let fare = self.fare(rail, Fare::of_query(&mut drawn.clone()));
        match (self.travel(fare, tell).await, fare.odd) {
            (Some(told), None) => Ok(told),
            (_, odd) => Err(odd.unwrap_or(Odd::Cut)),
        }
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

    /// The reply to a call, and what the book keeps of it.
    fn answer(
        &self,
        to: Asker,
        fare: Fare,
        found: Option<(Word, View)>,
    ) -> (RailMessage, RailReply) {
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
        let reply = match (odd, found) {
            (None, Some((word, view))) => RailReply::Says(word, view),
            (odd, _) => RailReply::Odd(odd.unwrap_or(Odd::Cut)),
        };
        (said, reply)
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
