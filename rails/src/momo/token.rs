//! The token that every call to MTN carries.

use std::time::Duration;

use chassis::failure::FailureReason;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    client::{Reply, secret_header},
    words::Member,
};

/// A token this close to its expiry may be refused on arrival.
const TOKEN_MARGIN: Duration = Duration::from_secs(60);

/// A token that MTN minted for us.
pub struct Token {
    /// `Bearer …`
    pub header: HeaderValue,
    pub until: Instant,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    expires_in: Member,
}

impl Token {
    pub fn read(reply: &Reply) -> Result<Self, FailureReason> {
        if reply.is_unauthorized() {
            return Err(FailureReason::RailConfiguration);
        }
        let minted: Option<TokenAnswer> = reply.object().filter(|_| reply.status.is_success());
        let minted = minted.filter(|minted| !minted.access_token.is_empty());
        let minted = minted.ok_or(FailureReason::RailUnavailable)?;
        let header = secret_header(&format!("Bearer {}", minted.access_token));
        // A token without a lifetime is used once.
        let lives = minted
            .expires_in
            .text()
            .and_then(|seconds| seconds.parse().ok());
        let lives = Duration::from_secs(lives.unwrap_or_default());
        Ok(Self {
            header: header.map_err(|_| FailureReason::RailUnavailable)?,
            until: Instant::now() + lives.saturating_sub(TOKEN_MARGIN),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reply: &Reply) -> Result<(String, Duration), FailureReason> {
        let before = Instant::now();
        let token = Token::read(reply)?;
        let header = token.header.to_str().expect("a text").to_owned();
        Ok((header, token.until.saturating_duration_since(before)))
    }

    #[test]
    fn a_token_is_kept_until_shortly_before_its_end() {
        for (expires_in, secs) in [
            ("3600", 3540),
            (r#""3600""#, 3540),
            ("60", 0),
            ("5", 0),
            ("null", 0),
        ] {
            let body = format!(r#"{{"access_token":"abc","expires_in":{expires_in}}}"#);
            let (header, kept) = read(&Reply::json(200, &body)).unwrap();
            assert_eq!(header, "Bearer abc");
            let slack = Duration::from_secs(5);
            let secs = Duration::from_secs(secs);
            assert!(
                kept >= secs && kept <= secs + slack,
                "{expires_in}: {kept:?}"
            );
        }
    }

    #[test]
    fn what_is_no_token_is_none() {
        for reply in [
            Reply::html(200),
            Reply::empty(200),
            Reply::json(200, "{}"),
            Reply::json(200, r#"{"access_token":7}"#),
            Reply::json(200, r#"{"access_token":""}"#),
            Reply::json(200, r#"{"access_token":"a\nb"}"#),
            Reply::json(500, r#"{"access_token":"abc"}"#),
            Reply::html(401),
            Reply::empty(411),
        ] {
            assert_eq!(
                read(&reply),
                Err(FailureReason::RailUnavailable),
                "{reply:?}"
            );
        }
        let keys_are_wrong = read(&Reply::json(401, r#"{"statusCode":401}"#));
        assert_eq!(keys_are_wrong, Err(FailureReason::RailConfiguration));
    }
}
