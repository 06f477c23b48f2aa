//! Whether a form came from one of our own pages.
//!
//! Browsers say so in Sec-Fetch-Site; older ones name the page's origin. A form with neither
//! passes: the checkout uses no cookie, so a browser lends nobody any rights here, and whoever
//! knows the address could send the same request without a browser. (A browser without
//! Sec-Fetch-Site sends `Origin: null` with our own forms, because our pages tell it to send no
//! referrer.)

use http::{
    HeaderMap,
    header::{HOST, ORIGIN},
};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

pub fn is_ours(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get(SEC_FETCH_SITE) {
        // "none": the payer did it, for example by sending a form again.
        return site == "same-origin" || site == "none";
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return true;
    };
    let (Ok(origin), Some(Ok(host))) =
        (origin.to_str(), headers.get(HOST).map(|host| host.to_str()))
    else {
        return false;
    };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    origin == "null" || authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(site: Option<&'static str>, origin: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "pay.example.com".parse().expect("a host"));
        for (name, value) in [(SEC_FETCH_SITE, site), ("origin", origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().expect("a value"));
            }
        }
        is_ours(&headers)
    }

    #[test]
    fn only_forms_of_our_own_pages_pass() {
        let ours = Some("https://pay.example.com");
        let foreign = Some("https://evil.example");
        assert!(check(Some("same-origin"), ours));
        assert!(check(Some("same-origin"), Some("null")));
        assert!(check(Some("none"), None));
        assert!(check(None, ours));
        assert!(check(None, Some("null")));
        assert!(check(None, None));
        for origin in [None, ours, foreign, Some("null")] {
            assert!(!check(Some("cross-site"), origin));
            assert!(!check(Some("same-site"), origin));
            assert!(!check(Some("what"), origin));
        }
        assert!(!check(None, foreign));
        assert!(!check(None, Some("https://pay.example.com.evil.example")));
        assert!(!check(None, Some("pay.example.com")));
    }
}
