//! Connections that announce a large request, send a small part of it and fall silent.

use std::io::{self, Write};
use std::net::TcpStream;

use super::amqp::Client;
use super::{QUEUES, live};
use crate::broker::Broker;

/// Number of connections by protocol, and bytes that each announces.
const KAFKA: (usize, usize) = (100, 100_000_000);
const AMQP: (usize, usize) = (20, 15_000_000);
const LIVE: (usize, usize) = (20, 1_000_000);
/// Bytes that each of them sends.
const SENT: usize = 70_000;

/// Opens the connections, which last as long as the value. The broker may have closed some to make room.
pub(super) fn open(broker: &Broker) -> Vec<TcpStream> {
    let kafka = || {
        let mut stream = TcpStream::connect(broker.kafka())?;
        stream.write_all(&i32::try_from(KAFKA.1).unwrap().to_be_bytes())?;
        stream.write_all(&vec![0; SENT])?;
        Ok(stream)
    };
    let amqp = || {
        let mut client = Client::open(broker.amqp())?;
        client.publish_part(QUEUES[0], &vec![0; SENT], AMQP.1)?;
        Ok(client.stream)
    };
    let live = || live::send_part(broker.http(), SENT, LIVE.1);
    let all: [(usize, &dyn Fn() -> io::Result<TcpStream>); 3] =
        [(KAFKA.0, &kafka), (AMQP.0, &amqp), (LIVE.0, &live)];
    all.into_iter()
        .flat_map(|(count, open)| (0..count).map(move |_| open().expect("half a request is sent")))
        .collect()
}
