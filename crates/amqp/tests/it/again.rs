//! Similar messages that arrive together take a fast path, with the same visible results.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::methods::{Basic, Channel, basic, channel, exchange, queue};
use stafett_amqp_wire::{
    ContentHeader, Encoder, FrameKind, Method, Properties, PropertiesBuilder, TableBuilder, Value,
};
use tokio::io::AsyncWriteExt;

use crate::support::{Client, Server};

/// A message to send.
#[derive(Debug, Clone, Copy)]
struct Sent {
    exchange: &'static str,
    routing_key: &'static str,
    mandatory: bool,
    properties: usize,
    body_bytes: usize,
}

/// Everything that a client can observe of the messages.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    returned: Vec<(String, Bytes, Bytes)>,
    confirmed: u64,
    got: Vec<(String, String, Bytes, Bytes)>,
}

const COUNT: u64 = 400;

fn properties() -> Vec<Properties> {
    let headers = TableBuilder::new()
        .with(
            "CC",
            Value::Array([Value::LongString("q2".into())].into_iter().collect()),
        )
        .finish();
    let headers_only = TableBuilder::new().with("n", Value::I32(7)).finish();
    [
        PropertiesBuilder::default(),
        PropertiesBuilder {
            delivery_mode: Some(2),
            ..PropertiesBuilder::default()
        },
        PropertiesBuilder {
            delivery_mode: Some(1),
            priority: Some(3),
            content_type: Some("text/plain".into()),
            ..PropertiesBuilder::default()
        },
        PropertiesBuilder {
            headers: Some(headers),
            ..PropertiesBuilder::default()
        },
        PropertiesBuilder {
            headers: Some(headers_only),
            timestamp: Some(1_700_000_000),
            ..PropertiesBuilder::default()
        },
        PropertiesBuilder {
            reply_to: Some("somewhere".into()),
            correlation_id: Some("1".into()),
            ..PropertiesBuilder::default()
        },
    ]
    .iter()
    .map(PropertiesBuilder::finish)
    .collect()
}

/// Pseudorandom numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let count = choices.len() as u64;
        let picked = (0..).zip(choices).find(|(at, _)| *at == self.0 % count);
        *picked.unwrap().1
    }
}

/// Builds runs of similar messages, with interruptions of every kind between them.
fn script() -> Vec<Sent> {
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut sent = Sent {
        exchange: "",
        routing_key: "q",
        mandatory: false,
        properties: 0,
        body_bytes: 5,
    };
    let mut script = Vec::new();
    for _ in 0..COUNT {
        match dice.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]) {
            0 => sent.exchange = dice.pick(&["", "amq.topic", "amq.fanout"]),
            1 => sent.routing_key = dice.pick(&["q", "q2", "nowhere"]),
            2 => sent.mandatory = !sent.mandatory,
            3 => sent.properties = dice.pick(&[0, 1, 2, 3, 4, 5]),
            _ => {}
        }
        sent.body_bytes = dice.pick(&[0, 1, 5, 40, 300]);
        script.push(sent);
    }
    script
}

fn write(sent: Sent, number: usize, properties: &[Properties], out: &mut BytesMut) {
    let publish = basic::Publish {
        exchange: sent.exchange.into(),
        routing_key: sent.routing_key.into(),
        mandatory: sent.mandatory,
        ..basic::Publish::default()
    };
    Method::from(publish).encode(1, out);
    let body: Vec<u8> = format!("{number:0>300}")
        .into_bytes()
        .split_off(300 - sent.body_bytes);
    let header = ContentHeader {
        body_size: body.len() as u64,
        properties: properties.get(sent.properties).unwrap().clone(),
    };
    Encoder::frame(out, FrameKind::Header, 1, |e| header.encode(e));
    if !body.is_empty() {
        Encoder::frame(out, FrameKind::Body, 1, |e| e.raw(&body));
    }
}

impl Seen {
    /// Records frames of the server until it answers the last method.
    async fn until(&mut self, client: &mut Client, is_answer: fn(&Method) -> bool) {
        loop {
            let method = client.method().await;
            if let Method::Basic(Basic::Return(returned)) = method {
                let (properties, body) = content(client).await;
                let to = format!("{}/{}", returned.exchange, returned.routing_key);
                self.returned.push((to, properties, body));
            } else if let Method::Basic(Basic::Ack(ack)) = method {
                self.confirmed = self.confirmed.max(ack.delivery_tag);
            } else {
                assert!(is_answer(&method), "{method:?}");
                return;
            }
        }
    }

