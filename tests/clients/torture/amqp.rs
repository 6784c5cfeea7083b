//! AMQP side: publishers of large persistent messages with confirms; [`super::consumer`] consumes them.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::methods::{Basic, Connection, basic, channel, confirm, connection, queue};
use stafett_amqp_wire::{
    ContentHeader, Encoder, Frame, FrameKind, Method, PropertiesBuilder, TableBuilder, frame,
};

use super::load::{Load, Sent, Work};
use super::{AHEAD, MESSAGE, PATIENCE, content, number_of};

const FRAME_BYTES: u32 = 131_072;

/// A connection with channel 1.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    buffer: BytesMut,
}

impl Client {
    pub(super) fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = Self {
            stream,
            buffer: BytesMut::new(),
        };
        client.stream.write_all(&frame::PROTOCOL_HEADER)?;
        client.method()?;
        client.send(
            0,
            connection::StartOk {
                client_properties: TableBuilder::new().finish(),
                mechanism: "PLAIN".into(),
                response: Bytes::from_static(b"\0guest\0guest"),
                locale: "en_US".into(),
            },
        )?;
        client.method()?;
        client.send(
            0,
            connection::TuneOk {
                channel_max: 10,
                frame_max: FRAME_BYTES,
                heartbeat: 0,
            },
        )?;
        let open = connection::Open {
            virtual_host: "/".into(),
            ..connection::Open::default()
        };
        client.send(0, open)?;
        client.method()?;
        client.send(1, channel::Open::default())?;
        client.method()?;
        Ok(client)
    }

    pub(super) fn send(&mut self, channel: u16, method: impl Into<Method>) -> io::Result<()> {
        let mut out = BytesMut::new();
        method.into().encode(channel, &mut out);
        self.stream.write_all(&out)
    }

    /// Returns the next frame. After a read timeout the next call continues.
    pub(super) fn frame(&mut self) -> io::Result<Frame> {
        let mut piece = vec![0; 64 << 10];
        loop {
            if let Some(frame) = frame::split(&mut self.buffer, 0).unwrap() {
                return Ok(frame);
            }
            let count = self.stream.read(&mut piece)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.buffer.extend_from_slice(&piece[..count]);
        }
    }

    pub(super) fn method(&mut self) -> io::Result<Method> {
        Ok(Method::decode(self.frame()?.payload).unwrap())
    }

    /// Reads the content behind a method and returns its number.
    pub(super) fn content(&mut self, place: &str) -> io::Result<u64> {
        self.stream.set_read_timeout(Some(PATIENCE))?;
        let header = ContentHeader::decode(self.frame()?.payload).unwrap();
        let mut body = Vec::new();
        while (body.len() as u64) < header.body_size {
            body.extend_from_slice(&self.frame()?.payload);
        }
        Ok(number_of(place, &body, &MESSAGE))
    }

    fn publish(&mut self, queue: &'static str, body: &[u8]) -> io::Result<()> {
        self.publish_part(queue, body, body.len())
    }

    /// Publishes a body that may be shorter than its stated size.
    pub(super) fn publish_part(&mut self, queue: &'static str, body: &[u8], said: usize) -> io::Result<()> {
        let mut out = BytesMut::with_capacity(body.len() + 1000);
        let publish = basic::Publish {
            routing_key: queue.into(),
            ..basic::Publish::default()
        };
        Method::from(publish).encode(1, &mut out);
        let properties = PropertiesBuilder {
            delivery_mode: Some(2),
            ..PropertiesBuilder::default()
        };
        let header = ContentHeader {
            body_size: said as u64,
            properties: properties.finish(),
        };
        Encoder::frame(&mut out, FrameKind::Header, 1, |e| header.encode(e));
        for piece in body.chunks(FRAME_BYTES as usize - 8) {
            Encoder::frame(&mut out, FrameKind::Body, 1, |e| e.raw(piece));
        }
        self.stream.write_all(&out)
    }
}

pub(super) fn declare(address: &str, queue: &'static str) {
    let mut client = Client::open(address).unwrap();
    let declare = queue::Declare {
        queue: queue.into(),
        durable: true,
        ..queue::Declare::default()
    };
    client.send(1, declare).unwrap();
    assert!(matches!(client.method().unwrap(), Method::Queue(_)));
}

/// Publishes to a queue, over one connection after another.
pub(super) fn publish(address: &str, queue: &'static str, load: &Load) -> Sent {
    let mut sent = Sent::default();
    while load.goes_on() {
        // The listener ends with the process and is absent until the next start.
        if Client::open(address)
            .and_then(|client| publish_on(client, queue, load, &mut sent))
            .is_err()
        {
            thread::sleep(Duration::from_millis(5));
        }
    }
    sent
}

fn publish_on(mut client: Client, queue: &'static str, load: &Load, sent: &mut Sent) -> io::Result<()> {
    client.send(1, confirm::Select::default())?;
    client.method()?;
    let first = sent.next();
    let mut waiting = BTreeSet::new();
    while load.goes_on() || !waiting.is_empty() {
        if load.goes_on() && waiting.len() < AHEAD && load.has_room(Work::Publish) {
            let number = sent.number();
            waiting.insert(number);
            client.publish(queue, &content(number, &MESSAGE))?;
            continue;
        }
        if waiting.is_empty() {
            continue;
        }
        let method = client.method()?;
        let (tag, multiple, is_good) = if let Method::Basic(Basic::Ack(ack)) = &method {
            (ack.delivery_tag, ack.multiple, true)
        } else if let Method::Basic(Basic::Nack(nack)) = &method {
            (nack.delivery_tag, nack.multiple, false)
        } else {
            // The broker is stopping.
            assert!(
                matches!(method, Method::Connection(Connection::Close(_))),
                "{queue}: {method:?}"
            );
            return Err(io::ErrorKind::Other.into());
        };
        // The first message of a channel has the tag 1.
        let last = first + tag - 1;
        let behind = waiting.split_off(&(last + 1));
        let answered = if multiple {
            std::mem::replace(&mut waiting, behind)
        } else {
            waiting.extend(behind);
            waiting.take(&last).into_iter().collect()
        };
        for number in answered {
            if is_good {
                sent.acknowledge(number);
                load.done(Work::Publish);
            } else {
                sent.refuse(number, "nack".to_owned());
            }
        }
    }
    Ok(())
}

/// Publishes a message that must be accepted.
pub(super) fn publish_one(address: &str, queue: &'static str, sent: &mut Sent) {
    let mut client = Client::open(address).unwrap();
    client.send(1, confirm::Select::default()).unwrap();
    client.method().unwrap();
    let number = sent.number();
    client.publish(queue, &content(number, &MESSAGE)).unwrap();
    let answer = client.method().unwrap();
    assert!(
        matches!(answer, Method::Basic(Basic::Ack(_))),
        "{queue} takes nothing more: {answer:?}"
    );
    sent.acknowledge(number);
}

/// The numbers in a queue, in its order; they are taken out of it.
pub(super) fn stored(address: &str, queue: &'static str) -> Vec<u64> {
    let mut client = Client::open(address).unwrap();
    let mut numbers = Vec::new();
    loop {
        let get = basic::Get {
            queue: queue.into(),
            no_ack: true,
            ..basic::Get::default()
        };
        client.send(1, get).unwrap();
        let answer = client.method().unwrap();
        if matches!(answer, Method::Basic(Basic::GetEmpty(_))) {
            return numbers;
        }
        assert!(matches!(answer, Method::Basic(Basic::GetOk(_))), "{answer:?}");
        numbers.push(client.content(queue).unwrap());
    }
}
