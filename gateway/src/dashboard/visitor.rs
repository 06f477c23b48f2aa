//! Whose browser a request comes from, before anybody is logged in.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::extract::{ConnectInfo, FromRequestParts};
use http::{header::USER_AGENT, request::Parts};
use proto::merchants::Origin;

use super::{
    Dashboard,
    text::{Text, phrase},
};
use crate::client_address::client_address;

#[derive(Clone, Debug)]
pub struct Visitor {
    pub address: IpAddr,
    user_agent: String,
}

impl Visitor {
    /// For the activity and the list of logins.
    pub fn origin(&self) -> Option<Origin> {
        Some(Origin {
            address: self.address.to_string(),
            user_agent: self.user_agent.clone(),
        })
    }
}

/// What calls itself so in a browser's name, the more special first: those that come later are named
/// for the sake of old pages.
const BROWSERS: [(&str, &str); 9] = [
    ("OPR/", "Opera"),
    ("Opera Mini", "Opera Mini"),
    ("Edg", "Edge"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("UCBrowser/", "UC Browser"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
];

const SYSTEMS: [(&str, &str); 6] = [
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS", "Mac"),
    ("Linux", "Linux"),
];

/// A browser as people know it, by what it calls itself; that itself if nobody knows it.
pub fn device(user_agent: &str) -> Text {
    let find = |known: &[(&str, &'static str)]| {
        let mut known = known.iter();
        let found = known.find(|(sign, _)| user_agent.contains(sign));
        found.map(|(_, name)| *name)
    };
    match (find(&BROWSERS), find(&SYSTEMS)) {
        (Some(browser), Some(system)) => phrase!("{0} on {1}", browser, system).into(),
        _ => user_agent.into(),
    }
}

impl FromRequestParts<Arc<Dashboard>> for Visitor {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        dashboard: &Arc<Dashboard>,
    ) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or(SocketAddr::from(([0, 0, 0, 0], 0)), |peer| peer.0);
        let user_agent = parts.headers.get(USER_AGENT);
        let user_agent = user_agent.and_then(|agent| agent.to_str().ok());
        Ok(Self {
            address: client_address(peer, &parts.headers, &dashboard.trusted_proxies),
            user_agent: user_agent.unwrap_or_default().to_owned(),
        })
    }
}
