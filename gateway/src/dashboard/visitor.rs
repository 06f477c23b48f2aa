//! Whose browser a request comes from, before anybody is logged in.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::extract::{ConnectInfo, FromRequestParts};
use http::{header::USER_AGENT, request::Parts};
use proto::merchants::Origin;

use super::Dashboard;
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