    /// Gets all messages from the queues.
    async fn get_all(&mut self, client: &mut Client) {
        for queue in ["q", "q2"] {
            loop {
                let get = basic::Get {
                    queue: queue.into(),
                    no_ack: true,
                    ..basic::Get::default()
                };
                client.send(1, get).await;
                let Method::Basic(Basic::GetOk(got)) = client.method().await else {
                    break;
                };
                let (properties, body) = content(client).await;
                let from = format!("{}/{}", got.exchange, got.routing_key);
                self.got.push((queue.to_owned(), from, properties, body));
            }
        }
    }
}

async fn content(client: &mut Client) -> (Bytes, Bytes) {
    let header = ContentHeader::decode(client.frame().await.payload).unwrap();
    let mut body = BytesMut::new();
    while (body.len() as u64) < header.body_size {
        body.extend_from_slice(&client.frame().await.payload);
    }
    (header.properties.as_bytes().clone(), body.freeze())
}

fn flows(method: &Method) -> bool {
    matches!(method, Method::Channel(Channel::FlowOk(_)))
}

async fn with_queues(server: &Server) -> Client {
    let mut client = server.client(false).await;
    for name in ["q", "q2"] {
        let declare = queue::Declare {
            queue: name.into(),
            durable: true,
            ..queue::Declare::default()
        };
        client.send(1, declare).await;
        client.method().await;
        let bind = queue::Bind {
            queue: name.into(),
            exchange: "amq.topic".into(),
            routing_key: name.into(),
            ..queue::Bind::default()
        };
        client.send(1, bind).await;
        client.method().await;
    }
    client
}

async fn seen(together: bool, confirms: bool) -> Seen {
    let server = Server::start().await;
    let mut client = with_queues(&server).await;
    if confirms {
        client.want_confirms().await;
    }
    let properties = properties();
    let mut seen = Seen::default();
    let mut out = BytesMut::new();
    for (number, sent) in script().into_iter().enumerate() {
        write(sent, number, &properties, &mut out);
        if !together {
            Method::from(channel::Flow { active: true }).encode(1, &mut out);
            client.stream.write_all(&out.split()).await.unwrap();
            seen.until(&mut client, flows).await;
        }
    }
    Method::from(channel::Flow { active: true }).encode(1, &mut out);
    client.stream.write_all(&out).await.unwrap();
    seen.until(&mut client, flows).await;
    // The answer to the queue method is behind everything published before.
    client
        .send(
            1,
            exchange::Delete {
                exchange: "none".into(),
                ..exchange::Delete::default()
            },
        )
        .await;
    seen.until(&mut client, |method| method.name() == "exchange.delete-ok")
        .await;
    while confirms && seen.confirmed < COUNT {
        client.send(1, channel::Flow { active: true }).await;
        seen.until(&mut client, flows).await;
    }
    seen.get_all(&mut client).await;
    seen
}

#[tokio::test]
async fn messages_that_come_together_end_up_as_those_that_come_one_by_one() {
    for confirms in [false, true] {
        let together = seen(true, confirms).await;
        assert!(!together.returned.is_empty() && !together.got.is_empty());
        let queues: BTreeSet<_> = together.got.iter().map(|got| &got.0).collect();
        assert_eq!(queues.len(), 2);
        assert_eq!(together.confirmed, if confirms { COUNT } else { 0 });
        assert_eq!(together, seen(false, confirms).await);
    }
}

#[tokio::test]
async fn an_exchange_that_goes_between_like_messages_is_gone_for_the_next() {
    let server = Server::start().await;
    let mut client = with_queues(&server).await;
    let declare = exchange::Declare {
        exchange: "short".into(),
        kind: "fanout".into(),
        ..exchange::Declare::default()
    };
    client.send(1, declare).await;
    client.method().await;
    let sent = Sent {
        exchange: "short",
        routing_key: "q",
        mandatory: false,
        properties: 0,
        body_bytes: 5,
    };
    let mut out = BytesMut::new();
    for number in 0..3 {
        write(sent, number, &properties(), &mut out);
    }
    let delete = exchange::Delete {
        exchange: "short".into(),
        no_wait: true,
        ..exchange::Delete::default()
    };
    Method::from(delete).encode(1, &mut out);
    write(sent, 3, &properties(), &mut out);
    client.stream.write_all(&out).await.unwrap();
    let closed = client.method().await;
    let Method::Channel(Channel::Close(close)) = closed else {
        panic!("{closed:?}");
    };
    assert_eq!(close.reply_code, 404);
}
