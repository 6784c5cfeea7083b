//! The network between client and system, without a broker: throughput, and one byte there and back; to a
//! system elsewhere, how long connecting takes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::thread;
use std::time::{Duration, Instant};

use crate::results::{Latencies, Network, histogram};

const CHUNK_BYTES: usize = 256 << 10;
const THROUGHPUT_FOR: Duration = Duration::from_millis(300);
const ROUND_TRIPS: u32 = 2000;
/// Brokers write a line for every connection that says nothing.
const CONNECTS: u32 = 20;
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

/// Loopback: everything on one machine.
pub fn loopback() -> io::Result<Network> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || -> io::Result<u64> {
        let (mut pings, _) = listener.accept()?;
        pings.set_nodelay(true)?;
        echo(&mut pings)?;
        let (mut bulk, _) = listener.accept()?;
        drain(&mut bulk)
    });
    let round_trip = round_trips(TcpStream::connect(address)?)?;
    let started = Instant::now();
    send(TcpStream::connect(address)?)?;
    let bytes = server
        .join()
        .map_err(|_| io::Error::other("the other end ended"))??;
    Ok(Network {
        path: "loopback".to_owned(),
        bytes_per_second: bytes as f64 / started.elapsed().as_secs_f64(),
        back_bytes_per_second: None,
        both_bytes_per_second: None,
        round_trip,
    })
}

/// Returns true if `HOST:PORT` is on this machine's loopback.
pub fn is_loopback(address: &str) -> bool {
    is_loopback_host(address.rsplit_once(':').map_or(address, |(host, _)| host))
}

/// Returns true if a host, in brackets or not, is this machine's loopback.
pub fn is_loopback_host(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Measures the time to connect to `HOST:PORT`.
pub fn connects(address: &str) -> io::Result<Latencies> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    let found = address.to_socket_addrs()?.next().ok_or_else(unknown)?;
    let mut times = histogram::empty();
    for _ in 0..CONNECTS {
        let started = Instant::now();
        drop(TcpStream::connect_timeout(&found, CONNECTED_WITHIN)?);
        histogram::record(&mut times, started.elapsed(), 1);
    }
    Ok(Latencies::of(&times))
}

/// Gives every byte back until the other end closes.
pub fn echo(stream: &mut TcpStream) -> io::Result<()> {
    let mut byte = [0];
    while stream.read(&mut byte)? > 0 {
        stream.write_all(&byte)?;
    }
    Ok(())
}

/// Reads until the other end closes, and counts.
pub fn drain(stream: &mut TcpStream) -> io::Result<u64> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(bytes),
            read => bytes += read as u64,
        }
    }
}

/// One byte there and back, many times.
pub fn round_trips(mut stream: TcpStream) -> io::Result<Latencies> {
    stream.set_nodelay(true)?;
    let mut times = histogram::empty();
    let mut byte = [1];
    for _ in 0..ROUND_TRIPS {
        let started = Instant::now();
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        histogram::record(&mut times, started.elapsed(), 1);
    }
    Ok(Latencies::of(&times))
}

/// Sends as much as goes in a while.
pub fn send(mut stream: TcpStream) -> io::Result<()> {
    let buffer = vec![0; CHUNK_BYTES];
    let started = Instant::now();
    while started.elapsed() < THROUGHPUT_FOR {
        stream.write_all(&buffer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connecting_elsewhere_takes_a_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let taken = thread::spawn(move || {
            for _ in 0..CONNECTS {
                listener.accept().unwrap();
            }
        });
        assert_eq!(connects(&address).unwrap().count, u64::from(CONNECTS));
        taken.join().unwrap();
        connects(&address).unwrap_err();
    }

    #[test]
    fn only_loopback_is_here() {
        for here in ["127.0.0.1:9092", "localhost:9092", "[::1]:9092"] {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in ["broker:9092", "10.0.0.1:9092", "[2001:db8::1]:9092"] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn loopback_has_a_throughput_and_a_round_trip() {
        let network = loopback().unwrap();
        assert!(network.bytes_per_second > 1e6, "{network:?}");
        assert_eq!(network.round_trip.count, u64::from(ROUND_TRIPS));
    }
}
