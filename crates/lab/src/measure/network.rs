//! The network between client and system, without a broker: throughput, and one byte there and back.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::results::{Latencies, Network, histogram};

const CHUNK_BYTES: usize = 256 << 10;
const THROUGHPUT_FOR: Duration = Duration::from_millis(300);
const ROUND_TRIPS: u32 = 2000;

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
        round_trip,
    })
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
    fn loopback_has_a_throughput_and_a_round_trip() {
        let network = loopback().unwrap();
        assert!(network.bytes_per_second > 1e6, "{network:?}");
        assert_eq!(network.round_trip.count, u64::from(ROUND_TRIPS));
    }
}
