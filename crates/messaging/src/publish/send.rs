//! Sending to queues by name: every message reaches all of its queues, or nothing is stored.

use std::sync::Arc;

use bytestring::ByteString;
use stafett_journal::{Append, Refusal, RequestId};
use stafett_model::{Message, Namespace};
use stafett_store::NotStored;

use crate::delayed::{Bucket, DELAY_MS_MAX, DelayError};
use crate::exchanges::Target;
use crate::exchanges::resolver::Resolver;
use crate::queues::{AppendOutcome, AtomicPublishError, Publication, Queue, Refused, StoredAt, Targets};

const DEFAULT_EXCHANGE: &str = "";
/// Bound on the queues of one message: a stored batch has no more targets.
pub const QUEUES_MAX: usize = 4096;

/// A message with the queues that it is sent to. With a delay it waits, and goes to those of them that are
/// there when it is due.
#[derive(Debug, Clone, Default)]
pub struct Send {
    pub message: Message,
    /// At least one, at most [`QUEUES_MAX`].
    pub queues: Vec<ByteString>,
}

/// Error of sending. Unless the outcome is unknown, nothing is stored. `at` is the index of the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("there is no such namespace")]
    NoSuchNamespace,
    #[error("there is no queue {name:?}")]
    NoSuchQueue { at: usize, name: ByteString },
    #[error("a message goes to {QUEUES_MAX} queues at most")]
    TooManyQueues { at: usize },
    #[error("a message waits {DELAY_MS_MAX} ms at most")]
    DelayTooLong { at: usize, max_ms: u64 },
    #[error("a message is refused: {why}")]
    Refused { at: usize, why: Refused },
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Messages that are sent together.
#[derive(Debug)]
pub struct SentTogether {
    /// Places of each message in its queues; none while it waits.
    pub places: Vec<StoredAt>,
    /// True if an earlier append with the same request id holds them.
    pub is_repeated: bool,
}

/// Sends messages, all in one append. They are staged when this returns, and stored when it resolves. The id
/// of a request counts for the queues that the messages are sent to: a queue that is made again under its
/// name is another one, and has nothing that was sent before.
pub(crate) fn send(
    resolver: &Resolver,
    namespace: &Namespace,
    sends: Vec<Send>,
    request: Option<RequestId>,
) -> impl Future<Output = Result<SentTogether, SendError>> + use<> {
    let staged = publication(resolver, namespace, sends, request);
    let ticket = staged.map(|(publication, _buckets)| resolver.queues.append(publication));
    async {
        let (places, is_repeated) = ticket?.placed().await?;
        let places = places.messages;
        Ok(SentTogether { places, is_repeated })
    }
}

/// Sends messages, each for itself: each reaches all of its queues, or is stored in none. They are staged
/// together when this returns, and stored when it resolves, to the places of each.
pub(crate) fn send_each(
    resolver: &Resolver,
    namespace: &Namespace,
    sends: Vec<Send>,
) -> impl Future<Output = Vec<Result<StoredAt, SendError>>> + use<> {
    let mut publication = Publication::each_to_all(sends.len());
    let (mut results, mut buckets) = (Vec::with_capacity(sends.len()), Vec::new());
    if resolver.exchanges.has_namespace(namespace) {
        let added = sends.into_iter().map(|send| {
            let staged = (&mut publication, &mut buckets);
            add(resolver, namespace, staged, 0, send, &mut None).map(|()| StoredAt::new())
        });
        results.extend(added);
    } else {
        results.resize(sends.len(), Err(SendError::NoSuchNamespace));
    }
    let ticket = (!publication.is_empty()).then(|| resolver.queues.append(publication).with_places());
    drop(buckets);
    async move {
        let Some(mut ticket) = ticket else { return results };
        let outcomes = (&mut ticket).await;
        let stored = outcomes.into_iter().zip(ticket.take_places().messages);
        let sent = results.iter_mut().filter(|result| result.is_ok());
        for (result, (outcome, places)) in sent.zip(stored) {
            *result = match outcome {
                AppendOutcome::Stored => Ok(places),
                AppendOutcome::Refused(why) => Err(SendError::Refused { at: 0, why }),
                AppendOutcome::Unknown => Err(NotStored::Unknown.into()),
            };
        }
        results
    }
}

/// Sends messages together with other frames, all in one append or nothing. Cheap to clone.
#[derive(Debug, Clone)]
pub struct JointSender(pub(crate) Arc<Resolver>);

