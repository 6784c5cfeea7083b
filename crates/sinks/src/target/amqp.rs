//! An exchange or a queue of a broker of AMQP 0-9-1: records as messages that the broker confirms.
//!
//! ```text
//! bounds into the ledger ─▶ basic.publish … ─▶ all confirmed ─▶ the position
//! ```
//!
//! The broker keeps no position, so a batch whose confirms were lost is sent again. Each message has its
//! place in the header `stafett-from`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use stafett_amqp_wire::methods::{Basic, basic, confirm};
use stafett_amqp_wire::{ByteString, FrameKind, Method, PropertiesBuilder, TableBuilder, Value};
use tokio::time::timeout;

use super::topic::records::{Carried, FROM, value};
use super::{Ledger, Opened, Part, Place, Promise, Start, Steps, Surroundings, Target, TargetError};
use crate::amqp::link::{Address, Link, away, method_of, size_limit};
use crate::columns::Column;
use crate::definition::AmqpSpec;
use crate::rows::{Cell, Rows};

/// Messages on their way, at most.
const WINDOW: usize = 1000;
/// Time for a confirm.
const CONFIRM: Duration = Duration::from_secs(30);
const PERSISTENT: u8 = 2;
const TEXT_BYTES_MAX: usize = 255;

/// Messages of a connection that have no confirm yet. Confirms come in any order.
#[derive(Debug, Default)]
struct Confirms {
    last: u64,
    open: BTreeSet<u64>,
}

impl Confirms {
    fn published(&mut self) {
        self.last += 1;
        self.open.insert(self.last);
    }

    /// Takes a confirm of one message, or of all up to it. The number 0 is that of the last one.
    fn take(&mut self, tag: u64, is_multiple: bool) {
        if !is_multiple {
            self.open.remove(&tag);
        } else if tag == 0 {
            self.open.clear();
        } else {
            self.open = self.open.split_off(&tag.saturating_add(1));
        }
    }
}

/// An exchange or a queue.
pub struct AmqpTarget {
    sink: String,
    spec: AmqpSpec,
    columns: Vec<Column>,
    steps: Steps,
    ledger: Option<Arc<dyn Ledger>>,
    link: Option<Link>,
    confirms: Confirms,
    /// Size of a body that the broker takes at most, once it has refused a larger one.
    bytes_max: Option<u64>,
    /// Positions of places that this writer has.
    places: HashMap<Place, u64>,
}

impl std::fmt::Debug for AmqpTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "AmqpTarget({:?}, {:?})",
            self.spec.exchange, self.spec.routing_key
        )
    }
}

impl AmqpTarget {
    pub fn new(sink: &str, spec: &AmqpSpec, columns: &[Column], surroundings: &Surroundings) -> Self {
        Self {
            sink: sink.to_owned(),
            spec: spec.clone(),
            columns: columns.to_vec(),
            steps: surroundings.steps.clone(),
            ledger: surroundings.ledger.clone(),
            link: None,
            confirms: Confirms::default(),
            bytes_max: None,
            places: HashMap::new(),
        }
    }

    fn ledger(&self) -> Result<&dyn Ledger, TargetError> {
        let why = "the positions of this sink are those of its app";
        self.ledger
            .as_deref()
            .ok_or_else(|| TargetError::Stop(why.to_owned()))
    }

    async fn connect(&mut self) -> Result<(), TargetError> {
        let url = &self.spec.url;
        let text = url
            .resolve()
            .map_err(|why| TargetError::Stop(format!("{url}: {why}")))?;
        // Between flushes nothing is read, so without heartbeats.
        let mut link = Link::open(&Address::parse(&text)?, self.spec.ca.as_deref(), 0).await?;
        link.call(confirm::Select::default()).await?;
        self.confirms = Confirms::default();
        self.link = Some(link);
        Ok(())
    }

    /// Sends the rows of a part. A row that the broker refuses for its size is poison; from then on its limit
    /// is known, and a part with such a row is refused before any of it is sent.
    async fn send(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        self.check_sizes(part)?;
        let sent = self.publish(part).await;
        if let Err(why) = &sent {
            // The channel has ended, or confirms of this part are under way.
            self.link = None;
            if let TargetError::Poison { text, .. } = why {
                self.bytes_max = size_limit(text);
            }
        }
        sent
    }

    fn check_sizes(&self, part: &Part<'_>) -> Result<(), TargetError> {
        let Some(max) = self.bytes_max else {
            return Ok(());
        };
        for (offset, cells) in part.rows.iter() {
            let (_, body) = self.message(part, offset, cells);
            if body.len() as u64 > max {
                return Err(TargetError::Poison {
                    class: "size".to_owned(),
                    text: format!("a message of {} bytes, and the broker takes {max}", body.len()),
                });
            }
        }
        Ok(())
    }

    async fn publish(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        if self.link.is_none() {
            self.connect().await?;
        }
        for (offset, cells) in part.rows.iter() {
            let (properties, body) = self.message(part, offset, cells);
            let publish = basic::Publish {
                exchange: self.spec.exchange.as_str().into(),
                routing_key: self.spec.routing_key.as_str().into(),
                mandatory: true,
                ..basic::Publish::default()
            };
            let link = self.link.as_mut().ok_or_else(|| away("the connection ended"))?;
            link.publish(publish, &properties, &body);
            self.confirms.published();
            if self.confirms.open.len() >= WINDOW {
                self.confirmed(WINDOW / 2).await?;
            }
        }
        self.confirmed(0).await
    }

