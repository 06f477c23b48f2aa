//! The cookie that holds a login's secret. The browser keeps it until it is closed; how long a login
//! lasts is up to merchants-svc.

use http::{HeaderMap, HeaderValue, header::COOKIE};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::error::Error;

/// Longest secret that is looked up.
const TOKEN_BYTES_MAX: usize = 128;

/// How the cookie is named and marked at one address.
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

    /// The value of Set-Cookie that begins a login.
    pub fn set(self, token: &str) -> Result<HeaderValue, Error> {
        let mut value = HeaderValue::try_from(self.text(token)).map_err(Error::internal)?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// The value of Set-Cookie that makes the browser forget it.
    pub fn clear(self) -> HeaderValue {
        let cleared = format!("{}; Max-Age=0", self.text(""));
        HeaderValue::try_from(cleared).unwrap_or(HeaderValue::from_static(""))
    }

    fn text(self, token: &str) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        format!(
            "{}={token}; Path=/; HttpOnly; SameSite=Lax{secure}",
            self.name()
        )
    }

    /// The SHA-256 of the secret that a browser sent. `None` without one, or with two: then one of
    /// them is not ours.
    pub fn read(self, headers: &HeaderMap) -> Option<[u8; 32]> {
        let lines = headers.get_all(COOKIE).iter();
        let pairs = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        let mut tokens = pairs.filter(|(name, _)| *name == self.name());
        let (_, token) = tokens.next()?;
        let is_whole = (1..=TOKEN_BYTES_MAX).contains(&token.len());
        (is_whole && tokens.next().is_none()).then(|| Sha256::digest(token).into())
    }
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
