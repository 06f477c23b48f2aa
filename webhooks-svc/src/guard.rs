//! Which addresses we call at a merchant's request: only public ones.
//!
//! A URL passes [`Guard::check_url`] when it is saved and again before each attempt. Hosts that
//! are IP addresses are checked there, after the same parsing as in the HTTP client, which never
//! resolves them. Names are resolved by the guard itself, and the client connects to the addresses
//! that it let through, so what was checked is what is called. Any port from 1 is allowed: a
//! public host's ports are its own affair.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
};

use chassis::limits::URL_CHARACTERS_MAX;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// IPv4 networks that are not public unicast (IANA's special-purpose registry), and those that
/// clouds keep for themselves.
const V4_REFUSED: [Ipv4Net; 18] = [
    v4([0, 0, 0, 0], 8),          // this network
    v4([10, 0, 0, 0], 8),         // private
    v4([100, 64, 0, 0], 10),      // shared by carriers
    v4([127, 0, 0, 0], 8),        // loopback
    v4([168, 63, 129, 16], 32),   // a cloud's own services
    v4([169, 254, 0, 0], 16),     // link-local, metadata
    v4([172, 16, 0, 0], 12),      // private
    v4([192, 0, 0, 0], 24),       // protocol assignments, metadata
    v4([192, 0, 2, 0], 24),       // documentation
    v4([192, 88, 99, 0], 24),     // 6to4 relays
    v4([192, 168, 0, 0], 16),     // private
    v4([198, 18, 0, 0], 15),      // benchmarking
    v4([198, 51, 100, 0], 24),    // documentation
    v4([203, 0, 113, 0], 24),     // documentation
    v4([224, 0, 0, 0], 4),        // multicast
    v4([233, 252, 0, 0], 24),     // documentation
    v4([240, 0, 0, 0], 4),        // reserved
    v4([255, 255, 255, 255], 32), // broadcast
];

/// All public IPv6. Addresses that embed IPv4 (mapped, compatible, NAT64), loopback, link-local,
/// site-local, unique local and multicast lie outside.
const V6_PUBLIC: Ipv6Net = v6([0x2000, 0, 0], 3);

/// The networks within [`V6_PUBLIC`] that are not public.
const V6_REFUSED: [Ipv6Net; 4] = [
    v6([0x2001, 0, 0], 23),     // protocol assignments, Teredo, benchmarking
    v6([0x2001, 0xdb8, 0], 32), // documentation
    v6([0x2002, 0, 0], 16),     // 6to4, which embeds IPv4
    v6([0x3fff, 0, 0], 20),     // documentation
];

const fn v4(octets: [u8; 4], prefix: u8) -> Ipv4Net {
    let [a, b, c, d] = octets;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(head: [u16; 3], prefix: u8) -> Ipv6Net {
    let [a, b, c] = head;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

/// Why a URL is not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub enum UrlError {
    NotAUrl,
    NotHttps,
    Userinfo,
    Port,
    NotPublic,
}

impl UrlError {
    /// The message for merchants.
    pub fn message(self) -> &'static str {
        match self {
            Self::NotAUrl => {
                "must be an absolute URL of at most 2048 bytes, without control characters"
            }
            Self::NotHttps => "must begin with https://",
            Self::Userinfo => "must not contain a user name or password",
            Self::Port => "must not name port 0",
            Self::NotPublic => "must lead to a public address",
        }
    }
}

type Addresses = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Looks up a name's addresses.
pub type Lookup = Arc<dyn Fn(String) -> Addresses + Send + Sync>;

/// Looks names up with the system's resolver.
pub fn system_lookup() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

/// Decides what may be called, and resolves names for the HTTP client.
#[derive(Clone)]
pub struct Guard {
    allow_http: bool,
    /// Allowed although they are not public.
    allow_nets: Arc<[IpNet]>,
    lookup: Lookup,
}

impl Guard {
    pub fn new(allow_http: bool, allow_nets: Vec<IpNet>, lookup: Lookup) -> Self {
        Self {
            allow_http,
            allow_nets: allow_nets.into(),
            lookup,
        }
    }

    /// Checks everything that needs no lookup.
    pub fn check_url(&self, text: &str) -> Result<Url, UrlError> {
        if text.len() > URL_CHARACTERS_MAX || text.chars().any(char::is_control) {
            return Err(UrlError::NotAUrl);
        }
        let url = Url::parse(text).map_err(|_| UrlError::NotAUrl)?;
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            _ => return Err(UrlError::NotHttps),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlError::Userinfo);
        }
        if url.port() == Some(0) {
            return Err(UrlError::Port);
        }
        let is_allowed = match url.host() {
            Some(Host::Ipv4(address)) => self.allows(address.into()),
            Some(Host::Ipv6(address)) => self.allows(address.into()),
            Some(Host::Domain(_)) => true,
            None => return Err(UrlError::NotAUrl),
        };
        is_allowed.then_some(url).ok_or(UrlError::NotPublic)
    }

    /// Whether an address is public, or allowed by configuration.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.allow_nets.iter().any(|net| net.contains(&address)) || is_public(address)
    }

    /// Checks that a URL's name has an address that may be called. A name that cannot be looked up
    /// now is left to the attempts.
    pub async fn check_name(&self, url: &Url) -> Result<(), UrlError> {
        let Some(Host::Domain(name)) = url.host() else {
            return Ok(());
        };
        match self.resolve_public(name.to_owned()).await {
            Err(ResolveError::NotPublic) => Err(UrlError::NotPublic),
            Ok(_) | Err(ResolveError::Unknown(_)) => Ok(()),
        }
    }

    /// The addresses of a name that may be called; at least one.
    async fn resolve_public(&self, name: String) -> Result<Vec<SocketAddr>, ResolveError> {
        let found = (self.lookup)(name).await.map_err(ResolveError::Unknown)?;
        let allowed = found.into_iter().filter(|address| self.allows(*address));
        let allowed: Vec<_> = allowed.map(|address| SocketAddr::new(address, 0)).collect();
        if allowed.is_empty() {
            return Err(ResolveError::NotPublic);
        }
        Ok(allowed)
    }
}

/// Why a name leads to no address that is called.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("the host cannot be looked up")]
    Unknown(#[source] io::Error),
    #[error("the host leads to no public address")]
    NotPublic,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let allowed = guard.resolve_public(name.as_str().to_owned()).await?;
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("allow_http", &self.allow_http)
            .field("allow_nets", &self.allow_nets)
            .finish_non_exhaustive()
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !V4_REFUSED.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) => {
            V6_PUBLIC.contains(&address) && !V6_REFUSED.iter().any(|net| net.contains(&address))
        }
    }
}
