//! Where a request really comes from when there are proxies in between.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The nearest address that is not one of our proxies. Only trusted proxies are believed about whom
/// they forward for; anyone else may write anything into the header.
pub fn client_address(peer: SocketAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.contains(&address));
    let mut nearest = peer.ip().to_canonical();
    if !is_trusted(nearest) {
        return nearest;
    }
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    // Each proxy appends the address of its caller, so the last entry is the nearest. Bytes, because
    // what was there before may be anything, and spoils only itself.
    for entry in lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')) {
        let entry = str::from_utf8(entry).unwrap_or_default().trim();
        let Ok(address) = entry.parse::<IpAddr>() else {
            break;
        };
        nearest = address.to_canonical();
        if !is_trusted(nearest) {
            break;
        }
    }
    nearest
}

/// What counts as one address: for IPv6 the /64, because a user gets at least that much.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// What IPv6 gives to one customer of most hosters, with 65,536 networks in it. IPv4 has nothing like
/// it.
pub fn site(address: IpAddr) -> Option<IpNet> {
    match address.to_canonical() {
        IpAddr::V4(_) => None,
        address @ IpAddr::V6(_) => IpNet::new(address, 48).ok().map(|net| net.trunc()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client(peer: &str, forwarded_for: &[&str]) -> String {
        let lines: Vec<&[u8]> = forwarded_for.iter().map(|line| line.as_bytes()).collect();
        client_of(peer, &lines)
    }

    fn client_of(peer: &str, forwarded_for: &[&[u8]]) -> String {
        let headers = forwarded_for.iter().map(|line| {
            let line = HeaderValue::from_bytes(line).expect("a header value");
            (X_FORWARDED_FOR, line)
        });
        let trusted = ["10.0.0.0/8".parse().expect("a net")];
        let peer = peer.parse().expect("an address");
        client_address(peer, &headers.collect(), &trusted).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        assert_eq!(client("192.0.2.1:5000", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(client("10.0.0.1:5000", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(client("10.0.0.1:5000", &[]), "10.0.0.1");
        assert_eq!(
            client("[::ffff:10.0.0.1]:5000", &["198.51.100.7"]),
            "198.51.100.7"
        );
    }

    #[test]
    fn what_the_caller_wrote_before_the_last_proxy_is_not_believed() {
        let forged = ["1.1.1.1, 198.51.100.7, 10.0.0.9"];
        assert_eq!(client("10.0.0.1:5000", &forged), "198.51.100.7");
        let lines = ["1.1.1.1", "198.51.100.7"];
        assert_eq!(client("10.0.0.1:5000", &lines), "198.51.100.7");
        let nonsense = ["1.1.1.1, what"];
        assert_eq!(client("10.0.0.1:5000", &nonsense), "10.0.0.1");
        let binary: [&[u8]; 1] = [b"\xff, 198.51.100.7"];
        assert_eq!(client_of("10.0.0.1:5000", &binary), "198.51.100.7");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one() {
        let of = |address: &str| network(address.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }
}
