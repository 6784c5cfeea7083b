//! Queue of the answers that a connection owes its client, in the order of the requests.
//!
//! An answer is ready, waits for the journal, or waits for an operation, performed when its turn comes.
//! Produce requests that were read together share one ticket. Their answers are adjacent in the queue, so the
//! next produce answer always belongs to the first remaining group.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use stafett_kafka_wire::ApiKey;
use stafett_net::Permit;
use stafett_topics::{Outcome, Ticket};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::{Close, EncodedResponse, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::operation::{Operation, Step, then};
use crate::produce_results::ProduceResults;
use crate::traced::Traced;

/// Result of a handler: an error ends the connection.
pub(crate) type HandlerResult = Result<PendingResponse, Close>;

pub(crate) enum PendingResponse {
    Ready(ResponseResult),
    /// Waits for the outcomes of the first group.
    Produce(ProduceResults),
    /// Waits for an operation; `None` while it is performed.
    Awaiting(Option<Operation>, Pipelining),
}

/// Execution of the requests behind one that waits for an operation.
pub(crate) enum Pipelining {
    Free,
    /// Later requests may depend on this one: none of them is executed before it is done.
    Barrier,
    /// Barrier that may take minutes; it holds nothing of its request.
    LongBarrier,
    /// The operation ends early when the token is cancelled, which the next request does. It holds nothing of
    /// its request.
    Released(CancellationToken),
}

impl From<EncodedResponse> for PendingResponse {
    fn from(response: EncodedResponse) -> Self {
        Self::Ready(Ok(response))
    }
}

impl PendingResponse {
    /// Responds when the turn of the request comes.
    pub(crate) fn in_turn<R: Into<Step>>(
        respond: impl FnOnce(&RequestContext) -> Result<R, Close> + Send + 'static,
    ) -> Self {
        let respond = then(|context: &RequestContext, ()| respond(context));
        Self::awaiting(Operation::Turn(respond), Pipelining::Free)
    }

    /// Responds when the turn of the request comes, before any later request is executed.
    pub(crate) fn barrier<R: Into<Step>>(
        respond: impl FnOnce(&RequestContext) -> Result<R, Close> + Send + 'static,
    ) -> Self {
        let respond = then(|context: &RequestContext, ()| respond(context));
        Self::awaiting(Operation::Turn(respond), Pipelining::Barrier)
    }

    pub(crate) fn awaiting(operation: Operation, pipelining: Pipelining) -> Self {
        Self::Awaiting(Some(operation), pipelining)
    }

    /// True if the response may refer to the bytes of its request.
    pub(crate) fn holds_request(&self) -> bool {
        !matches!(
            self,
            Self::Awaiting(_, Pipelining::LongBarrier | Pipelining::Released(_))
        )
    }

    fn is_barrier(&self) -> bool {
        matches!(
            self,
            Self::Ready(Err(_)) | Self::Awaiting(_, Pipelining::Barrier | Pipelining::LongBarrier)
        )
    }
}

/// A response in the queue, and the memory of its request.
pub(crate) struct QueuedResponse {
    pub response: PendingResponse,
    pub api: Option<ApiKey>,
    /// Time at which the request was parsed.
    pub since: Instant,
    /// Memory of the request.
    pub permit: Permit,
    /// `None` if it is not written to the performance log.
    pub traced: Option<Box<Traced>>,
}

/// Produce requests whose batches were appended together.
struct PendingProduces {
    waiting: Option<Ticket>,
    outcomes: smallvec::IntoIter<[Outcome; 2]>,
    /// Number of answers that have not taken their outcomes.
    answers: usize,
}

#[derive(Default)]
pub(crate) struct ResponseQueue {
    queue: VecDeque<QueuedResponse>,
    produces: VecDeque<PendingProduces>,
    is_blocked: bool,
    /// Token that ends the last added operation early, if it can be released.
    release: Option<CancellationToken>,
}

/// The next answer in order.
pub(crate) struct NextResponse {
    pub result: ResponseResult,
    pub permit: Permit,
    pub traced: Option<Box<Traced>>,
}

impl ResponseQueue {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// True if requests must wait for an answer before they are executed. Stays true once an answer ends the
    /// connection.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Returns when the oldest produce request began that is not stored yet, if nothing else is before it.
    pub(crate) fn oldest_produce(&self) -> Option<Instant> {
        let queued = self.queue.front()?;
        matches!(queued.response, PendingResponse::Produce(_)).then_some(queued.since)
    }

    pub(crate) fn push(&mut self, queued: QueuedResponse) {
        self.is_blocked |= queued.response.is_barrier();
        if let Some(release) = self.release.take() {
            release.cancel();
        }
        if let PendingResponse::Awaiting(_, Pipelining::Released(release)) = &queued.response {
            self.release = Some(release.clone());
        }
        self.queue.push_back(queued);
    }

    /// Adds the ticket of the last `answers` produce answers.
    pub(crate) fn push_produces(&mut self, ticket: Ticket, answers: usize) {
        self.produces.push_back(PendingProduces {
            waiting: Some(ticket),
            outcomes: SmallVec::new().into_iter(),
            answers,
        });
    }

    /// Takes the operation that the first answer waits for.
    pub(crate) fn next_operation(&mut self) -> Option<Operation> {
        match &mut self.queue.front_mut()?.response {
            PendingResponse::Awaiting(operation, _) => operation.take(),
            PendingResponse::Ready(_) | PendingResponse::Produce(_) => None,
        }
    }

    /// Takes the next step of the first answer, whose operation is done.
    pub(crate) fn on_done(&mut self, step: Result<Step, Close>) {
        let Some(front) = self.queue.front_mut() else {
            return;
        };
        let result = match (step, &mut front.response) {
            (Ok(Step::Await(next)), PendingResponse::Awaiting(operation, _)) => {
                *operation = Some(next);
                return;
            }
            (Ok(Step::Await(_)), _) => return,
            (Ok(Step::Respond(response)), _) => Ok(response),
            (Err(close), _) => Err(close),
        };
        self.is_blocked &= !front.response.is_barrier();
        front.response = PendingResponse::Ready(result);
    }

    /// Takes the first answer once it is ready. Pending forever if the queue is empty.
    pub(crate) fn poll_next(
        &mut self,
        shared: &KafkaContext,
        context: &mut Context<'_>,
    ) -> Poll<NextResponse> {
        let Some(front) = self.queue.front_mut() else {
            return Poll::Pending;
        };
        if let PendingResponse::Produce(results) = &mut front.response {
            let Some(group) = self.produces.front_mut() else {
                return Poll::Pending;
            };
            if let Some(ticket) = &mut group.waiting {
                let outcomes = ready!(Pin::new(ticket).poll(context));
                group.outcomes = outcomes.into_iter();
                group.waiting = None;
            }
            let result = results.finish(shared, &mut group.outcomes);
            group.answers -= 1;
            if group.answers == 0 {
                self.produces.pop_front();
            }
            front.response = PendingResponse::Ready(result);
        }
        let is_ready = |queued: &mut QueuedResponse| matches!(queued.response, PendingResponse::Ready(_));
        let Some(QueuedResponse {
            response: PendingResponse::Ready(result),
            api,
            since,
            permit,
            mut traced,
        }) = self.queue.pop_front_if(is_ready)
        else {
            return Poll::Pending;
        };
        if let Some(api) = api {
            shared.metrics.on_ready(api, since.elapsed());
        }
        if let Some(traced) = &mut traced {
            traced.on_ready(result.is_ok());
        }
        Poll::Ready(NextResponse {
            result,
            permit,
            traced,
        })
    }

    /// Releases the memory of a burst.
    pub(crate) fn shrink(&mut self) {
        const KEPT: usize = 16;
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            self.queue = VecDeque::new();
            self.produces = VecDeque::new();
        }
    }
}
