//! Lines on standard output: the addresses of the listeners, `ready`, and commands to try.
//!
//! Programs read these lines; their format is stable.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Default server of the commands.
const DEFAULT_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9092);

/// Prints the address of a listener: `NAME listening on ADDR`.
pub(crate) fn listening(name: &str, address: SocketAddr) {
    say(&format!("{name} listening on {address}"));
}

/// Prints `ready` and lines to try on plain listeners, with this program as it was called.
pub(crate) fn ready(kafka: Option<SocketAddr>, http: Option<SocketAddr>) {
    let mut lines = "ready".to_owned();
    let program = std::env::args().next().unwrap_or_else(|| "stafett".to_owned());
    if let Some(kafka) = kafka.map(reachable) {
        let server = if kafka == DEFAULT_SERVER {
            String::new()
        } else {
            format!(" --server {kafka}")
        };
        // Writing to a string does not fail.
        let _ = write!(
            lines,
            "\n  echo hello | {program} produce demo --create{server}\n  {program} consume demo{server}"
        );
    }
    if let Some(http) = http.map(reachable) {
        let _ = write!(lines, "\n  curl http://{http}/health");
    }
    say(&lines);
}

/// Returns an address to reach a listener from the same machine.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn say(line: &str) {
    if let Err(error) = writeln!(io::stdout(), "{line}") {
        tracing::debug!(%error, "nobody reads standard output");
    }
}
