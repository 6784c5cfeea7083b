//! Scan of waiting messages: after a start it removes transient messages of earlier runs and holes in the
//! logs from the counts; it counts the bytes of bodies for a limit on bytes. Runs beside everything else, one
//! read at a time.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use stafett_model::Offset;
use stafett_topics::{ReadEnd, SkipReason, Tail, TailItem};

use super::context::DeliveryContext;
use super::dispatcher::Dispatcher;
use super::expire::value_bytes;

const READ_BYTES: usize = 1 << 20;

/// Time until a scan that could not read everything begins anew.
const RETRY: Duration = Duration::from_secs(5);

impl DeliveryContext {
    /// Starts the scan of a dispatcher.
    pub(super) fn scan_soon(self: &Arc<Self>, dispatcher: &Arc<Dispatcher>) {
        let (context, dispatcher) = (Arc::clone(self), Arc::clone(dispatcher));
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = scan_all(&context, &dispatcher) => {}
            }
        });
    }
}

async fn scan_all(context: &Arc<DeliveryContext>, dispatcher: &Arc<Dispatcher>) {
    while !scan(context, dispatcher).await && !dispatcher.is_ended() {
        tokio::time::sleep(RETRY).await;
    }
}

/// Returns true unless there was something that could not be read, or that is not there yet.
async fn scan(context: &Arc<DeliveryContext>, dispatcher: &Arc<Dispatcher>) -> bool {
    let lanes = dispatcher.lock().logs.clone();
    let (mut is_complete, mut is_whole) = (true, true);
    for lane in lanes {
        let (head, end) = {
            let inner = dispatcher.lock();
            let Some(state) = inner.state.lane(lane.lane) else {
                continue;
            };
            (Offset(state.head()), Offset(state.end()))
        };
        let mut tail = Tail::new(lane.log, head, READ_BYTES, Arc::clone(&context.read_ahead));
        while tail.next_offset() < end && !dispatcher.is_ended() {
            let from = tail.next_offset().0;
            let found = match tail.read(&*context.journal).await {
                Ok(()) => Some(look_through(context, dispatcher, &mut tail, end)),
                Err(ReadEnd::Stopped | ReadEnd::NoSuchLog) => return true,
                Err(_) => None,
            };
            // Read errors are handled when the message is handed out.
            let Some(found) = found else {
                is_complete = false;
                break;
            };
            is_whole &= found.is_whole;
            let range = from..tail.next_offset().0;
            dispatcher.apply_scanned(context, lane.lane, range, found);
            tokio::task::yield_now().await;
        }
    }
    let is_done = {
        let mut inner = dispatcher.lock();
        // Messages since the start have not ended; unread ones may have been transient.
        let is_read = is_complete && is_whole;
        inner.persistence.holds_transient = inner.persistence.has_new_transient || !is_read;
        // The next snapshot no longer says it.
        inner.persistence.is_transient_noted &= inner.persistence.holds_transient;
        inner.counts_too_many &= !is_complete;
        // Messages that were on their way when the limit was set have arrived, or do with the next scan.
        is_complete && (inner.settings.bytes_max.is_none() || !inner.state.is_partial())
    };
    dispatcher.dispatch();
    is_done
}

/// Findings of a scan in a part of a log.
struct Scanned {
    /// Offsets to remove: ended messages, and holes.
    gone: Vec<Range<u64>>,
    /// Offsets of the other messages, and the bytes of their bodies.
    bodies: Vec<(u64, u32)>,
    /// False if some are damaged. They count as ready until their turn comes.
    is_whole: bool,
}

/// Looks through the part that was read, up to `end`.
fn look_through(context: &DeliveryContext, dispatcher: &Dispatcher, tail: &mut Tail, end: Offset) -> Scanned {
    let mut found = Scanned {
        gone: Vec::new(),
        bodies: Vec::new(),
        is_whole: true,
    };
    while tail.next_offset() < end
        && let Some(item) = tail.item()
    {
        match item {
            TailItem::Message(at, message, epoch) => {
                if dispatcher.is_of_ended_run(&message, epoch, context.epoch) {
                    found.gone.push(at.0..at.0 + 1);
                } else {
                    found.bodies.push((at.0, value_bytes(&message)));
                }
            }
            TailItem::Skipped(hole) if hole.why == SkipReason::Gap => {
                found.gone.push(hole.from.0..hole.to.min(end).0);
            }
            // Settled, by a purge for example.
            TailItem::Skipped(hole) if hole.why == SkipReason::Expired => {}
            TailItem::Skipped(_) => found.is_whole = false,
        }
    }
    found
}

impl Dispatcher {
    fn apply_scanned(
        self: &Arc<Self>,
        context: &Arc<DeliveryContext>,
        lane: u32,
        range: Range<u64>,
        found: Scanned,
    ) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.state.count_range(lane, range, &found.bodies);
        if found.gone.is_empty() {
            return;
        }
        for range in found.gone {
            let (state, changes) = inner.parts();
            state.drop_range(lane, range, changes);
        }
        context.mark_dirty(self, inner);
    }
}
