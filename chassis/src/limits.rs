//! How long and how large the fields of a request may be. The gateway tells callers what exceeds
//! them; the services check again before they store anything.

use std::time::Duration;

/// Largest amount of one payment: 9,999,999,999.99 major units, in hundredths.
pub const AMOUNT_HUNDREDTHS_MAX: i64 = 999_999_999_999;

/// Characters of a description.
pub const DESCRIPTION_CHARACTERS_MAX: usize = 500;

/// Characters of a request's id.
pub const REQUEST_ID_CHARACTERS_MAX: usize = 64;

/// Characters of a person's or a merchant's name.
pub const NAME_CHARACTERS_MAX: usize = 200;

/// Characters of an e-mail address (RFC 5321, 4.5.3.1.3 with its errata).
pub const EMAIL_CHARACTERS_MAX: usize = 254;

/// Characters of a URL; not every browser takes more.
pub const URL_CHARACTERS_MAX: usize = 2_048;

/// Characters of an idempotency key as its caller sends it.
pub const IDEMPOTENCY_KEY_CHARACTERS_MAX: usize = 255;

/// The same with the gateway's mark of whose key it is: `c:`, `g:` or `p:`.
pub const MARKED_KEY_CHARACTERS_MAX: usize = IDEMPOTENCY_KEY_CHARACTERS_MAX + 2;

/// Entries on one page of a list: at most, and if the caller does not say how many.
pub const PAGE_SIZE_MAX: u32 = 100;
pub const PAGE_SIZE_DEFAULT: u32 = 20;

/// Entries that are looked at for one page if no index finds those that are wanted. A few
/// milliseconds' work; whoever asks on gets the next page.
pub const LOOKED_AT_MAX: i64 = 10_000;

/// A charge that has been open for longer than this waits: figures count it, and lists find it.
pub const WAITS_AFTER: Duration = Duration::from_secs(5 * 60);

/// Characters of a one-time password; networks use 4 to 8.
pub const OTP_CHARACTERS_MAX: usize = 32;

/// Whether a text is 1 to `characters_max` visible ASCII characters, as one-time passwords and
/// idempotency keys are.
pub fn is_visible_ascii(text: &[u8], characters_max: usize) -> bool {
    (1..=characters_max).contains(&text.len()) && text.iter().all(u8::is_ascii_graphic)
}
