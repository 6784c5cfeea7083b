//! Members of share groups (KIP-932): they report, acquire records, and settle them, or fall silent.

mod deliveries;
mod requests;
mod steps;

pub use self::steps::ShareStep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use stafett_kafka_wire::Request;
use stafett_kafka_wire::messages::{
    ShareAcknowledgeRequest, ShareFetchRequest, ShareFetchResponse, ShareGroupHeartbeatRequest,
};
use stafett_model::BatchHeader;

use self::deliveries::{Deliveries, Delivery, Holder, PlaceKey, Settled};
use self::requests::{VERSION, acknowledgement, fetch, heartbeat};
use super::connection::Connection;
use super::consumers::Owned;
use super::reading::id_of_record;
use super::{Known, Topic};
use crate::ledger::{Ledger, LogKey, Seen};
use crate::server::Server;
use crate::world::Finding;

/// Number of groups.
const GROUPS: u8 = 2;
/// Number of members, in turn of the groups.
const MEMBERS: u8 = 5;

/// Milliseconds in which the broker notices the end of connections.
const NOTICED_MS: i64 = 60;

/// Kinds of acknowledgements.
const GAP: i8 = 0;
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;
const RENEW: i8 = 4;

/// Error codes of Kafka.
mod code {
    pub(super) const UNKNOWN_MEMBER: i16 = 25;
    pub(super) const GROUP_NOT_FOUND: i16 = 69;
    pub(super) const FENCED_EPOCH: i16 = 110;
    pub(super) const SESSION_NOT_FOUND: i16 = 122;
}

/// Settings of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    lock_ms: i64,
    deliveries_max: u32,
    reads_committed: bool,
}

const RULES: [Rules; GROUPS as usize] = [
    Rules {
        lock_ms: 15_000,
        deliveries_max: 3,
        reads_committed: false,
    },
    Rules {
        lock_ms: 20_000,
        deliveries_max: 5,
        reads_committed: true,
    },
];

fn rules(group: u8) -> &'static Rules {
    let [first, second] = &RULES;
    if group == 0 { first } else { second }
}

/// All share groups.
#[derive(Debug, Clone)]
pub(super) struct Sharing {
    members: Vec<Member>,
    deliveries: Deliveries,
    /// True once the settings of all groups are stored.
    is_configured: bool,
    /// Groups that a member has joined.
    made: BTreeSet<u8>,
}

/// A member.
#[derive(Debug, Clone)]
struct Member {
    number: u8,
    /// Number of earlier members in its place.
    lives: u32,
    connection: Option<Connection>,
    waiting: VecDeque<Asked>,
    /// True while it wants to be in its group.
    is_in: bool,
    /// Epoch of its last answer; 0 joins.
    epoch: i32,
    report_ms: i64,
    assigned: BTreeSet<Owned>,
    /// Epoch of the next request of its session, and its partitions.
    session: Option<(i32, BTreeSet<Owned>)>,
    /// True if a connection that it gave up may have a request that opens a session, processed late: that one
    /// takes the place of its next.
    may_lose_session: bool,
}

/// A pending request.
#[derive(Debug, Clone)]
enum Asked {
    Report,
    Leave,
    Fetch(Sent),
    Acknowledge(Sent),
}

/// Acknowledgements of a request, by place.
#[derive(Debug, Clone)]
struct Sent {
    at_ms: i64,
    settled: BTreeMap<PlaceKey, Vec<Settled>>,
}

/// Parts of the world that answers concern.
struct Context<'a> {
    topics: &'a [Topic],
    ledger: &'a mut Ledger,
    deliveries: &'a mut Deliveries,
    may_refuse: bool,
    now_ms: i64,
}

