//! What is said on standard output: where the listeners are, that everything is ready, and what to try.
//!
//! The lines are read by programs; their form is a promise.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Where the commands look for a broker, if they are not told.
const DEFAULT_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9092);

/// Says where a listener is: `NAME listening on ADDR`.
pub(crate) fn listening(name: &str, address: SocketAddr) {
    say(&format!("{name} listening on {address}"));
}

/// Says `ready`, and three lines to try: with this program, as it was called.
pub(crate) fn ready(kafka: SocketAddr, http: SocketAddr) {
    let http = reachable(http);
    let kafka = reachable(kafka);
    let program = std::env::args().next().unwrap_or_else(|| "stafett".to_owned());
    let server = if kafka == DEFAULT_SERVER {
        String::new()
    } else {
        format!(" --server {kafka}")
    };
    say(&format!(
        "ready\n  echo hello | {program} produce demo --create{server}\n  {program} consume demo{server}\n  \
         curl http://{http}/health"
    ));
}

/// An address to reach a listener by from the same machine.
fn reachable(address: SocketAddr) -> SocketAddr {
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
