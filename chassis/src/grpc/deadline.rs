//! How long a call may take, as sent in the header `grpc-timeout`.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};

const HEADER: &str = "grpc-timeout";

/// The most digits that the header may have.
const DIGITS_MAX: usize = 8;

/// What the caller allows; `None` without a valid header.
pub(super) fn read(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(HEADER)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > DIGITS_MAX || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3_600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

/// Sets the header to `longest`, unless it already allows no more. Returns the time that applies.
pub(super) fn shorten(headers: &mut HeaderMap, longest: Duration) -> Duration {
    if let Some(own) = read(headers).filter(|own| *own <= longest) {
        return own;
    }
    let milliseconds = format!("{}m", longest.as_millis());
    let value = HeaderValue::try_from(milliseconds).expect("digits and a letter are a header");
    headers.insert(HEADER, value);
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HEADER.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn every_unit_is_read_and_nothing_else() {
        for (text, milliseconds) in [("2H", 7_200_000), ("2M", 120_000), ("2S", 2_000), ("2m", 2)] {
            let read = read(&headers(text));
            assert_eq!(read, Some(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(read(&headers("2u")), Some(Duration::from_micros(2)));
        assert_eq!(read(&headers("2n")), Some(Duration::from_nanos(2)));
        for text in [
            "",
            "S",
            "2",
            "2s",
            "-2S",
            "+2S",
            "2.5S",
            "123456789S",
            "2 S",
        ] {
            assert_eq!(read(&headers(text)), None, "{text}");
        }
        assert_eq!(read(&HeaderMap::new()), None);
    }

    #[test]
    fn the_shorter_time_holds_and_travels() {
        let longest = Duration::from_secs(5);
        for (own, held) in [
            ("1S", Duration::from_secs(1)),
            ("9S", longest),
            ("x", longest),
        ] {
            let mut headers = headers(own);
            assert_eq!(shorten(&mut headers, longest), held, "{own}");
            assert_eq!(read(&headers), Some(held), "{own}");
        }
    }
}
