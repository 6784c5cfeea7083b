//! Records while they come, as server-sent events (WHATWG HTML, section 9.2) or lines of JSON.
//!
//! ```text
//! id: CURSOR        a place in all partitions, behind this record
//! event: record     or gap, or end
//! data: {…}
//!
//! {"id":"CURSOR","record":{…}}
//! ```
//!
//! A stream that waits keeps the places of its partitions and a watch. It ends when the topic is deleted or
//! gets further partitions, or the broker stops; the event `end` has the reason. A client that connects again
//! goes on behind the last event that it had.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::{Code, Draining, Parameter, Path, Problem, Query, Slot, slot, sse};
use stafett_journal::{Visibility, Watch};
use stafett_model::Offset;
use stafett_topics::{ReadEnd, RecordItem, RecordTail, Topic, TopicCatalog};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::choice::Choice;
use super::position::{self, Position};
use super::read::{Gap, SHOWN, of_read, visibility};
use super::record::{RecordShown, size};
use super::search::check_partitions;
use super::{Reads, cursor};
use crate::Routes;
use crate::content::Form;
use crate::topics::{find, no_such_topic, reach};

/// Time without an event after which a comment is sent.
const TICK: Duration = Duration::from_secs(10);
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Bytes of records of one piece of the stream.
const PIECE_BYTES: usize = 64 << 10;
/// Records of one piece.
const PIECE_RECORDS: usize = 100;

/// Reader of all partitions.
struct Follower {
    broker: Slot<Broker>,
    /// Not kept alive: the broker may stop while the stream waits.
    catalog: Weak<TopicCatalog>,
    reads: Reads,
    topic: Arc<Topic>,
    /// Offset of the next record of each partition.
    places: Vec<u64>,
    /// Partitions that may have more.
    unread: BTreeSet<u32>,
    watch: Watch,
    choice: Choice,
    form: Form,
    stream: sse::Form,
    visibility: Visibility,
    /// Cancelled when the broker stops.
    draining: CancellationToken,
    ended: bool,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        get(
            "/v1/topics/{topic}/events",
            "Sends records while they come, as server-sent events, or as lines of JSON where Accept is \
             application/x-ndjson. The id of an event is a place in all partitions; with it as header Last-Event-ID, \
             which a browser sends by itself, the stream goes on there.",
        )
        .query(&[Parameter::text(
            "from",
            "`latest` (the default), `earliest`, `-N` (the last N of each partition), or a time.",
        )])
        .query(&Choice::KEYS)
        .query(&SHOWN)
        .streams::<RecordShown>(sse::TYPE)
        .refuses(&[Code::NotServing, Code::NoSuchTopic, Code::OutOfRange]),
        events,
    )
}

async fn events(
    State(broker): State<Slot<Broker>>,
    State(reads): State<Reads>,
    Draining(draining): Draining,
    Path(name): Path<String>,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let from = query
        .get("from")
        .map(|text| Position::of("from", text))
        .transpose()?;
    if matches!(from, Some(Position::Offset(_))) {
        let why = "from is latest, earliest, -N or a time: an offset is one of a single partition";
        return Err(Problem::bad_request(why));
    }
    let from = from.unwrap_or(Position::Latest);
    let serving = broker.get()?;
    let topic = find(&serving, &name)?;
    check_partitions(&topic)?;
    reach(&serving, &topic).await?;
    let catalog = serving.catalog();
    let after = headers.get("last-event-id").filter(|id| !id.is_empty());
    let after = after.map(|id| cursor::read(&topic, id.to_str().unwrap_or_default()));
    let mut follower = Follower {
        catalog: Arc::downgrade(catalog),
        reads,
        places: after.transpose()?.unwrap_or_default(),
        unread: (0..topic.partitions()).collect(),
        watch: catalog.watch(),
        choice: Choice::of(&query)?,
        form: Form::of(query.get("as"))?,
        stream: sse::Form::accepted(&headers),
        visibility: visibility(&query)?,
        topic,
        broker,
        draining,
        ended: false,
    };
    let goes_on = !follower.places.is_empty();
    for partition in 0..follower.topic.partitions() {
        let log = follower.topic.log(partition);
        let (log, bounds) = log
            .and_then(|log| Some((log, catalog.bounds(log)?)))
            .ok_or_else(|| no_such_topic(&name))?;
        catalog.watch_log(&follower.watch, log, partition);
        if follower.places.len() <= partition as usize {
            // Of a partition that is new since the event, everything is.
            let from = if goes_on { Position::Earliest } else { from };
            let end = position::end(bounds, follower.visibility);
            follower
                .places
                .push(from.offset(catalog, log, bounds, end).await?);
        }
    }
    let form = follower.stream;
    Ok(sse::answer_as(form, Box::new(follower), Follower::next_piece))
}

