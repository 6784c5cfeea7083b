//! Scan after a start: removes transient messages of earlier runs and holes in the logs from the counts. Runs
//! beside everything else, one read at a time.

use std::sync::Arc;

use stafett_journal::{ReadFrom, ReadRequest};
use stafett_model::Offset;
use stafett_topics::{Cursor, Look};

use super::queue::Queue;
use super::registry::Queues;

const READ_BYTES: usize = 1 << 20;

/// Offsets to remove: an ended message, or a hole.
enum Gone {
    Message(u64),
    Hole(u64, u64),
}

impl Queues {
    /// Starts the scan of a loaded queue.
    pub(super) fn scan_soon(self: &Arc<Self>, queue: &Arc<Queue>) {
        let (hub, queue) = (Arc::clone(self), Arc::clone(queue));
        let stop = self.stopped();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = scan(&hub, &queue) => {}
            }
        });
    }
}

async fn scan(hub: &Arc<Queues>, queue: &Arc<Queue>) {
    let lanes = queue.lock().logs.clone();
    let mut is_complete = true;
    for lane in lanes {
        let (mut at, end) = {
            let inner = queue.lock();
            let Some(state) = inner.state.lane(lane.lane) else {
                continue;
            };
            (state.head(), state.end())
        };
        let mut cursor = Cursor::new(Arc::clone(&hub.kept));
        while at < end && !queue.is_deleted() {
            let request = ReadRequest {
                logs: vec![ReadFrom {
                    log: lane.log,
                    offset: Offset(at),
                    bytes_max: READ_BYTES,
                }],
                bytes_max: READ_BYTES,
                first_batch_whole: true,
            };
            let run = match hub.journal.read(request).finish().await {
                Ok(mut result) => match result.pop() {
                    Some(Ok(run)) if run.next.0 > at => run,
                    // The log continues behind a gap, and nothing is behind it yet.
                    Some(Ok(run)) if run.bounds.is_some_and(|bounds| bounds.end.0 > at) => {
                        queue.take_out(hub, lane.lane, vec![Gone::Hole(at, end)]);
                        break;
                    }
                    // Read errors are handled when the message is handed out.
                    _ => {
                        is_complete = false;
                        break;
                    }
                },
                Err(_) => return,
            };
            let next = run.next.0.min(end);
            cursor.fill(at, run);
            let gone = look_through(hub, queue, &mut cursor, at, next);
            queue.take_out(hub, lane.lane, gone);
            at = next;
            tokio::task::yield_now().await;
        }
    }
    {
        let mut inner = queue.lock();
        // Messages since the start have not ended; unread ones may not have been transient.
        inner.holds_transient = inner.has_new_transient || !is_complete;
    }
    queue.pump();
}

fn look_through(hub: &Queues, queue: &Queue, cursor: &mut Cursor, from: u64, to: u64) -> Vec<Gone> {
    let mut gone = Vec::new();
    let mut at = from;
    while at < to {
        match cursor.look(at) {
            Look::Message(message, epoch) => {
                if queue.has_ended(&message, epoch, hub.epoch) {
                    gone.push(Gone::Message(at));
                }
                at += 1;
            }
            Look::Hole(behind) => {
                gone.push(Gone::Hole(at, behind.min(to)));
                at = behind;
            }
            Look::Unread => break,
        }
    }
    gone
}

impl Queue {
    fn take_out(self: &Arc<Self>, hub: &Arc<Queues>, number: u32, gone: Vec<Gone>) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        for gone in gone {
            let (from, to) = match gone {
                Gone::Message(at) => (at, at + 1),
                Gone::Hole(from, to) => (from, to),
            };
            let mut at = from;
            while let Some(offset) = inner
                .state
                .lane(number)
                .and_then(|lane| lane.ready_from(at))
                .filter(|offset| *offset < to)
            {
                at = offset + 1;
                let run = inner.state.lane_mut(number).drop_run(offset, to);
                inner.changes.settled(number, offset, run);
                at = at.max(offset + run);
            }
        }
        hub.mark_dirty(self, inner);
    }
}
