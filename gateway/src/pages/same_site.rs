//! Whether a form came from one of our own pages.
//!
//! Browsers say so in Sec-Fetch-Site; older ones name the page's origin.
//!
//! At the checkout, a form with neither passes: it uses no cookie, so a browser lends nobody any
//! rights there, and whoever knows the address could send the same request without a browser. (A
//! browser without Sec-Fetch-Site sends `Origin: null` with the checkout's own forms, because its
//! pages tell it to send no referrer.) At the dashboard, whose cookie browsers add by themselves,
//! such a form is refused.

use http::{
    HeaderMap, HeaderValue,
    header::{HOST, ORIGIN},
};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Whether no other site's page has sent it.
pub fn is_ours(headers: &HeaderMap) -> bool {
    match headers.get(SEC_FETCH_SITE) {
        Some(site) => is_own(site),
        None => match headers.get(ORIGIN) {
            Some(origin) => origin == "null" || is_host(origin, headers),
            None => true,
        },
    }
}

/// Whether the browser says that one of our own pages has sent it.
pub fn is_certainly_ours(headers: &HeaderMap) -> bool {
    match headers.get(SEC_FETCH_SITE) {
        Some(site) => is_own(site),
        None => headers
            .get(ORIGIN)
            .is_some_and(|origin| is_host(origin, headers)),
    }
}

fn is_own(site: &HeaderValue) -> bool {
    // "none": a person did it, for example by sending a form again.
    site == "same-origin" || site == "none"
}

fn is_host(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok();
    let authority = origin.and_then(|origin| Some(origin.split_once("://")?.1));
    authority
        .zip(host)
        .is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(site: Option<&'static str>, origin: Option<&'static str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "pay.example.com".parse().expect("a host"));
        for (name, value) in [(SEC_FETCH_SITE, site), ("origin", origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().expect("a value"));
            }
        }
        headers
    }

    fn check(site: Option<&'static str>, origin: Option<&'static str>) -> bool {
        is_ours(&headers(site, origin))
    }

    #[test]
    fn where_there_are_cookies_a_form_must_say_that_it_is_ours() {
        let ours = Some("https://pay.example.com");
        let foreign = Some("https://evil.example");
        let sites = [
            None,
            Some("same-origin"),
            Some("none"),
            Some("same-site"),
            Some("cross-site"),
        ];
        let origins = [None, ours, foreign, Some("null")];
        for site in sites {
            for origin in origins {
                let passes = match site {
                    Some(site) => site == "same-origin" || site == "none",
                    None => origin == ours,
                };
                let headers = headers(site, origin);
                assert_eq!(is_certainly_ours(&headers), passes, "{site:?}, {origin:?}");
            }
        }
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