impl JointSender {
    /// Sends messages in an append, which is staged when this returns. Resolves to the bases of the append's
    /// own batches.
    pub fn send(
        &self,
        namespace: &Namespace,
        sends: Vec<Send>,
        append: Append,
    ) -> impl Future<Output = Result<Vec<u64>, SendError>> + use<> {
        let resolver = &self.0;
        let staged = publication(resolver, namespace, sends, None);
        let ticket = staged.map(|(publication, _buckets)| {
            resolver.queues.count_traffic(&append);
            resolver.queues.append_with(publication, append.frames)
        });
        async move { Ok(ticket?.placed().await?.0.others) }
    }
}

/// Buckets of delayed messages, to be held until the messages are staged.
type Buckets = Vec<Arc<Bucket>>;

fn publication(
    resolver: &Resolver,
    namespace: &Namespace,
    sends: Vec<Send>,
    mut request: Option<RequestId>,
) -> Result<(Publication, Buckets), SendError> {
    if !resolver.exchanges.has_namespace(namespace) {
        return Err(SendError::NoSuchNamespace);
    }
    let (mut publication, mut buckets) = (Publication::to_all(), Buckets::new());
    for (at, send) in sends.into_iter().enumerate() {
        let staged = (&mut publication, &mut buckets);
        add(resolver, namespace, staged, at, send, &mut request)?;
    }
    Ok((publication.with_request(request), buckets))
}

/// Returns the id of a request to a queue: each pair of an id and a queue has its own.
fn of_queue(request: RequestId, queue: &Queue) -> RequestId {
    // The step of FNV-1a, with 128 bits.
    const PRIME: u128 = (1 << 88) + 0x13b;
    let mixed = u128::from_le_bytes(request.0) ^ u128::from(queue.id.0);
    RequestId(mixed.wrapping_mul(PRIME).to_le_bytes())
}

/// Adds the message at index `at` to a publication, and its queues to the id of the request.
fn add(
    resolver: &Resolver,
    namespace: &Namespace,
    (publication, buckets): (&mut Publication, &mut Buckets),
    at: usize,
    Send { message, queues }: Send,
    request: &mut Option<RequestId>,
) -> Result<(), SendError> {
    if queues.len() > QUEUES_MAX {
        return Err(SendError::TooManyQueues { at });
    }
    for name in &queues {
        let Some(queue) = resolver.queues.get(namespace, name) else {
            let name = name.clone();
            return Err(SendError::NoSuchQueue { at, name });
        };
        *request = request.map(|request| of_queue(request, &queue));
    }
    let targets: Vec<Target> = queues
        .iter()
        .map(|name| Target::Queue((&**name).into()))
        .collect();
    let places = resolver.resolve(namespace, &targets);
    if message.bytes() > places.message_bytes_max {
        let why = Refused::TooLarge;
        return Err(SendError::Refused { at, why });
    }
    if message.delay_ms.is_none_or(|ms| ms == 0) {
        let route = publication.route(places.targets(&message));
        publication.push(message, route);
        return Ok(());
    }
    let Some(space) = resolver.exchanges.space(namespace) else {
        return Err(SendError::NoSuchNamespace);
    };
    // The default exchange leads to the queues of these names.
    let routing_key = queues.first().cloned().unwrap_or_default();
    let more_keys = queues.get(1..).unwrap_or_default();
    let message = Message {
        routing_key,
        ..message
    };
    let waiting = resolver
        .delayed
        .wait((namespace, space.id), DEFAULT_EXCHANGE, &message, more_keys)
        .map_err(|why| match why {
            DelayError::TooLong => SendError::DelayTooLong {
                at,
                max_ms: DELAY_MS_MAX,
            },
            DelayError::Journal(why) => NotStored::Refused(why).into(),
        })?;
    let route = publication.route(Targets::waiting(waiting.log));
    publication.push(waiting.message, route);
    buckets.push(waiting.bucket);
    Ok(())
}

impl From<AtomicPublishError> for SendError {
    fn from(why: AtomicPublishError) -> Self {
        match why {
            AtomicPublishError::Misfit { at, why } => Self::Refused { at, why },
            AtomicPublishError::NotStored(why) => Self::NotStored(why),
            AtomicPublishError::SourceGone => Self::NotStored(NotStored::Refused(Refusal::Closed)),
        }
    }
}
