//! Addresses of receivers, and which of them may be reached.
//!
//! An address on this machine, in a private network, or of a cloud's metadata is refused unless the operator
//! of the process allows its host: a definition must not reach beyond its author. Databases and object stores
//! are in such networks as a rule; of theirs, only addresses of a cloud's metadata are refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hyper::Uri;

use crate::RemoteError;

/// A URL in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub is_tls: bool,
    pub host: String,
    pub port: u16,
    /// Path and query.
    pub target: String,
}

impl Address {
    pub fn parse(url: &str) -> Result<Self, RemoteError> {
        // The address may hold a password, and is not shown.
        let bad = |why: &str| RemoteError::Stop(format!("the receiver's address {why}"));
        let uri: Uri = url.parse().map_err(|_| bad("is no URL"))?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("does not begin with https:// or http://")),
        };
        let authority = uri.authority().ok_or_else(|| bad("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad(
                "has a login: write it as a header, authorization = \"env:NAME\"",
            ));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        Ok(Self {
            is_tls,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            target: uri
                .path_and_query()
                .map_or("/", |target| target.as_str())
                .to_owned(),
        })
    }

    /// Returns the text of the header `Host`.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match (self.is_tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// Hosts that may be reached.
#[derive(Debug, Clone)]
pub struct Allowed {
    /// Those in private networks.
    hosts: Vec<String>,
    /// True if private networks are allowed, and a cloud's metadata is not.
    is_for_stores: bool,
}

impl Allowed {
    /// Hosts of the public network, and of private ones those that are named; `*` is all of them.
    pub fn new(hosts: &[String]) -> Self {
        Self {
            hosts: hosts.to_vec(),
            is_for_stores: false,
        }
    }

    /// Hosts of databases and object stores, in any network.
    pub fn stores() -> Self {
        Self {
            hosts: Vec::new(),
            is_for_stores: true,
        }
    }

    /// Returns the addresses that may be connected to.
    pub async fn resolve(&self, to: &Address) -> Result<Vec<SocketAddr>, RemoteError> {
        let found = tokio::net::lookup_host((to.host.as_str(), to.port)).await;
        let found: Vec<_> = found
            .map_err(|why| RemoteError::Retry(format!("{}: {why}", to.host)))?
            .collect();
        if self.hosts.iter().any(|host| host == "*" || *host == to.host) {
            return Ok(found);
        }
        if self.is_for_stores {
            return match found.iter().find(|address| is_metadata(address.ip())) {
                None => Ok(found),
                Some(address) => Err(RemoteError::Stop(format!(
                    "{} is {}: clouds tell the credentials of their machines there, and no store has that address",
                    to.host,
                    address.ip()
                ))),
            };
        }
        if let Some(inner) = found.iter().find(|address| is_inner(address.ip())) {
            let (host, ip) = (&to.host, inner.ip());
            let why = format!(
                "{host} is {ip}, an address of this machine or a private network: \
                 the setting sinks.webhook_allow, or --webhook-allow, names hosts that may be"
            );
            return Err(RemoteError::Stop(why));
        }
        Ok(found)
    }
}

/// True for an address at which clouds have the metadata of their machines.
fn is_metadata(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local() || ip.octets() == [100, 100, 100, 200],
        IpAddr::V6(ip) => ip.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254],
    }
}

/// True for an address that is not of the public network.
fn is_inner(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_inner_v4(ip),
        IpAddr::V6(ip) => is_inner_v6(ip),
    }
}

fn is_inner_v4(ip: Ipv4Addr) -> bool {
    let [first, second, third, _] = ip.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    let is_special = first == 0 || first >= 240 || (first, second, third) == (192, 0, 0);
    let is_benchmark = first == 198 && (18..20).contains(&second);
    ip.is_loopback()
        || ip.is_private()
        || ip.is_link_local()
        || ip.is_multicast()
        || is_shared
        || is_special
        || is_benchmark
}

fn is_inner_v6(ip: Ipv6Addr) -> bool {
    // The addresses of NAT64 (RFC 6052) and 6to4 (RFC 3056) hold one of IPv4.
    let inner = match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    };
    ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_unique_local()
        || ip.is_unicast_link_local()
        || ip.is_multicast()
        || inner.is_some_and(is_inner_v4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_machines_and_private_networks_are_known() {
        for inner in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.1.1",
            "0.0.0.0",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "ff02::1",
        ] {
            assert!(is_inner(inner.parse().unwrap()), "{inner}");
        }
        for outer in [
            "93.184.216.34",
            "2606:2800:220:1::1",
            "172.32.0.1",
            "100.128.0.1",
            "::ffff:8.8.8.8",
        ] {
            assert!(!is_inner(outer.parse().unwrap()), "{outer}");
        }
    }

    #[tokio::test]
    async fn stores_are_in_any_network_and_never_where_clouds_tell_credentials() {
        let resolved = async |url: &str| {
            let address = Address::parse(url).unwrap();
            Allowed::stores().resolve(&address).await
        };
        for store in [
            "http://127.0.0.1:8123/",
            "http://10.1.2.3/",
            "http://[fd00::1]:9000/",
        ] {
            assert!(resolved(store).await.is_ok(), "{store}");
        }
        for metadata in [
            "http://169.254.169.254/latest/meta-data/",
            "http://[::ffff:169.254.169.254]/",
            "http://[fd00:ec2::254]/",
            "http://100.100.100.200/",
        ] {
            let refused = resolved(metadata).await;
            assert!(
                matches!(refused, Err(RemoteError::Stop(_))),
                "{metadata}: {refused:?}"
            );
        }
    }

    #[test]
    fn urls_are_read_in_parts() {
        let address = Address::parse("https://h.example/a?b=1").unwrap();
        assert_eq!(
            (address.is_tls, &*address.host, address.port),
            (true, "h.example", 443)
        );
        assert_eq!((&*address.target, &*address.authority()), ("/a?b=1", "h.example"));
        let address = Address::parse("http://[::1]:8080").unwrap();
        assert_eq!((&*address.host, &*address.authority()), ("::1", "[::1]:8080"));
        for bad in ["ftp://x/", "x", "https://me:secret@x/", "http:///a"] {
            let why = Address::parse(bad).unwrap_err().to_string();
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
