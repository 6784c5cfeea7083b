//! Receiving from the first of several queues that has something.
//!
//! A request that waits is woken by the queues that it names, or by those that may have messages and by the
//! list of these. Where they are too many, it looks at intervals instead.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use stafett_access::{Action, Resource};
use stafett_broker::Broker;
use stafett_http::{Code, Problem, Query, Slot};
use stafett_messaging::queues::Queue;
use stafett_model::Namespace;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Answer, Wanted, messages, receivable, with_messages};
use crate::caller::Caller;
use crate::queues::find;
use crate::{access, answer, namespace};

/// Queues that wake a request, at most.
const WATCHED_MAX: usize = 1000;
/// Interval of looking at more queues than that.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Least time between two looks of a request.
const LOOKS_APART: Duration = Duration::from_millis(10);

/// Queues of a request.
enum Asked {
    Named(Vec<Arc<Queue>>),
    /// All of a namespace that the caller may receive from, by name.
    Any(Namespace),
}

impl Asked {
    fn of(broker: &Broker, caller: &Caller, query: &Query) -> Result<Self, Problem> {
        let namespace = namespace(query);
        let Some(names) = query.get("queue") else {
            return Ok(Self::Any(namespace));
        };
        let names = names.split(',').filter(|name| !name.is_empty());
        let queues = names.map(|name| {
            access::check_queue(broker, Action::Read, &namespace, name)?;
            let queue = find(broker, &namespace, name)?;
            caller.check_receives(&queue)?;
            Ok(queue)
        });
        queues.collect::<Result<_, Problem>>().map(Self::Named)
    }

    /// Returns the queues that may get a message without a change of the list of such queues.
    fn watched(&self, broker: &Broker, caller: &Caller) -> Vec<Arc<Queue>> {
        match self {
            Self::Named(queues) => queues.clone(),
            Self::Any(namespace) => {
                let pending = broker.messaging().queues().pending_in(namespace);
                receivable(pending, broker, caller)
            }
        }
    }

    /// Takes from the first queue that has something. `None` if none has. Only the first time queues without
    /// messages are asked, too, for their errors: a look at them ends other waits, this one among them.
    async fn take(
        &self,
        broker: &Broker,
        caller: &Caller,
        wanted: &Wanted,
        is_first: bool,
    ) -> Result<Option<Response>, Problem> {
        let is_any = matches!(self, Self::Any(_));
        let queues = match self {
            Self::Named(queues) => queues.clone(),
            Self::Any(namespace) => with_messages(broker, namespace, caller),
        };
        for queue in &queues {
            // Of many names, not all are looked at when a right goes.
            let resource = Resource::queue(queue.namespace.as_str(), &queue.name);
            if !is_any && !access::may(broker, Action::Read, &resource) {
                access::check_queue(broker, Action::Read, &queue.namespace, &queue.name)?;
            }
            if !is_first && !queue.is_deleted() && (queue.counts().ready == 0 || queue.is_paused()) {
                continue;
            }
            let received = match wanted.take(queue, Duration::ZERO, Vec::new()).await {
                Ok(received) => received,
                // Without a name, such a queue is none to receive from.
                Err(why) if is_any && matches!(why.code, Code::InUse | Code::QueueGone) => continue,
                Err(why) => return Err(why),
            };
            if !received.messages.is_empty() {
                let found = messages(wanted, queue, &received);
                return Ok(Some(answer(StatusCode::OK, &found)));
            }
        }
        Ok(None)
    }
}

pub(super) async fn receive(
    State(broker): State<Slot<Broker>>,
    caller: Caller,
    query: Query,
) -> Result<Response, Problem> {
    let wanted = Wanted::of(&query)?;
    let broker = broker.get()?;
    let asked = Asked::of(&broker, &caller, &query)?;
    drop(query);
    let named = match &asked {
        Asked::Named(queues) => &**queues,
        Asked::Any(_) => &[],
    };
    // Queues in which a request waits are in use.
    let _uses: Vec<_> = named.iter().map(|queue| queue.wait()).collect();
    let deadline = Instant::now() + wanted.wait;
    let mut is_first = true;
    loop {
        let looked = Instant::now();
        // The signals are taken before the look, so that no message comes between the two.
        let mut listed = Box::pin(broker.messaging().queues().listed().notified());
        listed.as_mut().enable();
        let watched = asked.watched(&broker, &caller);
        let first = watched.iter().take(WATCHED_MAX);
        let signals: Vec<_> = first.map(|queue| queue.searches()).collect();
        let mut changes: Vec<_> = signals.iter().map(|signal| Box::pin(signal.notified())).collect();
        for change in &mut changes {
            change.as_mut().enable();
        }
        changes.push(listed);
        if let Some(found) = asked.take(&broker, &caller, &wanted, is_first).await? {
            return Ok(found);
        }
        is_first = false;
        let until = if watched.len() > WATCHED_MAX {
            deadline.min(Instant::now() + LOOK_EVERY)
        } else {
            deadline
        };
        let is_over = timeout_at(until, any(&mut changes)).await.is_err();
        if is_over && Instant::now() >= deadline {
            return Ok(answer(StatusCode::OK, &Answer::none()));
        }
        // Messages that this request may not have, such as with too many in flight, do not keep it busy.
        sleep_until(deadline.min(looked + LOOKS_APART)).await;
    }
}

/// Waits for the first of these signals.
async fn any(changes: &mut [Pin<Box<Notified<'_>>>]) {
    poll_fn(|context| {
        let mut polled = changes.iter_mut().map(|change| change.as_mut().poll(context));
        if polled.any(|polled| polled.is_ready()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
