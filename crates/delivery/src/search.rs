//! Search through the ready messages of a dispatcher, without any effect on them.
//!
//! It passes over messages that no consumer would get: expired ones, and transient ones of an earlier run.

use std::ops::ControlFlow;
use std::sync::Arc;

use stafett_journal::Journal;
use stafett_model::{Arrival, Epoch, Offset, StoredMessage};
use stafett_queue::{DeliveryId, Lane};
use stafett_topics::{ReadEnd, Tail, TailItem};

use super::context::DeliveryContext;
use super::dispatcher::{DeliveryState, Dispatcher};
use super::finder::FoundMessage;
use super::selection::Selected;

/// Messages examined before other tasks get their turns.
const TURN_MESSAGES: u64 = 256;

/// Order in which a search finds messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SearchOrder {
    /// The highest priority first, and of equals the oldest.
    #[default]
    Priority,
    /// The oldest first, whatever its priority.
    Oldest,
}

/// Bounds of a search.
#[derive(Debug, Clone, Copy)]
pub struct SearchBounds {
    /// Number of messages to be examined.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: usize,
}

/// Place in the messages of a dispatcher: of each lane, the first offset that was not examined.
pub type SearchPlace = Vec<DeliveryId>;

/// A search in progress.
#[derive(Debug)]
pub struct Search {
    dispatcher: Arc<Dispatcher>,
    context: Arc<DeliveryContext>,
    order: SearchOrder,
    left: SearchBounds,
    looked_at: u64,
    lanes: Vec<SearchedLane>,
    is_unreadable: bool,
    /// True if it finds messages too that no consumer would get.
    finds_all: bool,
    /// Index of the messages that may be wanted.
    selected: Option<Selected>,
}

/// Properties that all wanted messages have: the search passes over others without reading them.
#[derive(Debug, Clone, Copy, Default)]
pub struct SearchHint<'a> {
    /// First and last lane.
    pub lanes: Option<(u32, u32)>,
    /// Name and value of a header.
    pub header: Option<(&'a str, &'a [u8])>,
}

#[derive(Debug)]
struct SearchedLane {
    lane: u32,
    /// First offset that was not examined.
    from: u64,
    tail: Tail,
    /// Message that was found, and not returned yet.
    found: Option<(u64, StoredMessage, Epoch)>,
}

/// State of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageState {
    Ready,
    InFlight,
    Settled,
}

/// State of a message, and its deliveries so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageStatus {
    pub state: MessageState,
    /// Number of times that it was returned.
    pub returns: u32,
    /// True if it may have been delivered before.
    pub redelivered: bool,
}

/// Result of the search in one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaneEnd {
    Found,
    AtEnd,
    AtBound,
}

impl Dispatcher {
    /// Begins a search, behind `after`. `None` if the dispatcher has ended.
    pub fn search(
        self: &Arc<Self>,
        order: SearchOrder,
        bounds: SearchBounds,
        after: &[DeliveryId],
    ) -> Option<Search> {
        let context = self.context.upgrade().filter(|_| !self.is_ended())?;
        let numbers: Vec<u32> = {
            let mut inner = self.lock();
            inner.look_at_logs(self, &context);
            inner.state.lanes().map(|(number, _)| number).collect()
        };
        let lanes = numbers.into_iter().filter_map(|lane| {
            let known = after.iter().find(|place| place.lane == lane);
            let from = known.map_or(0, |place| place.offset);
            Some(SearchedLane::begin(lane, from, self.messages_of(&context, lane)?))
        });
        Some(Search {
            lanes: lanes.collect(),
            dispatcher: Arc::clone(self),
            context,
            order,
            left: bounds,
            looked_at: 0,
            is_unreadable: false,
            finds_all: false,
            selected: None,
        })
    }
}

