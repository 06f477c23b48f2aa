//! The way back to the merchant: a link, with a hint about the outcome that proves nothing.

use url::Url;

/// The outcome, as far as the page knows.
#[derive(Clone, Copy, Debug)]
pub enum OutcomeHint {
    Completed,
    Failed,
    Cancelled,
    Expired,
}

/// A link back to the merchant.
#[derive(Debug)]
pub struct ReturnLink {
    pub link: String,
    /// Shown before the payer leaves.
    pub host: String,
}

impl ReturnLink {
    /// The session's `redirect_url` with `session_id` and `status` added. Its own query and
    /// fragment stay. `None` if it is not a plain http(s) address.
    pub fn new(redirect_url: &str, session_id: &str, hint: OutcomeHint) -> Option<Self> {
        let mut url: Url = redirect_url.parse().ok()?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        if !matches!(url.scheme(), "http" | "https") || !is_plain {
            return None;
        }
        let host = url.host_str()?.to_owned();
        let status = match hint {
            OutcomeHint::Completed => "completed",
            OutcomeHint::Failed => "failed",
            OutcomeHint::Cancelled => "cancelled",
            OutcomeHint::Expired => "expired",
        };
        url.query_pairs_mut()
            .append_pair("session_id", session_id)
            .append_pair("status", status);
        Some(Self {
            link: url.into(),
            host,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(redirect_url: &str) -> Option<String> {
        ReturnLink::new(redirect_url, "s-1", OutcomeHint::Completed).map(|back| back.link)
    }

    #[test]
    fn its_own_query_and_fragment_stay() {
        let check = |given, made: &str| assert_eq!(link(given).as_deref(), Some(made));
        check(
            "https://shop.example/thanks",
            "https://shop.example/thanks?session_id=s-1&status=completed",
        );
        check(
            "https://shop.example/?a=1&b=%20x#top",
            "https://shop.example/?a=1&b=%20x&session_id=s-1&status=completed#top",
        );
    }

    #[test]
    fn nothing_but_plain_addresses_of_the_web_is_linked() {
        for given in [
            "javascript:alert(1)",
            "data:text/html,x",
            "//shop.example",
            "https://a@shop.example",
            "https://a:b@shop.example",
            "",
        ] {
            assert_eq!(link(given), None, "{given}");
        }
    }
}
