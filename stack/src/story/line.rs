//! A line of the story: when, and what, in columns that two spaces part.

use std::{fmt, time::Duration};

use chassis::clock::Timestamp;

/// Longer parts are cut off.
const PART_CHARS_MAX: usize = 120;

/// How a part of a line looks on a terminal with colours.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Bad,
    Waiting,
}

impl Tone {
    fn colour(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("\x1b[32m"),
            Self::Bad => Some("\x1b[31m"),
            Self::Waiting => Some("\x1b[33m"),
        }
    }
}

/// Ends every colour.
const RESET: &str = "\x1b[0m";

pub struct Line {
    pub at: Timestamp,
    parts: Vec<(Tone, String)>,
}

impl Line {
    pub fn new(at: Timestamp) -> Self {
        Self {
            at,
            parts: Vec::new(),
        }
    }

    /// Adds a part. What is not to be printed is left out of it: names and subjects come from
    /// anybody, and a terminal obeys control characters.
    #[must_use]
    pub fn with(mut self, tone: Tone, text: impl AsRef<str>) -> Self {
        let letters = text.as_ref().chars().filter(|letter| !is_obeyed(*letter));
        self.parts
            .push((tone, letters.take(PART_CHARS_MAX).collect()));
        self
    }
}

/// Whether a terminal does something other than to show the character.
fn is_obeyed(letter: char) -> bool {
    let turns = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || turns
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&time_of_day(self.at))?;
        for (tone, text) in &self.parts {
            match tone.colour() {
                Some(colour) => write!(f, "  {colour}{text}{RESET}")?,
                None => write!(f, "  {text}")?,
            }
        }
        Ok(())
    }
}

/// In GMT, Ghana's zone all year.
pub fn time_of_day(at: Timestamp) -> String {
    let time = at.datetime().time();
    format!(
        "{:02}:{:02}:{:02}",
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// How long something took: `1.1 s`, or `1h 2m 3s` if it took minutes.
pub fn took(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        return format!("{seconds}.{} s", duration.subsec_millis() / 100);
    }
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_time_in_gmt_and_obeys_nobody() {
        let at = Timestamp::parse_rfc_3339("2026-11-25T14:05:18.999Z").unwrap();
        let line = Line::new(at)
            .with(Tone::Plain, "key \"a\x1b[2J\u{202e}b\n\"")
            .with(Tone::Good, "MADE");
        let shown = line.to_string();
        assert_eq!(shown, "14:05:18  key \"a[2Jb\"  \x1b[32mMADE\x1b[0m");
        let long = Line::new(at).with(Tone::Plain, "x".repeat(1_000));
        assert_eq!(long.to_string().len(), 8 + 2 + PART_CHARS_MAX);
    }

    #[test]
    fn what_took_minutes_is_told_in_minutes() {
        assert_eq!(took(Duration::from_millis(1_190)), "1.1 s");
        assert_eq!(took(Duration::from_millis(59_999)), "59.9 s");
        assert_eq!(took(Duration::from_secs(86_401)), "1day 1s");
    }
}
