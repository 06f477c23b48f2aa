//! Who is looking at which page, in which language.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::extract::{ConnectInfo, FromRequestParts, Path};
use chassis::ids::SessionId;
use http::request::Parts;
use url::form_urlencoded;

use super::{
    Checkout,
    text::{self, Text},
};
use crate::{client_address::client_address, error::Error};

/// The visitor behind one request.
#[derive(Debug)]
pub struct Visitor {
    /// The last part of the page's address, exactly as given.
    pub id: String,
    pub address: IpAddr,
    pub text: &'static Text,
    /// Whether the language was chosen by `?lang=`, so that links keep it.
    chose_language: bool,
    pub wish: Wish,
}

/// Which view of the session is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Its current state.
    Standing,
    /// After a failure: the form.
    Again,
    /// While a payment waits for its payer: the way out.
    Leave,
}

impl Wish {
    fn parameter(self) -> &'static str {
        match self {
            Self::Standing => "",
            Self::Again => "again=1",
            Self::Leave => "leave=1",
        }
    }
}

impl FromRequestParts<Arc<Checkout>> for Visitor {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        checkout: &Arc<Checkout>,
    ) -> Result<Self, Infallible> {
        let id = Path::<String>::from_request_parts(parts, checkout).await;
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or(SocketAddr::from(([0, 0, 0, 0], 0)), |peer| peer.0);
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let (mut chosen, mut wish) = (None, Wish::Standing);
        for (name, value) in form_urlencoded::parse(query) {
            match &*name {
                "lang" => chosen = text::by_code(&value),
                "again" => wish = Wish::Again,
                "leave" => wish = Wish::Leave,
                _ => {}
            }
        }
        Ok(Self {
            id: id.map(|Path(id)| id).unwrap_or_default(),
            address: client_address(peer, &parts.headers, &checkout.trusted_proxies),
            text: chosen.unwrap_or_else(|| text::preferred(&parts.headers)),
            chose_language: chosen.is_some(),
            wish,
        })
    }
}

impl Visitor {
    /// The session that the page's address names. Needs no call: a malformed id is refused before
    /// any form is read, and does not count as a guess.
    pub fn session(&self) -> Result<SessionId, Error> {
        self.id.parse().map_err(|_| Error::NotFound)
    }

    /// The page's own address in the visitor's language.
    pub fn page(&self) -> String {
        self.under("")
    }

    /// An address below the page's.
    pub fn under(&self, path: &str) -> String {
        let (id, code) = (&self.id, self.text.code);
        let language = if self.chose_language {
            format!("?lang={code}")
        } else {
            String::new()
        };
        format!("/pay/{id}{path}{language}")
    }

    /// The address of another view of the page.
    pub fn wishing(&self, wish: Wish) -> String {
        let joint = if self.chose_language { '&' } else { '?' };
        format!("{}{joint}{}", self.page(), wish.parameter())
    }

    /// The address of the same page in another language.
    pub fn in_language(&self, text: &Text) -> String {
        let (id, language) = (&self.id, text.code);
        match self.wish {
            Wish::Standing => format!("/pay/{id}?lang={language}"),
            wish => format!("/pay/{id}?lang={language}&{}", wish.parameter()),
        }
    }
}
