//! What a rail's own report says, and how that compares with what we booked. Pure: no I/O.
//!
//! Promise: a line and a record match only if reference, amount, currency and what became of the
//! movement are the same on both sides. What cannot be decided from the reports at hand is not
//! taken for a difference.

use std::time::Duration;

use chassis::{clock::Timestamp, money::Money};
use rails::RailName;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::case::CaseKind;

/// How far before and after a report's period others are looked for that continue it.
pub const NEIGHBOURS_WITHIN: Duration = Duration::from_secs(31 * 24 * 60 * 60);

chassis::closed_list! {
    /// Which way money moved between a rail's customers and us.
    pub enum Direction: "a direction of a movement" {
        /// To us: a charge.
        In = "IN",
        /// From us: a payout or a refund.
        Out = "OUT",
    }
}

chassis::text_column!(Direction);

chassis::closed_list! {
    /// What a report says of a movement.
    pub enum Said: "what a report says" {
        Paid = "PAID",
        Failed = "FAILED",
        /// It was made and taken back.
        Reversed = "REVERSED",
    }
}

chassis::text_column!(Said);

/// A report that lines come from.
#[derive(Clone, Debug)]
pub struct RailReport {
    pub rail: RailName,
    /// SHA-256 of its file, in hex.
    pub hash: String,
}

/// A line of a report.
#[derive(Clone, Debug)]
pub struct ReportLine {
    pub number: u64,
    /// Empty if the report has none.
    pub reference: String,
    /// The rail's own id; empty if the report has none.
    pub rail_id: String,
    pub direction: Direction,
    pub amount: Money,
    pub said: Said,
    pub at: Option<Timestamp>,
}

impl ReportLine {
    /// What the line is known by in every report of this rail: the rail's own id and the way that the
    /// money went, or, without an id, everything that it says.
    pub fn id(&self, rail: RailName) -> Uuid {
        let mut hash = Sha256::new();
        let mut field = |text: &str| {
            hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(text);
        };
        field(rail.code());
        field(self.said.code());
        field(self.direction.code());
        field(&self.rail_id);
        if self.rail_id.is_empty() {
            field(&self.reference);
            field(&shown(self.amount));
            field(&self.at.map(|at| at.to_string()).unwrap_or_default());
        }
        let hash: [u8; 32] = hash.finalize().into();
        let (id, _) = hash.split_first_chunk().expect("it has 32 bytes");
        uuid::Builder::from_custom_bytes(*id).into_uuid()
    }

    /// What the line says of a record that goes this way: money that went the other way under its
    /// reference is its reversal.
    pub fn said_of(&self, direction: Direction) -> Said {
        match self.said {
            Said::Paid if self.direction != direction => Said::Reversed,
            said => said,
        }
    }

    fn told(&self) -> String {
        let verb = match (self.said, self.direction) {
            (Said::Paid, Direction::In) => "was paid in",
            (Said::Paid, Direction::Out) => "was paid out",
            (Said::Failed, _) => "failed",
            (Said::Reversed, _) => "was taken back",
        };
        let at = self.at.map(|at| format!(" at {at}")).unwrap_or_default();
        format!("{} {verb}{at}", shown(self.amount))
    }
}

/// Our record of a movement, and what is booked of it.
#[derive(Clone, Debug)]
pub struct Known {
    pub subject: Uuid,
    /// A charge's reference, `PO-…` or `RF-…`.
    pub shown: String,
    pub direction: Direction,
    /// As it was stored.
    pub state: String,
    /// What moved at the rail by our ledger. Empty if nothing did.
    pub booked: Vec<Money>,
    /// Whether the rail took it back, by our records.
    pub is_taken_back: bool,
}

/// How a line compares with our record: `None` if they say the same.
pub fn judge(line: &ReportLine, known: Option<&Known>) -> Option<(CaseKind, String)> {
    let told = line.told();
    let Some(known) = known else {
        let reference = match line.reference.as_str() {
            "" => "without a reference".to_owned(),
            reference => format!("under the reference {reference}"),
        };
        let detail = format!("the report says that {told} {reference}, which is none of ours");
        return Some((CaseKind::ReportUnknown, detail));
    };
    let state = &known.state;
    let contradicts = |ours: String| {
        let detail = format!("the report says that {told}; {ours}");
        Some((CaseKind::ReportContradicts, detail))
    };
    let booked = match known.booked.as_slice() {
        [] => "nothing".to_owned(),
        booked => booked
            .iter()
            .map(|amount| shown(*amount))
            .collect::<Vec<_>>()
            .join(" and "),
    };
    let is_booked = !known.booked.is_empty();
    match line.said_of(known.direction) {
        Said::Paid if known.booked.contains(&line.amount) => None,
        Said::Paid if is_booked => {
            let detail = format!("the report says that {told}; we booked {booked}");
            Some((CaseKind::ReportDiffers, detail))
        }
        Said::Paid => contradicts(format!("ours is {state}, and nothing is booked")),
        Said::Reversed if is_booked && !known.booked.contains(&line.amount) => {
            let detail = format!("the report says that {told}; we booked {booked}");
            Some((CaseKind::ReportDiffers, detail))
        }
        Said::Failed | Said::Reversed if !is_booked || known.is_taken_back => None,
        Said::Failed => contradicts(format!("ours is {state}, and {booked} is booked")),
        Said::Reversed => contradicts(format!(
            "ours is {state}, {booked} is booked, and we know of no reversal"
        )),
    }
}

/// The second line for one movement.
pub fn twice(line: &ReportLine) -> (CaseKind, String) {
    let told = line.told();
    let detail = format!("the report says again that {told}");
    (CaseKind::ReportTwice, detail)
}

/// From the first moment, up to but not including the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Period {
    fn meets(self, other: Self) -> bool {
        self.from < other.to && other.from < self.to
    }

    fn holds(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }

    /// This period with all of the others that continue it without a gap.
    pub fn continued(mut self, others: &[Self]) -> Self {
        let continues = |whole: Self, other: Self| other.from <= whole.to && whole.from <= other.to;
        while let Some(other) = others
            .iter()
            .find(|other| continues(self, **other) && !self.holds(**other))
        {
            self.from = self.from.min(other.from);
            self.to = self.to.max(other.to);
        }
        self
    }
}

/// What is booked and in no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The reports should have it.
    Missing,
    /// It may be in a report that nobody has compared yet.
    Undecided,
    /// It is of another period.
    Elsewhere,
}

/// Judges what no report has. `moved`: the time in which the rail can have moved it.
pub fn judge_absence(moved: Period, period: Period, covered: Period) -> Absence {
    match (period.meets(moved), covered.holds(moved)) {
        (false, _) => Absence::Elsewhere,
        (true, true) => Absence::Missing,
        (true, false) => Absence::Undecided,
    }
}

pub fn shown(amount: Money) -> String {
    format!("{} {}", amount.currency().code(), amount.to_major())
}

#[cfg(test)]
mod tests;
