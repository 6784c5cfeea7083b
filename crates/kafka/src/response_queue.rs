//! Queue of the answers that a connection owes its client, in the order of the requests.
//!
//! An answer is ready, waits for the journal, or is a task that runs when its turn comes. Produce requests
//! that were read together share one ticket. Their answers are adjacent in the queue, so the next produce
//! answer always belongs to the first remaining group.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use stafett_kafka_wire::{ApiKey, Encoded};
use stafett_net::Permit;
use stafett_topics::{Outcome, Ticket};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::produce::ProduceAnswer;
use crate::context::KafkaContext;
use crate::session::Close;

/// Future of an answer; first polled when all earlier requests are answered.
pub(crate) type Task = Pin<Box<dyn Future<Output = ResponseResult> + Send>>;

/// An answer, or the reason to end the connection.
pub(crate) type ResponseResult = Result<EncodedResponse, Close>;

/// A complete answer, and the resources that it holds until it is written.
#[derive(Debug, Default)]
pub(crate) struct EncodedResponse {
    /// `None` if the client wants no answer.
    pub encoded: Option<Encoded>,
    /// Memory of the answer.
    pub memory: Option<Permit>,
    /// Permit to have a large answer in memory.
    pub turn: Option<OwnedSemaphorePermit>,
}

impl From<Encoded> for EncodedResponse {
    fn from(encoded: Encoded) -> Self {
        Self {
            encoded: Some(encoded),
            ..Self::default()
        }
    }
}

pub(crate) enum PendingResponse {
    Ready(ResponseResult),
    /// Waits for the outcomes of the first group.
    Produce(ProduceAnswer),
    Task(Task),
    /// Task that later requests may depend on. None of them is executed before it is done.
    Barrier(Task),
    /// Barrier that may take minutes; it holds nothing of its request.
    Waiting(Task),
    /// Task that ends early when the token is cancelled, which the next request does. It holds nothing of its
    /// request.
    Held(Task, CancellationToken),
}

pub(crate) struct QueuedResponse {
    pub kind: PendingResponse,
    pub api: Option<ApiKey>,
    /// Time at which the request was parsed.
    pub since: Instant,
    /// Memory of the request.
    pub permit: Permit,
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
    groups: VecDeque<PendingProduces>,
    is_blocked: bool,
    /// Token that ends the last added task early, if it is held.
    release: Option<CancellationToken>,
}

/// The next answer in order.
pub(crate) struct NextResponse {
    pub answered: ResponseResult,
    pub permit: Permit,
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

    pub(crate) fn push(&mut self, answer: QueuedResponse) {
        self.is_blocked |= matches!(
            answer.kind,
            PendingResponse::Barrier(_) | PendingResponse::Waiting(_) | PendingResponse::Ready(Err(_))
        );
        if let Some(release) = self.release.take() {
            release.cancel();
        }
        if let PendingResponse::Held(_, release) = &answer.kind {
            self.release = Some(release.clone());
        }
        self.queue.push_back(answer);
    }

    /// Adds the ticket of the last `answers` produce answers.
    pub(crate) fn push_group(&mut self, ticket: Ticket, answers: usize) {
        self.groups.push_back(PendingProduces {
            waiting: Some(ticket),
            outcomes: SmallVec::new().into_iter(),
            answers,
        });
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
        match &mut front.kind {
            PendingResponse::Ready(_) => {}
            PendingResponse::Task(task)
            | PendingResponse::Barrier(task)
            | PendingResponse::Waiting(task)
            | PendingResponse::Held(task, _) => {
                let answered = ready!(task.as_mut().poll(context));
                self.is_blocked &= !matches!(
                    front.kind,
                    PendingResponse::Barrier(_) | PendingResponse::Waiting(_)
                );
                front.kind = PendingResponse::Ready(answered);
            }
            PendingResponse::Produce(answer) => {
                let Some(group) = self.groups.front_mut() else {
                    return Poll::Pending;
                };
                if let Some(ticket) = &mut group.waiting {
                    let outcomes = ready!(Pin::new(ticket).poll(context));
                    group.outcomes = outcomes.into_iter();
                    group.waiting = None;
                }
                let answered = answer.finish(shared, &mut group.outcomes);
                group.answers -= 1;
                if group.answers == 0 {
                    self.groups.pop_front();
                }
                front.kind = PendingResponse::Ready(answered);
            }
        }
        let Some(QueuedResponse {
            kind: PendingResponse::Ready(answered),
            api,
            since,
            permit,
        }) = self.queue.pop_front()
        else {
            return Poll::Pending;
        };
        if let Some(api) = api {
            shared.metrics.on_ready(api, since.elapsed());
        }
        Poll::Ready(NextResponse { answered, permit })
    }

    /// Releases the memory of a burst.
    pub(crate) fn shrink(&mut self) {
        const KEPT: usize = 16;
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            self.queue = VecDeque::new();
            self.groups = VecDeque::new();
        }
    }
}
