//! The cookie that holds a login's secret, and the one by which a browser is known at its next login.
//! The browser keeps the first until it is closed; how long a login lasts is up to merchants-svc.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header::COOKIE};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::error::Error;

/// Longest secret that is looked up.
const TOKEN_BYTES_MAX: usize = 128;

/// For as long as merchants-svc remembers a login that is over.
const EARLIER_KEPT: Duration = Duration::from_hours(30 * 24);

/// How the cookies are named and marked at one address.
#[derive(Clone, Copy, Debug)]
pub struct LoginCookie {
    /// Only sent over HTTPS, and with a name that nobody else may set. Browsers refuse such a cookie
    /// over plain HTTP, which only development serves.
    is_secure: bool,
}

impl LoginCookie {
    pub fn at(dashboard_url: &Url) -> Self {
        Self {
            is_secure: dashboard_url.scheme() == "https",
        }
    }

    fn name(self) -> &'static str {
        match self.is_secure {
            true => "__Host-login",
            false => "login",
        }
    }

    fn earlier_name(self) -> &'static str {
        match self.is_secure {
            true => "__Host-earlier-login",
            false => "earlier-login",
        }
    }

    /// The value of Set-Cookie that begins a login.
    pub fn set(self, token: &str) -> Result<HeaderValue, Error> {
        sensitive(self.text(self.name(), token))
    }

    /// The value of Set-Cookie by which this browser is known once the login is over. It has only what
    /// is stored of the login's secret, so nobody is logged in by it.
    pub fn set_earlier(self, token: &str) -> Result<HeaderValue, Error> {
        let digest = hex::encode(Sha256::digest(token));
        let text = self.text(self.earlier_name(), &digest);
        sensitive(format!("{text}; Max-Age={}", EARLIER_KEPT.as_secs()))
    }

    /// The value of Set-Cookie by which the browser forgets the login. It stays known.
    pub fn clear(self) -> HeaderValue {
        let cleared = format!("{}; Max-Age=0", self.text(self.name(), ""));
        HeaderValue::try_from(cleared).unwrap_or(HeaderValue::from_static(""))
    }

    fn text(self, name: &str, value: &str) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}")
    }

    /// The SHA-256 of the secret that a browser sent.
    pub fn read(self, headers: &HeaderMap) -> Option<[u8; 32]> {
        value(headers, self.name()).map(|token| Sha256::digest(token).into())
    }

    /// The SHA-256 of the secret of a login that this browser had before.
    pub fn read_earlier(self, headers: &HeaderMap) -> Option<Vec<u8>> {
        hex::decode(value(headers, self.earlier_name())?).ok()
    }
}

fn sensitive(text: String) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::try_from(text).map_err(Error::internal)?;
    value.set_sensitive(true);
    Ok(value)
}

/// A cookie that a browser sent. `None` without one, or with two: then one of them is not ours.
fn value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(sent, _)| *sent == name);
    let (_, value) = values.next()?;
    let is_whole = (1..=TOKEN_BYTES_MAX).contains(&value.len());
    (is_whole && values.next().is_none()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> LoginCookie {
        LoginCookie::at(&url.parse().expect("a URL"))
    }

    fn read(cookie: LoginCookie, lines: &[&str]) -> bool {
        let lines = lines
            .iter()
            .map(|line| (COOKIE, line.parse().expect("a header value")));
        cookie.read(&lines.collect()).is_some()
    }

    #[test]
    fn over_https_no_script_no_other_site_and_no_other_host_gets_at_it() {
        let cookie = at("https://dashboard.example.com");
        let set = cookie.set("secret").expect("a header value");
        let set = set.to_str().expect("text");
        assert_eq!(
            set,
            "__Host-login=secret; Path=/; HttpOnly; SameSite=Lax; Secure"
        );
        let earlier = cookie.set_earlier("secret").expect("a header value");
        let earlier = earlier.to_str().expect("text");
        assert_eq!(
            earlier,
            "__Host-earlier-login=2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b; \
             Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=2592000"
        );
        let cleared = cookie.clear();
        assert!(cleared.to_str().expect("text").ends_with("; Max-Age=0"));
    }

    #[test]
    fn one_cookie_of_ours_is_read() {
        let cookie = at("http://127.0.0.1:8082");
        assert!(read(cookie, &["login=abc"]));
        assert!(read(cookie, &["theme=dark; login=abc"]));
        assert!(read(cookie, &["theme=dark", "login=abc"]));
        assert!(!read(cookie, &["login="]));
        assert!(!read(cookie, &["login=abc; login=def"]));
        assert!(!read(cookie, &["Login=abc"]));
        assert!(!read(cookie, &[&format!("login={}", "a".repeat(129))]));
        assert!(!read(at("https://x.example"), &["login=abc"]));
    }
}
