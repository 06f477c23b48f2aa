//! What happens to one merchant: its events, its payments on their way, its sessions and keys.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use chassis::clock::Timestamp;
use proto::{
    charges::{
        Charge, ChargeStatus, GetChargeTimelineRequest, GetPayoutRequest, GetRefundRequest,
        ListChargesRequest, ListedCharge, TimelineKind, TimelineOutcome,
    },
    merchants::{KycStatus, ListKeysRequest, Merchant},
    sessions::{ListSessionsRequest, Session},
    webhooks::{FeedEvent, ListEventsRequest},
};
use serde::Deserialize;

use super::{
    Doors,
    deliveries::Deliveries,
    line::{Line, Tone},
    movement,
};

/// Most entries of a page of any list.
const PAGE_SIZE: u32 = 100;

/// How many of the newest payments are looked at on their way. The ends of all are events.
const ON_THEIR_WAY_MAX: u32 = 20;

/// A payment that takes longer is told to be waiting.
const WAITS_AFTER: Duration = Duration::from_secs(3);

/// A session may be listed this much later than its time of creation says.
const LISTED_LATE_SECONDS: i64 = 10;

/// A merchant, and what is told of it.
pub struct FollowedMerchant {
    merchant: Merchant,
    /// The number of the last event that was told.
    last_event: u64,
    deliveries: Deliveries,
    /// Of payments on their way, what was told, by reference.
    told: HashMap<String, HashSet<OnItsWay>>,
    /// The newest sessions, with when they were created.
    sessions: BTreeMap<String, Timestamp>,
    /// Each key, and whether it is revoked.
    keys: HashMap<String, bool>,
}

/// Where a payment is that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum OnItsWay {
    WantsCode,
    WaitsForPayer,
    Unknown,
}

impl OnItsWay {
    fn told_on(self, line: Line, handset: &str) -> Line {
        let (status, hint) = match self {
            Self::WantsCode => ("OTP_REQUIRED", "the payer has a code".to_owned()),
            Self::WaitsForPayer => ("INITIATED", format!("waits for the payer: {handset}")),
            Self::Unknown => (
                "OUTCOME UNKNOWN",
                "the network is asked until it tells".to_owned(),
            ),
        };
        line.with(Tone::Waiting, status).with(Tone::Plain, hint)
    }
}

/// What the story needs of an event's body.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    created_at: String,
    data: EventData,
}

#[derive(Deserialize)]
struct EventData {
    tx_id_display: Option<String>,
    session_id: Option<String>,
    payout_id: Option<String>,
    refund_id: Option<String>,
}

impl FollowedMerchant {
    pub fn new(merchant: Merchant) -> Self {
        Self {
            merchant,
            last_event: 0,
            deliveries: Deliveries::default(),
            told: HashMap::new(),
            sessions: BTreeMap::new(),
            keys: HashMap::new(),
        }
    }

    pub fn is(&self, merchant: &Merchant) -> bool {
        self.merchant.merchant_id == merchant.merchant_id
    }

    /// Compares the merchant with what it was.
    pub fn hear_of(&mut self, merchant: Merchant, now: Timestamp) -> Option<Line> {
        let (before, after) = (self.merchant.kyc_status(), merchant.kyc_status());
        self.merchant = merchant;
        let tone = match after {
            KycStatus::Approved => Tone::Good,
            KycStatus::Rejected | KycStatus::Expired => Tone::Bad,
            KycStatus::Unspecified | KycStatus::Pending | KycStatus::InReview => Tone::Waiting,
        };
        let changed = Line::new(now)
            .with(Tone::Plain, format!("merchant \"{}\"", self.merchant.name))
            .with(tone, format!("KYC {}", after.code().unwrap_or("NONE")));
        (before != after).then_some(changed)
    }

    /// Takes everything until now for told.
    pub async fn skip_what_happened(&mut self, doors: &mut Doors) -> anyhow::Result<()> {
        let request = self.events_request(0, 1);
        let events = doors.events.list_events(request).await?.into_inner();
        self.last_event = events.last_sequence;
        let mut before = Vec::new();
        self.find_sessions(doors, &mut before).await?;
        self.find_keys(doors, &mut before).await
    }

    /// Finds what is new.
    pub async fn look(
        &mut self,
        doors: &mut Doors,
        cases: &HashMap<String, String>,
        lines: &mut Vec<Line>,
    ) -> anyhow::Result<()> {
        self.find_keys(doors, lines).await?;
        self.find_sessions(doors, lines).await?;
        self.find_payments_on_their_way(doors, cases, lines).await?;
        self.find_events(doors).await?;
        let merchant_id = &self.merchant.merchant_id;
        self.deliveries.look(merchant_id, doors, lines).await
    }

