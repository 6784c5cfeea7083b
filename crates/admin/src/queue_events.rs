//! A queue while it works, as server-sent events or lines of JSON: its counts, and new messages. Nothing is
//! taken.
//!
//! ```text
//! event: counts     every second in which they changed
//! event: message    a message that came
//! event: end        the queue is deleted, or the broker stops; the reason as a refusal
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_delivery::{SearchBounds, SearchOrder, SearchPlace};
use stafett_http::api::get;
use stafett_http::{Code, Draining, Path, Problem, Query, Slot, slot, sse};
use stafett_messaging::queues::{Narrow, Queue};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;
use crate::content::Form;
use crate::mask::Masks;
use crate::message::{Choice, MessageOf, Shown};
use crate::queues::{NAMESPACE, find, no_such_queue};
use crate::{Routes, namespace};

/// Interval of the counts.
const EVERY: Duration = Duration::from_secs(1);
/// Time without an event after which a comment is sent.
const TICK: Duration = Duration::from_secs(10);
/// Messages of one piece of the stream, and bytes of those that are examined for it.
const PIECE: SearchBounds = SearchBounds {
    messages: 100,
    bytes: 256 << 10,
};

/// Counts of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "QueueCounts")]
struct Counts {
    ready: u64,
    in_flight: usize,
    consumers: usize,
}

struct Follower {
    queue: Arc<Queue>,
    /// Place behind the messages that were examined.
    place: SearchPlace,
    choice: Choice,
    shown: Shown,
    masks: Masks,
    counts: Option<Counts>,
    second: Interval,
    said: Instant,
    stream: sse::Form,
    draining: CancellationToken,
    ended: bool,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.route(
        get(
            "/v1/queues/{queue}/events",
            "Sends the counts of a queue every second in which they change, and messages that come, as server-sent \
             events, or as lines of JSON where Accept is application/x-ndjson. Nothing is taken; a message that a \
             consumer takes at once may be missing.",
        )
        .query(&[NAMESPACE])
        .query(&Choice::KEYS)
        .streams::<MessageOf>(sse::TYPE)
        .refuses(&[Code::NotServing, Code::NoSuchQueue, Code::Forbidden]),
        events,
    )
}

async fn events(
    State(broker): State<Slot<Broker>>,
    State(masks): State<Masks>,
    Draining(draining): Draining,
    Path(name): Path<String>,
    caller: Caller,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (choice, form) = (Choice::of(&query)?, Form::of(query.get("as"))?);
    // The order of a search has no meaning here, and is checked all the same.
    crate::message::order(&query)?;
    let serving = broker.get()?;
    let queue = find(&serving, &namespace(&query), &name)?;
    caller.check_receives(&queue)?;
    let mut second = interval(EVERY);
    second.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let follower = Follower {
        place: queue.end_place(),
        queue,
        choice,
        shown: Shown {
            state: "ready",
            form,
            ..Shown::default()
        },
        masks: masks.for_caller(&serving),
        counts: None,
        second,
        said: Instant::now(),
        stream: sse::Form::accepted(&headers),
        draining,
        ended: false,
    };
    let form = follower.stream;
    Ok(sse::answer_as(form, Box::new(follower), Follower::next_piece))
}

impl Follower {
    /// Waits for the next piece of the stream. `None` at its end.
    async fn next_piece(mut self: Box<Self>) -> Option<(Box<Self>, Bytes)> {
        while !self.ended {
            let searches = self.queue.searches();
            let mut changed = std::pin::pin!(searches.notified());
            changed.as_mut().enable();
            let mut piece = String::new();
            // Nothing of a search is kept while the stream waits.
            let has_more = Box::pin(self.put_messages(&mut piece)).await;
            // Also while there is always something new.
            let draining = self.draining.clone();
            tokio::select! {
                biased;
                () = draining.cancelled() => self.put_end(&mut piece, &slot::closed()),
                _ = self.second.tick() => self.put_counts(&mut piece),
                () = std::future::ready(()) => {}
            }
            if piece.is_empty() && !has_more {
                tokio::select! {
                    () = changed => continue,
                    () = draining.cancelled() => self.put_end(&mut piece, &slot::closed()),
                    _ = self.second.tick() => self.put_counts(&mut piece),
                }
            }
            if !piece.is_empty() {
                self.said = Instant::now();
                return Some((self, piece.into()));
            }
            if self.said.elapsed() >= TICK {
                self.said = Instant::now();
                let silence = self.stream.silence();
                return Some((self, silence));
            }
        }
        None
    }

    /// Appends new messages. Returns true if there may be more.
    async fn put_messages(&mut self, piece: &mut String) -> bool {
        let searching = self
            .queue
            .begin_search(SearchOrder::Oldest, PIECE, &self.place, Narrow::default());
        let Some(mut search) = searching.await else {
            let why = no_such_queue(&self.queue.namespace, &self.queue.name);
            self.put_end(piece, &why);
            return false;
        };
        while let Some((id, message)) = search.next(|message| self.choice.wants(message)).await {
            let shown = MessageOf::of(&self.queue, id, &message, self.shown).masked(&self.masks);
            put(self.stream, piece, "message", &shown);
        }
        self.place = search.place();
        search.is_at_bound()
    }

    fn put_counts(&mut self, piece: &mut String) {
        let now = self.queue.counts();
        let now = Counts {
            ready: now.ready,
            in_flight: now.in_flight,
            consumers: now.consumers,
        };
        if self.counts != Some(now) {
            self.counts = Some(now);
            put(self.stream, piece, "counts", &now);
        }
    }

    fn put_end(&mut self, piece: &mut String, why: &Problem) {
        self.ended = true;
        put(self.stream, piece, "end", &why.to_value());
    }
}

fn put(stream: sse::Form, piece: &mut String, event: &str, data: &impl Serialize) {
    let data = serde_json::to_string(data).unwrap_or_default();
    stream.put(piece, None, event, &data);
}