impl Context<'_> {
    /// Returns the log of a partition, unless its topic is gone.
    fn log(&self, (id, partition): Owned) -> Option<LogKey> {
        let has_id =
            |topic: &&Topic| matches!(topic.known, Known::There(it) | Known::Deleting(it) if it == id);
        let topic = self.topics.iter().find(has_id)?;
        Some(topic.log(u8::try_from(partition).ok()?))
    }

    /// True if the deletion of a topic was requested.
    fn is_going(&self, id: stafett_kafka_wire::Uuid) -> bool {
        self.topics.iter().any(|topic| topic.known == Known::Deleting(id))
    }

    /// Takes the records of a fetch.
    fn take(
        &mut self,
        (group, holder): (u8, Holder),
        answer: &ShareFetchResponse,
        sent_ms: i64,
    ) -> Result<(), Finding> {
        for topic in &answer.responses {
            for partition in &topic.partitions {
                let Some(log) = self.log((topic.topic_id, partition.partition_index)) else {
                    continue;
                };
                if partition.error_code != 0 && !self.may_refuse && !self.is_going(topic.topic_id) {
                    return Err(Finding(format!("{log:?} cannot be shared: {partition:?}")));
                }
                let seen = records_of(log, partition.records.clone().into_bytes())?;
                for range in &partition.acquired_records {
                    for offset in range.first_offset..=range.last_offset {
                        let offset = u64::try_from(offset).unwrap_or(u64::MAX);
                        let id = seen.get(&offset).copied().ok_or_else(|| {
                            Finding(format!("offset {offset} of {log:?} was acquired and not sent"))
                        })?;
                        let count = u32::try_from(range.delivery_count).unwrap_or(0);
                        let delivery = Delivery {
                            offset,
                            count,
                            is_gap: id.is_none(),
                        };
                        let at = (sent_ms, self.now_ms);
                        self.deliveries
                            .deliver((group, log), delivery, holder, at, rules(group))?;
                        match id {
                            Some(id) if rules(group).reads_committed => {
                                self.ledger.saw_committed(log, Seen { offset, id })?;
                            }
                            Some(id) => self.ledger.saw(log, offset, id)?,
                            None => {}
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Handles the outcome of acknowledgements, by place.
    fn settle(
        &mut self,
        (group, holder): (u8, Holder),
        sent: &Sent,
        outcomes: &BTreeMap<Owned, i16>,
        is_stored: bool,
    ) -> Result<(), Finding> {
        let outcomes: BTreeMap<LogKey, i16> = outcomes
            .iter()
            .filter_map(|(owned, code)| Some((self.log(*owned)?, *code)))
            .collect();
        for (key, settled) in &sent.settled {
            let is_there = self
                .topics
                .iter()
                .any(|topic| topic.is_there() && topic.log(key.1.partition) == key.1);
            let (deliveries, now_ms) = (&mut *self.deliveries, self.now_ms);
            match outcomes.get(&key.1) {
                Some(0) if is_stored => {
                    deliveries.on_settled(*key, holder, settled, sent.at_ms, rules(group))?;
                }
                Some(_) if is_stored && is_there && !self.may_refuse => {
                    deliveries.on_refused(*key, holder, settled, true, now_ms)?;
                }
                None if is_stored && is_there && !self.may_refuse => {
                    return Err(Finding(format!("{settled:?} of {key:?} is not answered")));
                }
                Some(_) | None => deliveries.on_refused(*key, holder, settled, false, now_ms)?,
            }
        }
        Ok(())
    }
}

/// Returns the records of batches by offset, and the offsets of batches without a record.
fn records_of(log: LogKey, mut bytes: Bytes) -> Result<BTreeMap<u64, Option<(usize, u32)>>, Finding> {
    let unreadable = |error| Finding(format!("{log:?} has an unreadable batch: {error}"));
    let mut seen = BTreeMap::new();
    while !bytes.is_empty() {
        let header = BatchHeader::verify(&bytes).map_err(unreadable)?;
        let batch = bytes.split_to(header.bytes);
        let base = u64::try_from(header.base_offset).unwrap_or(0);
        seen.extend((base..base + header.span()).map(|offset| (offset, None)));
        if header.is_control() {
            continue;
        }
        for record in stafett_model::records(&batch, 16 << 20).map_err(unreadable)? {
            let record = record.map_err(unreadable)?;
            let id = id_of_record(&record);
            let id = id.ok_or_else(|| Finding(format!("{log:?} holds a foreign record")))?;
            seen.insert(record.offset.0, Some(id));
        }
    }
    Ok(seen)
}

impl Sharing {
    pub(super) fn new() -> Self {
        Self {
            members: (0..MEMBERS).map(|number| Member::new(number, 0)).collect(),
            deliveries: Deliveries::default(),
            is_configured: false,
            made: BTreeSet::new(),
        }
    }

    /// Lets members report, and processes their answers.
    pub(super) fn turn(
        &mut self,
        topics: &[Topic],
        ledger: &mut Ledger,
        may_refuse: bool,
        now_ms: i64,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        self.deliveries.now_ms = now_ms;
        let mut context = Context {
            topics,
            ledger,
            deliveries: &mut self.deliveries,
            may_refuse,
            now_ms,
        };
        for member in &mut self.members {
            member.turn(&mut context, notes)?;
            if member.epoch > 0 {
                self.made.insert(member.group());
            }
        }
        Ok(())
    }

    /// Handles the start of a shutdown.
    pub(super) fn begin_stop(&mut self) {
        self.deliveries.is_stopping = true;
    }

    /// Handles the end of the program: no connection is left.
    pub(super) fn on_end(&mut self) {
        for member in &mut self.members {
            member.lose(&mut self.deliveries);
            member.may_lose_session = false;
        }
        self.deliveries.is_stopping = false;
    }

    /// Handles the end of the program as it was: deliveries count that were stored, all after a clean stop.
    pub(super) fn on_death(&mut self, is_clean: bool) {
        self.deliveries.on_death(is_clean);
    }
}

impl Member {
    fn new(number: u8, lives: u32) -> Self {
        Self {
            number,
            lives,
            connection: None,
            waiting: VecDeque::new(),
            is_in: false,
            epoch: 0,
            report_ms: 0,
            assigned: BTreeSet::new(),
            session: None,
            may_lose_session: false,
        }
    }

    fn id(&self) -> String {
        format!("sharer-{}-{}", self.number, self.lives)
    }

    fn group(&self) -> u8 {
        self.number % GROUPS
    }

    fn holder(&self) -> Holder {
        (self.number, self.lives)
    }

    fn connect(&mut self, server: &mut Server) -> Result<(), Finding> {
        if self.connection.is_none() {
            let socket = server
                .connect_kafka()
                .map_err(|error| Finding(error.to_string()))?;
            self.connection = Some(Connection::new(socket));
        }
        Ok(())
    }

    /// Handles the end of its connection. It goes on as the same member, with nothing.
    fn lose(&mut self, deliveries: &mut Deliveries) {
        let fetches = self
            .waiting
            .iter()
            .filter(|asked| matches!(asked, Asked::Fetch(_)));
        let fetches = u32::try_from(fetches.count()).unwrap_or(u32::MAX);
        deliveries.on_left(self.group(), self.holder(), fetches);
        self.connection = None;
        self.may_lose_session |= fetches > 0;
        self.session = None;
        self.report_ms = 0;
        self.waiting.clear();
    }

    /// Ends without a word; another member comes in its place.
    fn cut(&mut self, deliveries: &mut Deliveries) {
        self.lose(deliveries);
        *self = Self::new(self.number, self.lives + 1);
    }

    fn send<R: Request>(&mut self, version: i16, request: &R, asked: Asked) {
        if let Some(connection) = &mut self.connection {
            connection.send(version, request);
            self.waiting.push_back(asked);
        }
    }

    fn report(&mut self, now_ms: i64) {
        let is_asked = |asked: &Asked| matches!(asked, Asked::Report | Asked::Leave);
        if !self.is_in || now_ms < self.report_ms || self.waiting.iter().any(is_asked) {
            return;
        }
        let request = heartbeat(self.group(), &self.id(), self.epoch);
        self.send(1, &request, Asked::Report);
    }

    /// Sends acknowledgements, and acquires records.
    fn fetch(&mut self, sent: Sent, shape: requests::Shape, ids: &BTreeMap<LogKey, Owned>) {
        let (epoch, before) = self.session.take().unwrap_or_default();
        let added: BTreeSet<Owned> = self.assigned.difference(&before).copied().collect();
        let forgotten: BTreeSet<Owned> = before.difference(&self.assigned).copied().collect();
        let me = (self.group(), &*self.id(), epoch);
        let request = fetch(me, (&added, &forgotten), &sent.settled, ids, shape);
        // A partition with acknowledgements is one of the session.
        let settled = sent.settled.keys().filter_map(|(_, log)| ids.get(log));
        self.session = Some((epoch + 1, self.assigned.iter().chain(settled).copied().collect()));
        self.send(VERSION, &request, Asked::Fetch(sent));
    }

    fn acknowledge(&mut self, sent: Sent, ends: bool, ids: &BTreeMap<LogKey, Owned>) {
        let (group, id) = (self.group(), self.id());
        let Some((epoch, _)) = &mut self.session else {
            return;
        };
        let request = acknowledgement((group, &id, if ends { -1 } else { *epoch }), &sent.settled, ids);
        *epoch += 1;
        if ends {
            self.session = None;
        }
        self.send(VERSION, &request, Asked::Acknowledge(sent));
    }

    /// True if a refusal says that an earlier connection took the session.
    fn has_lost_session(&self, code: i16) -> bool {
        self.may_lose_session && code == code::SESSION_NOT_FOUND
    }

    fn turn(&mut self, context: &mut Context<'_>, notes: &mut Vec<String>) -> Result<(), Finding> {
        self.report(context.now_ms);
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        connection.turn();
        while let Some(answer) = self.connection.as_mut().and_then(Connection::answer) {
            self.on_answer(answer, context, notes)?;
        }
        if Connection::is_cut(self.connection.as_ref()) {
            notes.push(format!("sharer {} was cut off", self.number));
            self.lose(context.deliveries);
        }
        Ok(())
    }

    fn on_answer(
        &mut self,
        answer: Bytes,
        context: &mut Context<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        let (number, me) = (self.number, (self.group(), self.holder()));
        let (Some(connection), Some(asked)) = (&mut self.connection, self.waiting.pop_front()) else {
            return Err(Finding("an answer that nothing was asked for".to_owned()));
        };
        let wrong = |what: String| Finding(format!("sharer {number} is answered {what}"));
        match asked {
            Asked::Report | Asked::Leave => {
                let told = connection.read::<ShareGroupHeartbeatRequest>(1, answer)?;
                notes.push(format!("sharer {number} is told {told:?}"));
                match told.error_code {
                    0 if matches!(asked, Asked::Leave) => *self = Self::new(number, self.lives + 1),
                    0 => {
                        self.epoch = told.member_epoch;
                        self.report_ms = context.now_ms + i64::from(told.heartbeat_interval_ms);
                        if let Some(assignment) = told.assignment {
                            let topics = assignment.topic_partitions.into_iter();
                            let owned = topics.flat_map(|topic| {
                                let id = topic.topic_id;
                                topic.partitions.into_iter().map(move |index| (id, index))
                            });
                            self.assigned = owned.collect();
                        }
                    }
                    code::UNKNOWN_MEMBER | code::FENCED_EPOCH | code::GROUP_NOT_FOUND => {
                        (self.epoch, self.report_ms) = (0, 0);
                    }
                    _ if context.may_refuse => self.report_ms = context.now_ms + 100,
                    _ => return Err(wrong(format!("{told:?}"))),
                }
            }
            Asked::Fetch(sent) => {
                let answer = connection.read::<ShareFetchRequest>(VERSION, answer)?;
                notes.push(format!("sharer {number} gets {}", requests::describe(&answer)));
                if answer.error_code != 0 && !context.may_refuse && !self.has_lost_session(answer.error_code)
                {
                    return Err(wrong(format!("{answer:?}")));
                }
                let is_stored = answer.error_code == 0;
                context.settle(me, &sent, &requests::outcomes(&answer), is_stored)?;
                context.take(me, &answer, sent.at_ms)?;
                if !is_stored {
                    self.lose(context.deliveries);
                }
            }
            Asked::Acknowledge(sent) => {
                let answer = connection.read::<ShareAcknowledgeRequest>(VERSION, answer)?;
                notes.push(format!("sharer {number} has settled: {answer:?}"));
                if answer.error_code != 0 && !context.may_refuse && !self.has_lost_session(answer.error_code)
                {
                    return Err(wrong(format!("{answer:?}")));
                }
                let is_stored = answer.error_code == 0;
                context.settle(me, &sent, &requests::settled(&answer), is_stored)?;
                if !is_stored {
                    self.lose(context.deliveries);
                }
            }
        }
        Ok(())
    }
}