impl Follower {
    /// Waits for the next piece of the stream. `None` at its end.
    async fn next_piece(mut self: Box<Self>) -> Option<(Box<Self>, Bytes)> {
        while !self.ended {
            if self.draining.is_cancelled() {
                return Some(self.ended_with(&slot::closed()));
            }
            let Some(partition) = self.unread.first().copied() else {
                let grown = self.draining.run_until_cancelled(self.watch.grown());
                match timeout(TICK, grown).await {
                    Ok(Some(())) => {
                        self.unread.extend(self.watch.take());
                        continue;
                    }
                    Ok(None) => continue,
                    Err(_) => {}
                }
                return Some(match self.check_current() {
                    Ok(()) => {
                        let silence = self.stream.silence();
                        (self, silence)
                    }
                    Err(why) => self.ended_with(&why),
                });
            };
            // Nothing of a read is kept while the stream waits.
            match Box::pin(self.read(partition)).await {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Some((self, piece.into())),
                Err(why) => return Some(self.ended_with(&why)),
            }
        }
        None
    }

    /// Ends the stream, with the reason as its last event.
    fn ended_with(mut self: Box<Self>, why: &Problem) -> (Box<Self>, Bytes) {
        let mut piece = String::new();
        self.write(&mut piece, "end", &why.to_value());
        self.ended = true;
        (self, piece.into())
    }

    /// Checks that the broker serves, and that the topic is there with the same partitions.
    fn check_current(&self) -> Result<(), Problem> {
        let topic = self.broker.get()?.topics().with_id(self.topic.id);
        let topic = topic.ok_or_else(|| no_such_topic(&self.topic.name))?;
        if topic.partitions() == self.topic.partitions() {
            return Ok(());
        }
        let why = format!(
            "the topic has {} partitions by now: connect again",
            topic.partitions()
        );
        Err(Problem::new(Code::Changed, why))
    }

    /// Reads a partition on.
    async fn read(&mut self, partition: u32) -> Result<String, Problem> {
        let _turn = self.reads.turn().await?;
        let catalog = self.catalog.upgrade().ok_or_else(slot::closed)?;
        let log = self.topic.log(partition);
        let log = log.ok_or_else(|| no_such_topic(&self.topic.name))?;
        let from = self.places.get(partition as usize).copied().unwrap_or_default();
        let mut tail = RecordTail::new(log, Offset(from), READ_BYTES, self.visibility);
        let (mut piece, mut bytes, mut records) = (String::new(), 0, 0);
        while bytes < PIECE_BYTES && records < PIECE_RECORDS && tail.bytes_read() <= 16 * READ_BYTES {
            let item = tail.item();
            if let Some(place) = self.places.get_mut(partition as usize) {
                *place = tail.next_offset().0;
            }
            match item {
                Some(RecordItem::Record(record)) if self.choice.wants(&record) => {
                    bytes += size(&record);
                    records += 1;
                    let shown = RecordShown::of(partition, &record, self.form);
                    self.write(&mut piece, "record", &shown);
                }
                Some(RecordItem::Record(_)) => {}
                Some(RecordItem::Skipped(skipped)) => {
                    let gap = json!({ "partition": partition, "gap": Gap::of(skipped) });
                    self.write(&mut piece, "gap", &gap);
                }
                None => match tail.read(&catalog).await {
                    Ok(()) => {}
                    Err(ReadEnd::AtEnd) => {
                        self.unread.remove(&partition);
                        break;
                    }
                    Err(why) => {
                        let problem = of_read(&why, &self.topic.name);
                        self.write(&mut piece, "end", &problem.to_value());
                        self.ended = true;
                        break;
                    }
                },
            }
        }
        catalog
            .topics()
            .traffic()
            .count_out(log, records as u64, bytes as u64);
        Ok(piece)
    }

    fn write(&self, piece: &mut String, event: &str, data: &impl Serialize) {
        let id = cursor::text(&self.topic, self.places.iter().copied());
        // The shapes of this crate are JSON without line breaks, unless a stored value has some.
        let data = serde_json::to_string(data).unwrap_or_default();
        self.stream.put(piece, Some(&id), event, &data);
    }
}
