//! Places that are made, moved and deleted.

use std::sync::Arc;

use stafett_journal::{Append, Change, Ticket};
use stafett_model::Offset;
use stafett_store::{NotStored, only_outcome, spaces};
use stafett_topics::{Topic, TopicId, offset_at_time};

use super::load::encode;
use super::place::Place;
use super::places::Shares;

/// Where a group begins in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlaceStart {
    /// The first message that is kept.
    First,
    /// Messages from now on.
    #[default]
    Next,
    /// The first message with this timestamp or a later one, in ms since 1970; messages from now on if there
    /// is none.
    Time(i64),
}

impl Shares {
    /// Returns the place of a group in a topic. A new one begins at `start` in all partitions, and is stored
    /// when this returns.
    pub async fn get_or_make(
        self: &Arc<Self>,
        group: &str,
        topic: &Topic,
        start: PlaceStart,
    ) -> Result<Arc<Place>, NotStored> {
        if let Some(place) = self.get(group, topic.id) {
            return Ok(place);
        }
        let mut starts = Vec::new();
        for partition in 0..topic.partitions() {
            starts.push((partition, self.start_in(topic, partition, start).await));
        }
        let (place, ticket) = self.make(group, topic, starts);
        let Some(ticket) = ticket else {
            return Ok(place);
        };
        match only_outcome(ticket.await.pop().as_ref()) {
            Ok(()) => Ok(place),
            Err(why) => {
                drop(self.remove(&place));
                Err(why)
            }
        }
    }

    async fn start_in(&self, topic: &Topic, partition: u32, start: PlaceStart) -> u64 {
        let Some(log) = topic.log(partition) else {
            return 0;
        };
        let Some(bounds) = self.journal.bounds(log) else {
            return 0;
        };
        match start {
            PlaceStart::First => bounds.start.0,
            PlaceStart::Next => bounds.end.0,
            PlaceStart::Time(time) => {
                let found = offset_at_time(&*self.journal, log, time).await;
                found.ok().flatten().unwrap_or(bounds.end.0)
            }
        }
    }

    /// Makes a place, unless there is one; the ticket is that of a new one.
    fn make(
        self: &Arc<Self>,
        group: &str,
        topic: &Topic,
        starts: Vec<(u32, u64)>,
    ) -> (Arc<Place>, Option<Ticket>) {
        let (place, ticket) = {
            let mut table = self.table.lock();
            if let Some(place) = table.get(group, topic.id) {
                return (Arc::clone(place), None);
            }
            table.last_id += 1;
            let place = Place::new(table.last_id, group.into(), topic, self);
            let definition = spaces::SHARES.put(place.id.to_be_bytes().to_vec(), encode(&place));
            let dispatcher = &place.dispatcher;
            let ticket = dispatcher.begin_lanes_at(&self.context, starts, vec![definition], self.wait);
            table.insert(&place);
            (place, ticket)
        };
        place.dispatcher.watch_logs(&self.context);
        // The topic may have changed before the place was there.
        match self.topics.with_id(topic.id) {
            Some(topic) => place.dispatcher.follow(&self.context, &topic),
            None => drop(self.remove(&place)),
        }
        (place, Some(ticket))
    }

    /// Moves a group in partitions of a topic: it begins anew at these offsets. Makes its place if it has
    /// none.
    pub async fn move_to(
        self: &Arc<Self>,
        group: &str,
        topic: &Topic,
        starts: Vec<(u32, Offset)>,
    ) -> Result<(), NotStored> {
        let place = self.get_or_make(group, topic, PlaceStart::default()).await?;
        let ticket = {
            let mut locks = place.locks.lock();
            for (partition, _) in &starts {
                locks.forget(*partition);
            }
            let starts = starts.iter().map(|(partition, offset)| (*partition, offset.0));
            place
                .dispatcher
                .begin_lanes_at(&self.context, starts, Vec::new(), self.wait)
        };
        place.wake_waiting();
        only_outcome(ticket.await.pop().as_ref())
    }

    /// Deletes the place of a group in a topic. False if it has none.
    pub async fn delete(&self, group: &str, topic: TopicId) -> Result<bool, NotStored> {
        let Some(place) = self.get(group, topic) else {
            return Ok(false);
        };
        await_removed(self.remove(&place)).await?;
        Ok(true)
    }

    /// Deletes all places of a group.
    pub async fn delete_group(&self, group: &str) -> Result<(), NotStored> {
        let places = self.of_group(group);
        let removed: Vec<_> = places.iter().map(|place| self.remove(place)).collect();
        for ticket in removed {
            await_removed(ticket).await?;
        }
        Ok(())
    }

    /// Removes a place; `None` if it is removed already.
    pub(super) fn remove(&self, place: &Arc<Place>) -> Option<Ticket> {
        let ticket = {
            let _alone = self.context.lock_for_removal();
            let ended = place.dispatcher.end(&self.context, |_| Ok::<_, NotStored>(()));
            ended.ok().flatten()?;
            let frames = vec![
                spaces::SHARES.delete(place.id.to_be_bytes().to_vec()),
                self.context.state_frame(&place.dispatcher, Change::Delete),
            ];
            let ticket = self
                .journal
                .append(vec![Append::state(frames.clone(), self.wait)]);
            if ticket.glance().committed() == Some(false) {
                self.context.dirty.push_refused(place.id, frames);
            }
            ticket
        };
        self.table.lock().remove(place);
        place.wake_waiting();
        Some(ticket)
    }
}

async fn await_removed(ticket: Option<Ticket>) -> Result<(), NotStored> {
    match ticket {
        Some(ticket) => only_outcome(ticket.await.pop().as_ref()),
        None => Ok(()),
    }
}