    fn id(&self) -> String {
        self.merchant.merchant_id.clone()
    }

    async fn find_keys(&mut self, doors: &mut Doors, lines: &mut Vec<Line>) -> anyhow::Result<()> {
        let merchant_id = self.id();
        let listed = doors
            .merchant_operations
            .list_keys(ListKeysRequest { merchant_id });
        for key in listed.await?.into_inner().keys {
            let is_revoked = key.revoked_at.is_some();
            let before = self.keys.insert(key.key_id, is_revoked);
            if before == Some(is_revoked) {
                continue;
            }
            let at = key.revoked_at.as_ref().unwrap_or(&key.created_at);
            let (tone, happened) = match is_revoked {
                true => (Tone::Bad, "REVOKED"),
                false => (Tone::Good, "CREATED"),
            };
            let line = Line::new(doors.time(at))
                .with(Tone::Plain, format!("key \"{}\" …{}", key.label, key.hint))
                .with(tone, happened);
            lines.push(line);
        }
        Ok(())
    }

    async fn find_sessions(
        &mut self,
        doors: &mut Doors,
        lines: &mut Vec<Line>,
    ) -> anyhow::Result<()> {
        let newest = self.sessions.values().max().copied();
        let from = newest.and_then(|newest| {
            let late = newest.unix_millis() - LISTED_LATE_SECONDS * 1_000;
            Timestamp::from_unix_millis(late).ok()
        });
        let mut request = ListSessionsRequest {
            merchant_id: self.id(),
            page_size: PAGE_SIZE,
            from: from.map(|from| from.to_string()).unwrap_or_default(),
            ..ListSessionsRequest::default()
        };
        loop {
            let page = doors.sessions.list_sessions(request.clone()).await?;
            let page = page.into_inner();
            for session in page.sessions {
                let created_at = doors.time(&session.created_at);
                let id = session.session_id.clone();
                if self.sessions.insert(id, created_at).is_none() && is_hosted(&session) {
                    lines.push(opened(doors, &session, created_at));
                }
            }
            // Without a time to begin at, the newest are enough: nothing was told yet.
            if page.next_page_token.is_empty() || request.from.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
        }
        self.sessions
            .retain(|_, created_at| from.is_none_or(|from| *created_at >= from));
        Ok(())
    }

    async fn find_payments_on_their_way(
        &mut self,
        doors: &mut Doors,
        cases: &HashMap<String, String>,
        lines: &mut Vec<Line>,
    ) -> anyhow::Result<()> {
        let request = ListChargesRequest {
            merchant_id: self.id(),
            page_size: ON_THEIR_WAY_MAX,
            ..ListChargesRequest::default()
        };
        let listed = doors.charges.list_charges(request).await?.into_inner();
        let mut references = HashSet::new();
        for ListedCharge {
            charge,
            payer_masked,
        } in listed.charges
        {
            let Some(charge) = charge else {
                continue;
            };
            references.insert(charge.reference.clone());
            let mut with_cases = cases.values();
            if with_cases.any(|reference| *reference == charge.reference) {
                // Its case is told.
                continue;
            }
            let Some(where_it_is) = self.where_it_is(doors, &charge).await? else {
                continue;
            };
            let payment = movement::payment(&charge, &payer_masked);
            let told = self.told.entry(charge.reference).or_default();
            if told.insert(where_it_is) {
                let line = Line::new(doors.clock.now()).with(Tone::Plain, payment);
                lines.push(where_it_is.told_on(line, &doors.handset));
            }
        }
        self.told
            .retain(|reference, _| references.contains(reference));
        Ok(())
    }

    /// Where a payment is that takes long enough to tell.
    async fn where_it_is(
        &self,
        doors: &mut Doors,
        charge: &Charge,
    ) -> anyhow::Result<Option<OnItsWay>> {
        match charge.status() {
            ChargeStatus::Initiated => {}
            ChargeStatus::OtpRequired => return Ok(Some(OnItsWay::WantsCode)),
            ChargeStatus::Unspecified | ChargeStatus::Failed | ChargeStatus::Settled => {
                return Ok(None);
            }
        }
        let request = GetChargeTimelineRequest {
            merchant_id: self.id(),
            reference: charge.reference.clone(),
        };
        let timeline = doors.charges.get_charge_timeline(request).await?;
        let is_unknown = timeline.into_inner().entries.iter().any(|entry| {
            let is_request = matches!(
                entry.kind(),
                TimelineKind::NetworkRequest | TimelineKind::Otp
            );
            is_request && entry.outcome() == TimelineOutcome::Unknown
        });
        if is_unknown {
            return Ok(Some(OnItsWay::Unknown));
        }
        let waits = doors.clock.now().since(doors.time(&charge.created_at));
        Ok((waits > WAITS_AFTER).then_some(OnItsWay::WaitsForPayer))
    }