    /// Waits until at most `left` messages have no confirm.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all others say nothing about messages"
    )]
    async fn confirmed(&mut self, left: usize) -> Result<(), TargetError> {
        let link = self.link.as_mut().ok_or_else(|| away("the connection ended"))?;
        let written = timeout(CONFIRM, link.write()).await;
        written.map_err(|_| away("it does not read"))??;
        while self.confirms.open.len() > left {
            let frame = timeout(CONFIRM, link.frame()).await;
            let frame = frame.map_err(|_| away("it does not confirm"))??;
            if frame.kind != FrameKind::Method as u8 {
                continue;
            }
            match method_of(frame.payload)? {
                Method::Basic(Basic::Ack(ack)) => self.confirms.take(ack.delivery_tag, ack.multiple),
                Method::Basic(Basic::Nack(_)) => return Err(away("it did not take a message")),
                Method::Basic(Basic::Return(back)) => {
                    let (exchange, key) = (&self.spec.exchange, &self.spec.routing_key);
                    let why = format!(
                        "no queue takes what is published to {exchange:?} under {key:?}: {} ({})",
                        back.reply_text, back.reply_code
                    );
                    return Err(TargetError::Stop(why));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns properties and body of a row.
    fn message(&self, part: &Part<'_>, offset: u64, cells: &[Cell]) -> (PropertiesBuilder, Vec<u8>) {
        let rows: &Rows = part.rows.rows;
        let carried = Carried::of(rows, cells);
        let mut body = Vec::new();
        value(&mut body, &self.columns, rows, cells);
        let mut headers = TableBuilder::new();
        if let Some(key) = carried.key {
            headers.push("stafett-key", &Value::Bytes(Bytes::copy_from_slice(key)));
        }
        let mut properties = PropertiesBuilder {
            delivery_mode: Some(PERSISTENT),
            ..PropertiesBuilder::default()
        };
        if carried.timestamp >= 0 {
            properties.timestamp = u64::try_from(carried.timestamp / 1000).ok();
            headers.push("timestamp_in_ms", &Value::I64(carried.timestamp));
        }
        for (name, value) in carried.headers() {
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            let text = value.and_then(|value| std::str::from_utf8(value).ok());
            match (property(&mut properties, name), text) {
                (Some(field), Some(text)) if text.len() <= TEXT_BYTES_MAX => *field = Some(text.into()),
                _ if name.len() > TEXT_BYTES_MAX => {}
                (_, Some(text)) => {
                    headers.push(name, &Value::LongString(Bytes::copy_from_slice(text.as_bytes())));
                }
                (_, None) => match value {
                    Some(value) => headers.push(name, &Value::Bytes(Bytes::copy_from_slice(value))),
                    None => headers.push(name, &Value::Void),
                },
            }
        }
        let from = format!("{}@{offset}", part.place);
        if properties.message_id.is_none() {
            let id = format!("{}/{from}", self.sink);
            properties.message_id = (id.len() <= TEXT_BYTES_MAX).then(|| id.as_str().into());
        }
        if let Ok(name) = std::str::from_utf8(FROM) {
            headers.push(name, &Value::LongString(Bytes::from(from)));
        }
        properties.headers = Some(headers.finish());
        (properties, body)
    }
}

/// Returns the property that a header of a record is.
fn property<'a>(properties: &'a mut PropertiesBuilder, name: &str) -> Option<&'a mut Option<ByteString>> {
    Some(match name {
        "content-type" => &mut properties.content_type,
        "content-encoding" => &mut properties.content_encoding,
        "correlation-id" => &mut properties.correlation_id,
        "reply-to" => &mut properties.reply_to,
        "message-id" => &mut properties.message_id,
        "type" => &mut properties.kind,
        "app-id" => &mut properties.app_id,
        // A broker refuses another user than that of the connection: it stays a header.
        _ => return None,
    })
}

#[async_trait]
impl Target for AmqpTarget {
    async fn open(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        // Confirms of an earlier batch are of no use any more.
        self.link = None;
        self.places.remove(place);
        let opened = self.ledger()?.open(place, start).await?;
        self.connect().await?;
        self.steps.reach("opened")?;
        self.places.insert(place.clone(), opened.next);
        Ok(opened)
    }

    async fn write(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        if self.places.get(part.place) != Some(&part.from) {
            return Err(TargetError::Fenced(part.place.clone()));
        }
        self.ledger()?.begin_part(part).await?;
        self.steps.reach("bounds")?;
        self.send(part).await?;
        self.steps.reach("confirmed")?;
        self.ledger()?.end_part(part);
        self.places.insert(part.place.clone(), part.next);
        Ok(())
    }

    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        let why = "the positions of this sink are those of its app: stafett app describe shows them";
        Err(TargetError::Stop(why.to_owned()))
    }

    async fn set_position(&mut self, _: &Place, _: Start) -> Result<(), TargetError> {
        let why = "the positions of this sink are those of its app: stafett app reset moves them";
        Err(TargetError::Stop(why.to_owned()))
    }

    async fn set_position_since(&mut self, place: &Place, _: u64, start: Start) -> Result<(), TargetError> {
        self.set_position(place, start).await
    }

    async fn prepare(&mut self, _: bool) -> Result<Vec<String>, TargetError> {
        // Exchanges and queues are the other broker's. One that is not there stops the sink.
        self.connect().await?;
        Ok(Vec::new())
    }

    fn promise(&self) -> Promise {
        Promise::AtLeastOnce
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirms_count_in_any_order() {
        let mut confirms = Confirms::default();
        (0..8).for_each(|_| confirms.published());
        confirms.take(6, false);
        confirms.take(5, true);
        assert_eq!(confirms.open, [7, 8].into());
        confirms.take(3, true);
        confirms.take(6, false);
        assert_eq!(confirms.open, [7, 8].into());
        confirms.take(0, true);
        assert!(confirms.open.is_empty());
    }
}
