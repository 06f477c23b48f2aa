//! A row of the comparison: what is asked for, and what the rounds reached.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::{
    rounds::{Figures, Spread},
    thousandths::Thousandths,
};

/// What a row asks for.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    AtLeast(Thousandths),
    AtMost(Thousandths),
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Of the table in docs/performance.md.
    pub number: u8,
    pub work: String,
    pub asked: Asked,
    /// A figure of ours, or how many times the bare path's it is.
    pub reached: Spread,
    pub is_reached: bool,
    /// Requests that failed, ours and beside.
    pub failed: u64,
    pub ours: Spread,
    pub beside: Option<Beside>,
}

/// What was measured in the same rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    pub name: String,
    pub figure: Spread,
}

impl Asked {
    /// At least so many hundredths.
    pub const fn at_least(hundredths: u64) -> Self {
        Self::AtLeast(Thousandths(hundredths * 10))
    }

    /// At most so many hundredths.
    pub const fn at_most(hundredths: u64) -> Self {
        Self::AtMost(Thousandths(hundredths * 10))
    }

    fn is_reached(self, figure: Thousandths) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
        }
    }
}

impl Row {
    /// A figure by itself, such as a time.
    pub fn figure(number: u8, work: &str, asked: Asked, ours: &Figures) -> Self {
        let reached = Spread::of(&ours.rounds);
        Self {
            number,
            work: work.to_owned(),
            asked,
            reached,
            is_reached: asked.is_reached(reached.median),
            failed: ours.failed,
            ours: reached,
            beside: None,
        }
    }

    /// Our figure of each round by that of what ran beside it.
    pub fn ratio(
        number: u8,
        work: &str,
        asked: Asked,
        ours: &Figures,
        (name, beside): (&str, &Figures),
    ) -> Self {
        let rounds = ours.rounds.iter().zip(&beside.rounds);
        let ratios = Figures {
            rounds: rounds.map(|(ours, beside)| ours.ratio(*beside)).collect(),
            failed: ours.failed + beside.failed,
        };
        Self {
            ours: Spread::of(&ours.rounds),
            beside: Some(Beside {
                name: name.to_owned(),
                figure: Spread::of(&beside.rounds),
            }),
            ..Self::figure(number, work, asked, &ratios)
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => f.pad(&format!("≥ {least:.2}")),
            Self::AtMost(most) => f.pad(&format!("≤ {most:.2}")),
        }
    }
}

/// `>= 1.500`
impl Serialize for Asked {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = match self {
            Self::AtLeast(least) => format!(">= {least}"),
            Self::AtMost(most) => format!("<= {most}"),
        };
        serializer.serialize_str(&text)
    }
}

/// A line of a table in Markdown.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            work,
            asked,
            reached,
            failed,
            ..
        } = self;
        let is_reached = if self.is_reached { "yes" } else { "no" };
        write!(
            f,
            "| {number} | {work} | {asked} | {reached} | {is_reached}"
        )?;
        if *failed > 0 {
            write!(f, ", {failed} FAILED")?;
        }
        write!(f, " | {:.1} |", self.ours.median)?;
        match &self.beside {
            Some(Beside { name, figure }) => write!(f, " {name}: {:.1} |", figure.median),
            None => write!(f, " |"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(figures: [u64; 3]) -> Figures {
        Figures::from(figures.map(|figure| Thousandths(figure * 1_000)).to_vec())
    }

    #[test]
    fn a_ratio_is_taken_in_each_round() {
        let (ours, beside) = (figures([300, 200, 450]), figures([100, 100, 100]));
        let row = Row::ratio(1, "work", Asked::at_least(300), &ours, ("d", &beside));
        assert_eq!(row.reached.to_string(), "3.00 (2.00–4.50)");
        assert!(row.is_reached);
        let text = row.to_string();
        assert_eq!(
            text,
            "| 1 | work | ≥ 3.00 | 3.00 (2.00–4.50) | yes | 300.0 | d: 100.0 |"
        );
    }

    #[test]
    fn a_row_says_that_requests_failed_on_either_side() {
        let (mut ours, mut beside) = (figures([300, 200, 450]), figures([100, 100, 100]));
        (ours.failed, beside.failed) = (2, 1);
        let row = Row::ratio(1, "work", Asked::at_least(300), &ours, ("d", &beside));
        assert_eq!(
            row.to_string(),
            "| 1 | work | ≥ 3.00 | 3.00 (2.00–4.50) | yes, 3 FAILED | 300.0 | d: 100.0 |"
        );
        assert_eq!(serde_json::to_value(&row).unwrap()["failed"], 3);
    }

    #[test]
    fn a_time_must_not_be_too_long() {
        let row = Row::figure(
            13,
            "start",
            Asked::at_most(15_000),
            &figures([140, 151, 160]),
        );
        assert!(!row.is_reached);
    }
}