impl Dispatcher {
    /// Finds a message in any state, as long as it is stored.
    pub async fn find(self: &Arc<Self>, id: DeliveryId) -> Option<(StoredMessage, MessageStatus)> {
        let context = self.context.upgrade()?;
        let mut tail = self.messages_of(&context, id.lane)?;
        let message = tail
            .message_at(&*context.journal, Offset(id.offset))
            .await
            .ok()??;
        let mut inner = self.lock();
        inner.look_at_lane(self, &context, id.lane);
        let lane = inner.state.lane(id.lane)?;
        let state = if lane.taken(id.offset).is_some() {
            MessageState::InFlight
        } else if lane.ready_from(id.offset) == Some(id.offset) {
            MessageState::Ready
        } else {
            MessageState::Settled
        };
        let status = MessageStatus {
            state,
            returns: lane.returns(id.offset),
            redelivered: lane.was_handed_out(id.offset),
        };
        Some((message, status))
    }

    /// Returns the place behind all messages that are there now.
    pub fn end_place(self: &Arc<Self>) -> SearchPlace {
        let mut inner = self.lock();
        if let Some(context) = self.context.upgrade() {
            inner.look_at_logs(self, &context);
        }
        let end = |(lane, state): (u32, &Lane)| DeliveryId {
            lane,
            offset: state.end(),
        };
        inner.state.lanes().map(end).collect()
    }

    /// Returns the number of the first lane in which messages wait: their highest priority.
    pub fn highest_ready(&self) -> Option<u32> {
        let inner = self.lock();
        let mut lanes = inner.state.lanes().filter(|(_, lane)| lane.ready() > 0);
        lanes.next().map(|(number, _)| number)
    }

    /// Returns the numbers of ready messages in the lanes that have some, the highest first.
    pub fn ready_by_lane(&self) -> Vec<(u32, u64)> {
        let mut inner = self.lock();
        if let Some(context) = self.context.upgrade() {
            inner.look_at_logs(self, &context);
        }
        let lanes = inner.state.lanes().map(|(number, lane)| (number, lane.ready()));
        lanes.filter(|(_, ready)| *ready > 0).collect()
    }

    /// Visits ready messages in hand-out order, until `visit` breaks or there are no more. Those that no
    /// consumer would get are among them, until they are dropped or dead-lettered.
    pub async fn peek(
        self: &Arc<Self>,
        mut visit: impl FnMut(DeliveryId, &StoredMessage) -> ControlFlow<()> + Send,
    ) {
        let Some(mut search) = self.search(SearchOrder::Priority, SearchBounds::NONE, &[]) else {
            return;
        };
        search.finds_all = true;
        while let Some((id, message)) = search.next(|_| true).await {
            if visit(id, &message).is_break() {
                return;
            }
        }
    }
}

impl SearchBounds {
    pub const NONE: Self = Self {
        messages: u64::MAX,
        bytes: usize::MAX,
    };
}

impl Search {
    /// Passes over messages without these properties. An index of the header is built if there is none.
    pub async fn narrow(&mut self, hint: SearchHint<'_>) {
        if let Some((first, last)) = hint.lanes {
            self.lanes.retain(|lane| (first..=last).contains(&lane.lane));
        }
        if let Some((header, value)) = hint.header {
            self.selected = self.dispatcher.select(&self.context, header, value).await;
        }
    }

    /// Returns the number of messages that were examined.
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Returns true if a bound ended the search: nothing is known of the messages behind it.
    pub fn is_at_bound(&self) -> bool {
        self.left.messages == 0 || self.left.bytes == 0
    }

    /// Returns true if a log could not be read: nothing is known of the messages behind that place.
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Returns the place behind the last message that was returned.
    pub fn place(&self) -> SearchPlace {
        let place = |lane: &SearchedLane| DeliveryId {
            lane: lane.lane,
            offset: lane.found.as_ref().map_or(lane.from, |(offset, ..)| *offset),
        };
        self.lanes.iter().map(place).collect()
    }

    /// Returns the next message that `wants` accepts. `None` if there are no more, or at a bound.
    pub async fn next(
        &mut self,
        wants: impl FnMut(&StoredMessage) -> bool,
    ) -> Option<(DeliveryId, StoredMessage)> {
        let found = self.next_above(None, wants).await?;
        Some((found.id, found.message))
    }

