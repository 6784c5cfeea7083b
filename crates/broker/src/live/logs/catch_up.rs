//! From an earlier offset to the live stream, without a gap or a double.
//!
//! ```text
//! hold ──▶ the subscription is stored ──▶ read from the wanted offset up to where the log has been delivered ──┐
//!   │                                        ▲                                                               │ not there yet
//!   │ the topics are not delivered           └───────────────────────────────────────────────────────────────┘
//!   │ live to this client                    there: the hold ends, under the same lock as delivery
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use stafett_journal::{ReadError, ReadFrom, ReadRequest, Run};
use stafett_model::Offset;

use super::{Hold, LiveLogs, Partition, entry};
use crate::live::change::NameList;
use crate::live::clients::ClientNumber;
use crate::live::hub::Live;
use crate::live::logs::positions::Mark;
use crate::live::message::Encoded;
use crate::live::outbox::Outbox;

const READ_BYTES: usize = 256 << 10;

/// From where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum From {
    /// With what is published from now on.
    #[default]
    New,
    Earliest,
    Offset(u64),
    /// Where the client was last; from now on, if it never was.
    Resume,
}

/// Holds that begin together: for each partition, which one.
#[derive(Debug)]
pub(crate) struct Holds {
    client: ClientNumber,
    topics: Arc<HashSet<Box<str>>>,
    places: Vec<(usize, u64)>,
}

impl Live {
    /// Holds back for a client what it is about to catch up with. `None` if there is no log behind any of the topics.
    pub(crate) fn hold(&self, client: ClientNumber, topics: &NameList, from: From) -> Option<Holds> {
        let logs = self.logs.get().filter(|_| from != From::New)?;
        let mut concerned = vec![false; logs.partitions.len()];
        let mut held = HashSet::new();
        for name in topics.iter() {
            if let Some(log) = logs.behind(name) {
                held.insert(Box::from(name));
                for place in log.partitions.clone() {
                    if let Some(concerned) = concerned.get_mut(place) {
                        *concerned = true;
                    }
                }
            }
        }
        if held.is_empty() {
            return None;
        }
        let topics = Arc::new(held);
        let mut places = Vec::new();
        for ((place, partition), _) in logs
            .partitions
            .iter()
            .enumerate()
            .zip(concerned)
            .filter(|(_, yes)| *yes)
        {
            let start = self
                .journal
                .bounds(partition.log)
                .map_or(Offset::ZERO, |bounds| bounds.start);
            let was = self.positions.get(client, partition.topic.id, partition.number);
            let mut follow = partition.follow();
            let at = match from {
                From::New => follow.next,
                From::Earliest => start,
                From::Offset(offset) => Offset(offset).min(follow.next).max(start),
                From::Resume => was.map_or(follow.next, |was| was.min(follow.next).max(start)),
            };
            follow.last_hold += 1;
            let id = follow.last_hold;
            follow.holds.push(Hold {
                id,
                client: client.0,
                topics: Arc::clone(&topics),
                at,
            });
            places.push((place, id));
        }
        self.positions.note(client);
        Some(Holds {
            client,
            topics,
            places,
        })
    }

    /// Lets go of what was held back, without having caught up.
    pub(crate) fn release(&self, holds: &Holds) {
        for (partition, id) in self.held(holds) {
            partition.follow().holds.retain(|hold| hold.id != id);
        }
    }

    fn held(&self, holds: &Holds) -> impl Iterator<Item = (&Partition, u64)> {
        let logs = self.logs.get();
        let find = move |(place, id): &(usize, u64)| Some((logs?.partitions.get(*place)?, *id));
        holds
            .places
            .iter()
            .filter_map(find)
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Brings a client that listens with `outbox` from where its holds begin to the live stream.
    pub(crate) fn catch_up(self: &Arc<Self>, holds: Holds, outbox: &Arc<Outbox>) {
        let live = Arc::clone(self);
        let outbox = Arc::clone(outbox);
        let ended = self.ended.clone();
        // It ends with the client's listening, or with all.
        drop(self.changes.spawn(async move {
            ended
                .run_until_cancelled(live.catch_up_all(&holds, &outbox))
                .await;
            live.release(&holds);
        }));
    }

    async fn catch_up_all(&self, holds: &Holds, outbox: &Arc<Outbox>) {
        let Some(logs) = self.logs.get() else { return };
        for (place, id) in &holds.places {
            while self.catch_up_once(logs, *place, *id, holds, outbox).await {}
        }
    }

    /// Reads and delivers once; false if this partition is at its end, or the client is gone.
    async fn catch_up_once(
        &self,
        logs: &LiveLogs,
        place: usize,
        id: u64,
        holds: &Holds,
        outbox: &Arc<Outbox>,
    ) -> bool {
        let Some(partition) = logs.partitions.get(place) else {
            return false;
        };
        let Some((at, limit)) = partition.progress(id) else {
            return false;
        };
        let request = ReadRequest {
            logs: vec![ReadFrom {
                log: partition.log,
                offset: at,
                bytes_max: READ_BYTES,
            }],
            bytes_max: READ_BYTES,
            first_batch_whole: true,
        };
        let Ok(mut runs) = self.journal.read(request).finish().await else {
            return false;
        };
        let next = match runs.pop() {
            Some(Ok(run)) if run.next > at => {
                if !self.send_run(place, &run, (at, limit), holds, outbox).await {
                    return false;
                }
                run.next
            }
            Some(Err(ReadError::OutOfRange { start, .. })) if start > at => start,
            Some(Err(ReadError::Damaged { to, .. })) => to,
            // Nothing can be read up to there, for whatever reason.
            _ => limit,
        };
        partition.advance(id, next.min(limit));
        true
    }

    /// Puts the wanted messages of a run into the outbox as there is room; false if the client is gone.
    async fn send_run(
        &self,
        place: usize,
        run: &Run,
        (at, limit): (Offset, Offset),
        holds: &Holds,
        outbox: &Arc<Outbox>,
    ) -> bool {
        loop {
            let mut moved = std::pin::pin!(outbox.moved());
            moved.as_mut().enable();
            if !self.is_listening(holds.client, outbox) {
                return false;
            }
            if outbox.has_room() {
                break;
            }
            moved.await;
        }
        let mut count = 0;
        entry::each(run, at, limit, |message, offset| {
            if holds.topics.contains(message.topic) {
                let mark = Mark {
                    client: holds.client.0,
                    place,
                    offset,
                };
                let form = Encoded::new(*message).form(outbox.format());
                count += usize::from(outbox.push(form, Some(mark)));
            }
        });
        self.count_delivered(count);
        true
    }
}

impl Partition {
    /// Where a hold is, and up to where it may go; it ends here if it is there.
    fn progress(&self, id: u64) -> Option<(Offset, Offset)> {
        let mut follow = self.follow();
        let next = follow.next;
        let at = follow.holds.iter().find(|hold| hold.id == id)?.at;
        if at < next {
            return Some((at, next));
        }
        follow.holds.retain(|hold| hold.id != id);
        None
    }

    fn advance(&self, id: u64, to: Offset) {
        let mut follow = self.follow();
        if let Some(hold) = follow.holds.iter_mut().find(|hold| hold.id == id) {
            hold.at = to;
        }
    }
}
