//! The webhooks that are being delivered: what became of each attempt.

use std::time::{Duration, Instant};

use proto::webhooks::{Attempt, Delivery, DeliveryStatus, GetEventDeliveriesRequest};

use super::{
    Doors,
    line::{Line, Tone, time_of_day},
};

/// How long the line of an event waits for the end of its webhook's first attempt.
const HOLD_MAX: Duration = Duration::from_secs(2);

/// How many events are asked about at once.
const EVENTS_ASKED_MAX: usize = 100;

/// How many events are followed. Deliveries can wait for days, such as while an endpoint is off.
const FOLLOWED_MAX: usize = 1_000;

/// Events whose deliveries have not ended.
#[derive(Default)]
pub struct Deliveries {
    events: Vec<FollowedEvent>,
}

struct FollowedEvent {
    event_id: String,
    /// What the event is about.
    subject: String,
    /// The event's line, until it is told.
    line: Option<Line>,
    since: Instant,
    /// How many attempts are told.
    attempts: u32,
    has_ended: bool,
}

impl Deliveries {
    /// Follows an event. Its line is told with the end of the first attempt, if that comes soon.
    pub fn follow(&mut self, event_id: String, subject: String, line: Line) {
        self.events.push(FollowedEvent {
            event_id,
            subject,
            line: Some(line),
            since: Instant::now(),
            attempts: 0,
            has_ended: false,
        });
    }

    pub async fn look(
        &mut self,
        merchant_id: &str,
        doors: &mut Doors,
        lines: &mut Vec<Line>,
    ) -> anyhow::Result<()> {
        for events in self.events.chunks_mut(EVENTS_ASKED_MAX) {
            let request = GetEventDeliveriesRequest {
                merchant_id: merchant_id.to_owned(),
                event_ids: events.iter().map(|event| event.event_id.clone()).collect(),
            };
            let answer = doors.events.get_event_deliveries(request).await?;
            for told in answer.into_inner().events {
                let mut events = events.iter_mut();
                if let Some(event) = events.find(|event| event.event_id == told.event_id) {
                    event.hear(told.delivery, doors, lines);
                }
            }
        }
        for event in &mut self.events {
            if event.since.elapsed() > HOLD_MAX {
                lines.extend(event.line.take());
            }
        }
        self.events.retain(|event| !event.has_ended);
        let excess = self.events.len().saturating_sub(FOLLOWED_MAX);
        lines.extend(self.events.drain(..excess).filter_map(|event| event.line));
        Ok(())
    }
}

impl FollowedEvent {
    fn hear(&mut self, delivery: Option<Delivery>, doors: &Doors, lines: &mut Vec<Line>) {
        let Some(delivery) = delivery else {
            // Nobody wants this event.
            lines.extend(self.line.take());
            self.has_ended = true;
            return;
        };
        let status = delivery.status();
        let next = delivery.next_attempt_at.as_deref().map(|at| doors.time(at));
        for attempt in delivery.attempts {
            let Some(finished_at) = &attempt.finished_at else {
                continue;
            };
            if attempt.number <= self.attempts {
                continue;
            }
            self.attempts = attempt.number;
            let line = self.line.take().unwrap_or_else(|| {
                Line::new(doors.time(finished_at)).with(Tone::Plain, &self.subject)
            });
            let tone = match attempt.succeeded {
                true => Tone::Good,
                false => Tone::Bad,
            };
            let mut line = line.with(tone, format!("webhook {}", end_of(&attempt)));
            if attempt.number == delivery.attempts_count && !attempt.succeeded {
                line = match (status, next) {
                    (DeliveryStatus::Exhausted, _) => line.with(Tone::Bad, "given up"),
                    (_, Some(next)) => {
                        line.with(Tone::Plain, format!("again at {}", time_of_day(next)))
                    }
                    (_, None) => line,
                };
            }
            lines.push(line);
        }
        let is_told = self.attempts == delivery.attempts_count;
        self.has_ended = is_told && status != DeliveryStatus::Pending;
    }
}

/// How an attempt ended, in a word or two.
fn end_of(attempt: &Attempt) -> String {
    match (attempt.http_status, &attempt.error) {
        (Some(status), _) => status.to_string(),
        (None, Some(error)) => error.clone(),
        (None, None) => "unanswered".to_owned(),
    }
}