    /// Does the same in the lanes above `lane` alone.
    pub(super) async fn next_above(
        &mut self,
        lane: Option<u32>,
        mut wants: impl FnMut(&StoredMessage) -> bool,
    ) -> Option<FoundMessage> {
        let mut first: Option<usize> = None;
        let is_above = |known: &SearchedLane| lane.is_none_or(|lane| known.lane > lane);
        let lanes = self.lanes.iter().take_while(|known| is_above(known)).count();
        for at in 0..lanes {
            match self.search_lane(at, &mut wants).await {
                LaneEnd::AtBound => return None,
                LaneEnd::AtEnd => {}
                LaneEnd::Found if self.order == SearchOrder::Priority => {
                    first = Some(at);
                    break;
                }
                LaneEnd::Found => {
                    let is_older = first.is_none_or(|known| self.arrived(at) < self.arrived(known));
                    first = if is_older { Some(at) } else { first };
                }
            }
        }
        let lane = self.lanes.get_mut(first?)?;
        let (offset, message, stored_by) = lane.found.take()?;
        Some(FoundMessage {
            id: DeliveryId {
                lane: lane.lane,
                offset,
            },
            message,
            stored_by,
        })
    }

    /// Returns a message that the search has passed, if it is ready and `wants` accepts it.
    pub(super) async fn again(
        &mut self,
        id: DeliveryId,
        wants: impl FnOnce(&StoredMessage) -> bool,
    ) -> Result<Option<FoundMessage>, ReadEnd> {
        let mut lanes = self.lanes.iter_mut();
        let Some(lane) = lanes.find(|known| known.lane == id.lane && id.offset < known.from) else {
            return Ok(None);
        };
        let is_ready = |inner: &DeliveryState| {
            let state = inner.state.lane(id.lane);
            state.is_some_and(|state| state.ready_from(id.offset) == Some(id.offset))
        };
        let settings = {
            let inner = self.dispatcher.lock();
            if !is_ready(&inner) {
                return Ok(None);
            }
            Arc::clone(&inner.settings)
        };
        let from = lane.from;
        let read = lane.read(&*self.context.journal, id.offset).await;
        lane.from = from;
        let (message, stored_by) = match read {
            Ok((_, Some(message), stored_by)) => (message, stored_by),
            Ok((_, None, _)) | Err(ReadEnd::AtEnd) => return Ok(None),
            Err(why) => return Err(why),
        };
        let found = FoundMessage {
            id,
            message,
            stored_by,
        };
        let is_there = found.is_deliverable(&self.dispatcher, &self.context, &settings);
        Ok((is_there && wants(&found.message)).then_some(found))
    }

    /// Drops the read-ahead.
    pub(super) fn rest(&mut self) {
        for lane in &mut self.lanes {
            lane.tail.drop_read_ahead();
        }
    }

    /// Begins a further part of the search, with new bounds. It finds the messages too that the dispatcher
    /// knows by now.
    pub(super) fn go_on(&mut self, bounds: SearchBounds) {
        self.left = bounds;
        self.is_unreadable = false;
        let numbers: Vec<u32> = {
            let inner = self.dispatcher.lock();
            if inner.state.lanes().count() == self.lanes.len() {
                return;
            }
            inner.state.lanes().map(|(number, _)| number).collect()
        };
        for (at, number) in numbers.into_iter().enumerate() {
            let is_known = |lane: &SearchedLane| lane.lane == number;
            if !self.lanes.iter().any(is_known)
                && let Some(tail) = self.dispatcher.messages_of(&self.context, number)
            {
                let lane = SearchedLane::begin(number, 0, tail);
                self.lanes.insert(at.min(self.lanes.len()), lane);
            }
        }
    }

    /// Begins anew with the first message.
    pub(super) fn restart(&mut self) {
        for lane in &mut self.lanes {
            lane.from = 0;
            lane.found = None;
        }
    }

    /// Returns true if there is more than one lane.
    pub(super) fn has_lanes(&self) -> bool {
        self.lanes.len() > 1
    }

