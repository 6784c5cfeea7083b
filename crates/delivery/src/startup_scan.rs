//! Scan after a start: removes transient messages of earlier runs and holes in the logs from the counts. Runs
//! beside everything else, one read at a time.

use std::ops::Range;
use std::sync::Arc;

use stafett_model::Offset;
use stafett_topics::{ReadEnd, SkipReason, Tail, TailItem};

use super::context::DeliveryContext;
use super::dispatcher::Dispatcher;

const READ_BYTES: usize = 1 << 20;

impl DeliveryContext {
    /// Starts the scan of a loaded dispatcher.
    pub(super) fn scan_soon(self: &Arc<Self>, dispatcher: &Arc<Dispatcher>) {
        let (context, dispatcher) = (Arc::clone(self), Arc::clone(dispatcher));
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = scan(&context, &dispatcher) => {}
            }
        });
    }
}

async fn scan(context: &Arc<DeliveryContext>, dispatcher: &Arc<Dispatcher>) {
    let lanes = dispatcher.lock().logs.clone();
    let mut is_complete = true;
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
            let gone = match tail.read(&*context.journal).await {
                Ok(()) => look_through(context, dispatcher, &mut tail, end),
                Err(ReadEnd::Stopped) => return,
                Err(_) => None,
            };
            // Read errors are handled when the message is handed out.
            let Some(gone) = gone else {
                is_complete = false;
                break;
            };
            dispatcher.take_out(context, lane.lane, gone);
            tokio::task::yield_now().await;
        }
    }
    {
        let mut inner = dispatcher.lock();
        // Messages since the start have not ended; unread ones may not have been transient.
        inner.persistence.holds_transient = inner.persistence.has_new_transient || !is_complete;
    }
    dispatcher.dispatch();
}

/// Returns the offsets to remove of the read-ahead, up to `end`: ended messages, and holes. `None` if it has
/// offsets that cannot be read.
fn look_through(
    context: &DeliveryContext,
    dispatcher: &Dispatcher,
    tail: &mut Tail,
    end: Offset,
) -> Option<Vec<Range<u64>>> {
    let mut gone = Vec::new();
    while tail.next_offset() < end
        && let Some(item) = tail.item()
    {
        match item {
            TailItem::Message(at, message, epoch) => {
                if dispatcher.is_of_ended_run(&message, epoch, context.epoch) {
                    gone.push(at.0..at.0 + 1);
                }
            }
            TailItem::Skipped(hole) if hole.why == SkipReason::Gap => {
                gone.push(hole.from.0..hole.to.min(end).0);
            }
            TailItem::Skipped(_) => return None,
        }
    }
    Some(gone)
}

impl Dispatcher {
    fn take_out(self: &Arc<Self>, context: &Arc<DeliveryContext>, number: u32, gone: Vec<Range<u64>>) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        for range in gone {
            let (state, changes) = inner.parts();
            state.drop_range(number, range, changes);
        }
        context.mark_dirty(self, inner);
    }
}