    /// Has each event's line told with what becomes of its webhook.
    async fn find_events(&mut self, doors: &mut Doors) -> anyhow::Result<()> {
        loop {
            let request = self.events_request(self.last_event, PAGE_SIZE);
            let events = doors.events.list_events(request).await?.into_inner().events;
            if events.is_empty() {
                return Ok(());
            }
            for event in events {
                let sequence = event.sequence;
                self.hear_of_event(doors, event).await?;
                self.last_event = sequence;
            }
        }
    }

    fn events_request(&self, after: u64, page_size: u32) -> ListEventsRequest {
        ListEventsRequest {
            merchant_id: self.id(),
            after,
            page_size,
            wait_seconds: 0,
        }
    }

    async fn hear_of_event(&mut self, doors: &mut Doors, event: FeedEvent) -> anyhow::Result<()> {
        let Event {
            kind,
            created_at,
            data,
        } = serde_json::from_str(&event.body)?;
        let at = doors.time(&created_at);
        let (subject, line) = match data {
            // Before payments: a refund names its payment, too.
            EventData {
                refund_id: Some(refund_id),
                ..
            } => {
                let merchant_id = self.id();
                let request = GetRefundRequest {
                    merchant_id,
                    refund_id: refund_id.clone(),
                };
                let refund = doors.disbursements.get_refund(request).await?.into_inner();
                (refund_id, movement::end_of_refund(doors, &refund))
            }
            EventData {
                payout_id: Some(payout_id),
                ..
            } => {
                let merchant_id = self.id();
                let request = GetPayoutRequest {
                    merchant_id,
                    payout_id: payout_id.clone(),
                };
                let payout = doors.disbursements.get_payout(request).await?.into_inner();
                (payout_id, movement::end_of_payout(doors, &payout))
            }
            EventData {
                tx_id_display: Some(display),
                session_id: Some(session_id),
                ..
            } => {
                let line = self.end_of_payment(doors, &display, session_id).await?;
                (display, line)
            }
            EventData {
                session_id: Some(session_id),
                ..
            } => {
                let subject = format!("session {session_id}");
                let line = Line::new(at).with(Tone::Plain, &subject);
                (subject, line.with(Tone::Bad, "EXPIRED"))
            }
            _ => (kind.clone(), Line::new(at).with(Tone::Plain, kind)),
        };
        self.deliveries.follow(event.event_id, subject, line);
        Ok(())
    }

    async fn end_of_payment(
        &self,
        doors: &mut Doors,
        display: &str,
        session_id: String,
    ) -> anyhow::Result<Line> {
        let request = ListChargesRequest {
            merchant_id: self.id(),
            page_size: PAGE_SIZE,
            session_id: Some(session_id),
            ..ListChargesRequest::default()
        };
        let listed = doors.charges.list_charges(request).await?.into_inner();
        let mut charges = listed.charges.into_iter().filter_map(|listed| {
            let payer_masked = listed.payer_masked;
            listed.charge.map(|charge| (charge, payer_masked))
        });
        let Some((charge, payer)) = charges.find(|(charge, _)| charge.tx_id_display == display)
        else {
            return Ok(Line::new(doors.clock.now()).with(Tone::Plain, display));
        };
        Ok(movement::end_of_payment(doors, &charge, &payer))
    }
}

/// Whether somebody made the session, and not a direct charge, which is made with it.
fn is_hosted(session: &Session) -> bool {
    let transaction = session.transaction.as_ref();
    transaction.is_none_or(|transaction| transaction.created_at != session.created_at)
}

fn opened(doors: &Doors, session: &Session, created_at: Timestamp) -> Line {
    let (id, amount) = (
        &session.session_id,
        movement::amount(session.amount.as_ref()),
    );
    Line::new(created_at)
        .with(Tone::Plain, format!("session {id} {amount}"))
        .with(Tone::Good, "OPENED")
        .with(Tone::Plain, format!("{}/pay/{id}", doors.checkout))
}