    fn arrived(&self, at: usize) -> Option<Arrival> {
        let (_, message, _) = self.lanes.get(at)?.found.as_ref()?;
        Some(message.arrived())
    }

    async fn search_lane(&mut self, at: usize, wants: &mut impl FnMut(&StoredMessage) -> bool) -> LaneEnd {
        let Some(lane) = self.lanes.get_mut(at) else {
            return LaneEnd::AtEnd;
        };
        let mut passed = 0_u64;
        while lane.found.is_none() {
            if self.left.messages == 0 || self.left.bytes == 0 {
                return LaneEnd::AtBound;
            }
            let (place, settings) = {
                let inner = self.dispatcher.lock();
                let state = inner.state.lane(lane.lane);
                let next = |state| lane.next(state, self.selected.as_ref());
                (state.map_or(NextPlace::AtEnd, next), Arc::clone(&inner.settings))
            };
            let offset = match place {
                NextPlace::Ready(offset) if !self.dispatcher.is_ended() => offset,
                NextPlace::Ready(_) | NextPlace::AtEnd => return LaneEnd::AtEnd,
                NextPlace::NotReady => {
                    passed += 1;
                    if passed.is_multiple_of(TURN_MESSAGES) {
                        self.left.messages = self.left.messages.saturating_sub(TURN_MESSAGES);
                        tokio::task::yield_now().await;
                    }
                    continue;
                }
            };
            let (offset, message, stored_by) = match lane.read(&*self.context.journal, offset).await {
                Ok(read) => read,
                Err(why) => {
                    self.is_unreadable |= why != ReadEnd::AtEnd;
                    return LaneEnd::AtEnd;
                }
            };
            self.looked_at += 1;
            if self.looked_at.is_multiple_of(TURN_MESSAGES) {
                tokio::task::yield_now().await;
            }
            let Some(message) = message else { continue };
            self.left.messages -= 1;
            self.left.bytes = self.left.bytes.saturating_sub(message.bytes());
            let is_there = self.finds_all
                || self
                    .dispatcher
                    .is_deliverable(&settings, &self.context, &message, stored_by);
            if is_there && wants(&message) {
                lane.found = Some((offset, message, stored_by));
            }
        }
        LaneEnd::Found
    }
}

/// Next place of a search in a lane.
enum NextPlace {
    Ready(u64),
    /// A message that may be wanted is not ready: the search has passed it.
    NotReady,
    AtEnd,
}

impl SearchedLane {
    fn begin(lane: u32, from: u64, tail: Tail) -> Self {
        Self {
            lane,
            from,
            tail,
            found: None,
        }
    }

    /// Moves to the next message that may be wanted.
    fn next(&mut self, state: &Lane, selected: Option<&Selected>) -> NextPlace {
        let Some(selected) = selected else {
            return state
                .ready_from(self.from)
                .map_or(NextPlace::AtEnd, NextPlace::Ready);
        };
        let (at, is_indexed) = selected.next(self.lane, self.from);
        self.from = at;
        match state.ready_from(at) {
            Some(ready) if !is_indexed || ready == at => NextPlace::Ready(ready),
            _ if is_indexed => {
                if state.is_settled(at) {
                    selected.remove(self.lane, at);
                }
                self.from = at + 1;
                NextPlace::NotReady
            }
            _ => NextPlace::AtEnd,
        }
    }

    /// Reads the message at an offset, and moves behind it. Without a message there is a hole.
    async fn read(
        &mut self,
        journal: &dyn Journal,
        offset: u64,
    ) -> Result<(u64, Option<StoredMessage>, Epoch), ReadEnd> {
        self.tail.seek(Offset(offset));
        match self.tail.next(journal).await? {
            TailItem::Message(_, message, stored_by) => {
                self.from = offset + 1;
                Ok((offset, Some(message), stored_by))
            }
            TailItem::Skipped(skipped) => {
                self.from = skipped.to.0.max(offset + 1);
                Ok((offset, None, Epoch(0)))
            }
        }
    }
}
