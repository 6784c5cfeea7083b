//! Operations: the work that a request waits for. The connection performs it when the request's turn comes,
//! and the request goes on with the outcome.
//!
//! ```text
//! handler ──▶ operation ──▶ performed ──▶ on_done ──▶ response
//!                 ▲                          │
//!                 └────── another one ◀──────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_broker::{Broker, Scope};
use stafett_groups::classic::{Join, Sync};
use stafett_groups::{
    CommitTicket, DeletionTicket, GroupError, HeartbeatResponse, JoinError, JoinReply, StableWatch,
    StepResult, SyncReply,
};
use stafett_kafka_wire::Str;
use stafett_model::{LogId, Offset, ProducerId};
use stafett_store::NotStored;
use stafett_topics::{
    AlterError, CreateError, DeleteError, GrowError, LogSlice, NewTopic, ReadError, ReadRequest, Topic,
    TopicId, TopicSettings, Watch,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::access_operation::AccessOperation;
use crate::call::{Close, EncodedResponse, ResponseResult};
use crate::configs::{Area, BadConfig, ConfigChange};
use crate::context::{KafkaContext, RequestContext};
use crate::epoch_search::{EpochSearch, FoundEnd};
use crate::sasl::{self, Authenticated};
use crate::share_operation::ShareOperation;
use crate::time_search::{FoundOffset, TimeSearch};
use crate::transaction_operation::TransactionOperation;

/// Request that goes on with the outcome of an operation.
pub(crate) trait OnDone<T>: Send {
    fn on_done(self: Box<Self>, context: &RequestContext, outcome: T) -> Result<Step, Close>;
}

/// Next step of a request.
pub(crate) enum Step {
    Respond(EncodedResponse),
    Await(Operation),
}

pub(crate) type Then<T> = Box<dyn OnDone<T>>;

type Write = Box<dyn FnOnce(&RequestContext) -> ResponseResult + Send>;

impl From<EncodedResponse> for Step {
    fn from(response: EncodedResponse) -> Self {
        Self::Respond(response)
    }
}

impl<T, F> OnDone<T> for F
where
    F: FnOnce(&RequestContext, T) -> Result<Step, Close> + Send,
{
    fn on_done(self: Box<Self>, context: &RequestContext, outcome: T) -> Result<Step, Close> {
        self(context, outcome)
    }
}

/// Goes on with the outcome of an operation.
pub(crate) fn then<T: 'static, R: Into<Step>>(
    on_done: impl FnOnce(&RequestContext, T) -> Result<R, Close> + Send + 'static,
) -> Then<T> {
    Box::new(move |context: &RequestContext, outcome: T| on_done(context, outcome).map(Into::into))
}

/// Writes a response, under a permit if it is large.
pub(crate) fn write_sized(
    context: &RequestContext,
    is_large: bool,
    write: impl FnOnce(&RequestContext) -> ResponseResult + Send + 'static,
) -> Result<Step, Close> {
    if is_large {
        Ok(Step::Await(Operation::WriteLarge(Box::new(write))))
    } else {
        write(context).map(Step::Respond)
    }
}

/// Work that a request waits for, and the request.
pub(crate) enum Operation {
    /// Nothing but the turn of the request: all earlier ones are answered.
    Turn(Then<()>),
    /// Write a large response, of which few are in memory at once. The writer waits for nothing.
    WriteLarge(Write),
    /// Write a response on a thread that may block.
    WriteBlocking {
        is_large: bool,
        write: Box<dyn FnOnce() -> ResponseResult + Send>,
    },
    CreateTopics(Vec<NewTopic>, Then<Vec<Result<Arc<Topic>, CreateError>>>),
    /// Wait until no topic of these names is being created or deleted.
    AwaitNames(Vec<Str>, Then<()>),
    /// Add partitions, for given totals.
    GrowTopics(Vec<(TopicId, u32)>, Then<Vec<Result<Arc<Topic>, GrowError>>>),
    DeleteTopics(Vec<TopicId>, Then<Vec<Result<(), DeleteError>>>),
    /// Free the records before an offset.
    Truncate(Vec<(LogId, Offset)>, Then<Vec<Result<(), NotStored>>>),
    /// Change settings.
    Alter(
        Vec<(AlterTarget, ConfigChange)>,
        Then<Vec<Result<(), AlterError<BadConfig>>>>,
    ),
    NewProducerId(Then<Result<ProducerId, NotStored>>),
    /// Have the first cell of the cluster execute the request of this frame.
    AskFirstCell(Bytes),
    /// Take a message of a login.
    Authenticate(Bytes, Then<Authenticated>),
    /// Change users or rules.
    Access(AccessOperation),
    /// Wait until commits, or their deletion, are stored.
    AwaitCommits(CommitTicket, Then<SmallVec<[Result<(), NotStored>; 1]>>),
    Group(GroupOperation),
    Transaction(TransactionOperation),
    Share(ShareOperation),
    /// Create `__consumer_offsets`.
    CreateOffsetsTopic(Then<()>),
    /// Append pending commits to `__consumer_offsets`.
    RefreshOffsetsTopic(Then<()>),
    /// Search for times, except where the result is known.
    FindTimes(Vec<Result<TimeSearch, FoundOffset>>, Then<Vec<FoundOffset>>),
    /// Search for ends of epochs, except where the result is known.
    FindEpochEnds(Vec<Result<EpochSearch, FoundEnd>>, Then<Vec<FoundEnd>>),
    /// Read several logs. Empty if the journal is stopping.
    Read(ReadRequest, Then<Vec<Result<LogSlice, ReadError>>>),
    /// Wait until watched logs have grown by `bytes`, or `until`.
    AwaitGrowth {
        watch: Watch,
        bytes: usize,
        until: Instant,
        then: Then<Watch>,
    },
}

/// Resource whose settings are changed.
#[derive(Debug)]
pub(crate) enum AlterTarget {
    Topic(TopicId),
    Scope(Scope),
}

impl AlterTarget {
    async fn alter(self, broker: &Arc<Broker>, change: ConfigChange) -> Result<(), AlterError<BadConfig>> {
        let edit = move |before: &TopicSettings| change.apply(before);
        match self {
            Self::Topic(id) => broker.catalog().alter(id, edit).await.map(drop),
            Self::Scope(scope) => broker.alter_scope(scope, edit).await,
        }
    }

    pub(crate) fn area(&self) -> Area {
        match self {
            Self::Topic(_) => Area::Topic,
            Self::Scope(Scope::Group(_)) => Area::Group,
            Self::Scope(Scope::Cluster | Scope::Broker) => Area::Broker,
        }
    }
}

/// Operation on a consumer group.
pub(crate) enum GroupOperation {
    /// Join a classic group, which ends with its next generation.
    Join(Box<str>, Box<Join>, Then<Result<JoinReply, JoinError>>),
    Sync(Box<str>, Box<Sync>, Then<Result<SyncReply, GroupError>>),
    /// Wait while a group is stable and the client sends nothing else.
    HoldHeartbeat(Box<HeldHeartbeat>, Then<Result<(), GroupError>>),
    /// Wait until a consumer group's step is stored.
    AwaitStep(
        Str,
        Box<StepResult<HeartbeatResponse>>,
        Then<Result<HeartbeatResponse, GroupError>>,
    ),
    /// Wait until groups are deleted, then delete their places in topics.
    AwaitDeletions(Vec<(Str, DeletionTicket)>, Then<Vec<Result<(), NotStored>>>),
}

/// A heartbeat that is answered later.
#[derive(Debug)]
pub(crate) struct HeldHeartbeat {
    pub group: Str,
    pub member: Str,
    pub instance: Option<Str>,
    pub generation: i32,
    pub watch: StableWatch,
    pub time_max: Duration,
    /// Cancelled by the next request.
    pub release: CancellationToken,
}

impl Operation {
    /// Performs the operation, and has the request go on. Connections keep the memory of the future, so large
    /// ones within it that are rare have memory of their own.
    pub(crate) async fn perform(self, context: &RequestContext) -> Result<Step, Close> {
        let shared = &*context.shared;
        let broker = &shared.broker;
        let catalog = broker.catalog();
        match self {
            Self::Turn(then) => then.on_done(context, ()),
            Self::WriteLarge(write) => write_large(context, write).await,
            Self::WriteBlocking { is_large, write } => write_blocking(context, is_large, write).await,
            Self::CreateTopics(new, then) => then.on_done(context, catalog.create(new).await),
            Self::AwaitNames(names, then) => {
                await_names(broker, names).await;
                then.on_done(context, ())
            }
            Self::GrowTopics(grown, then) => then.on_done(context, grow_topics(broker, grown).await),
            Self::DeleteTopics(ids, then) => then.on_done(context, delete_topics(shared, ids).await),
            Self::Truncate(logs, then) => then.on_done(context, catalog.truncate(&logs).await),
            Self::Alter(changes, then) => {
                let altered = changes
                    .into_iter()
                    .map(|(target, change)| target.alter(broker, change));
                then.on_done(context, in_order(altered).await)
            }
            Self::NewProducerId(then) => then.on_done(context, catalog.new_producer_id().await),
            Self::CreateOffsetsTopic(then) => {
                shared.offsets_topic.topic().create(broker).await;
                then.on_done(context, ())
            }
            Self::RefreshOffsetsTopic(then) => {
                Box::pin(shared.refresh_offsets_topic()).await;
                then.on_done(context, ())
            }
            Self::FindTimes(searches, then) => {
                let found = searches.into_iter().map(async |it| match it {
                    Ok(it) => it.find(catalog).await,
                    Err(known) => known,
                });
                then.on_done(context, Box::pin(in_order(found)).await)
            }
            Self::FindEpochEnds(searches, then) => {
                let found = searches.into_iter().map(async |search| match search {
                    Ok(search) => search.find(catalog).await,
                    Err(known) => known,
                });
                then.on_done(context, Box::pin(in_order(found)).await)
            }
            Self::Read(request, then) => {
                let read = catalog.read(request).finish().await;
                then.on_done(context, read.unwrap_or_default())
            }
            Self::AwaitGrowth {
                watch,
                bytes,
                until,
                then,
            } => {
                await_growth(context, &watch, bytes, until).await;
                then.on_done(context, watch)
            }
            Self::Authenticate(message, then) => {
                let done = Box::pin(sasl::authenticate(context, message)).await;
                then.on_done(context, done)
            }
            Self::AskFirstCell(request) => Box::pin(context.ask_first_cell(request)).await,
            Self::Access(operation) => Box::pin(operation.perform(context)).await,
            Self::AwaitCommits(ticket, then) => then.on_done(context, ticket.parts().await),
            Self::Group(operation) => Box::pin(operation.perform(context)).await,
            Self::Transaction(operation) => Box::pin(operation.perform(context)).await,
            Self::Share(operation) => Box::pin(operation.perform(context)).await,
        }
    }
}

async fn grow_topics(broker: &Arc<Broker>, grown: Vec<(TopicId, u32)>) -> Vec<Result<Arc<Topic>, GrowError>> {
    // All are begun before the first is awaited: they share the journal's syncs.
    let grown = grown.into_iter().map(|(id, total)| broker.grow_topic(id, total));
    in_order(grown.collect::<Vec<_>>()).await
}

async fn await_names(broker: &Broker, names: Vec<Str>) {
    for name in names {
        broker.topics().settled(&name).await;
    }
}

impl GroupOperation {
    async fn perform(self, context: &RequestContext) -> Result<Step, Close> {
        let groups = context.shared.broker.groups();
        match self {
            Self::Join(group, join, then) => {
                let member = Arc::from(&*join.member);
                let joined = tokio::select! {
                    biased;
                    joined = groups.join(&group, *join) => joined,
                    () = context.drain.cancelled() => {
                        Err(JoinError { error: GroupError::Stopping, member })
                    }
                };
                then.on_done(context, joined)
            }
            Self::Sync(group, sync, then) => {
                let synced = tokio::select! {
                    biased;
                    synced = groups.sync(&group, *sync) => synced,
                    () = context.drain.cancelled() => Err(GroupError::Stopping),
                };
                then.on_done(context, synced)
            }
            Self::HoldHeartbeat(held, then) => {
                let is_stable = || held.check(context).is_ok();
                tokio::select! {
                    biased;
                    () = held.release.cancelled() => {}
                    () = context.drain.cancelled() => {}
                    () = held.watch.wait_for_change(is_stable) => {}
                    () = sleep(held.time_max) => {}
                }
                then.on_done(context, held.check(context))
            }
            Self::AwaitStep(group, stepped, then) => {
                then.on_done(context, groups.consumer_stored(&group, *stepped).await)
            }
            Self::AwaitDeletions(tickets, then) => {
                let broker = &context.shared.broker;
                let deleted = tickets
                    .into_iter()
                    .map(async |(name, ticket)| broker.finish_group_deletion(&name, ticket).await);
                then.on_done(context, in_order(deleted).await)
            }
        }
    }
}

impl HeldHeartbeat {
    fn check(&self, context: &RequestContext) -> Result<(), GroupError> {
        let groups = context.shared.broker.groups();
        groups.check_alive(
            &self.group,
            &self.member,
            self.instance.as_deref(),
            self.generation,
        )
    }
}

async fn delete_topics(shared: &KafkaContext, ids: Vec<TopicId>) -> Vec<Result<(), DeleteError>> {
    let begun = ids.into_iter().map(|id| shared.broker.delete_topic(id));
    let begun: Vec<_> = begun.collect();
    let deleted = begun.into_iter().map(async |deletion| {
        let deleted = deletion.await;
        shared.on_deletion();
        deleted
    });
    in_order(deleted).await
}

/// Awaits one after the other.
pub(crate) async fn in_order<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut outputs = Vec::new();
    for future in futures {
        outputs.push(future.await);
    }
    outputs
}

/// Waits for the permit to have a large response in memory. Its holder must wait for nothing but its client.
async fn large_response(context: &RequestContext) -> Option<OwnedSemaphorePermit> {
    let permits = Arc::clone(&context.shared.large_responses);
    permits.acquire_owned().await.ok()
}

async fn write_large(context: &RequestContext, write: Write) -> Result<Step, Close> {
    let turn = large_response(context).await;
    let written = write(context)?;
    Ok(Step::Respond(EncodedResponse { turn, ..written }))
}

async fn write_blocking(
    context: &RequestContext,
    is_large: bool,
    write: Box<dyn FnOnce() -> ResponseResult + Send>,
) -> Result<Step, Close> {
    let turn = if is_large {
        large_response(context).await
    } else {
        None
    };
    let written = tokio::task::spawn_blocking(write).await;
    let written = written.map_err(|_| Close::OutcomeUnknown)??;
    Ok(Step::Respond(EncodedResponse { turn, ..written }))
}

/// Waits until the watched logs have grown by `bytes`, `until` has passed, or the connection drains.
async fn await_growth(context: &RequestContext, watch: &Watch, bytes: usize, until: Instant) {
    let enough = async {
        while usize::try_from(watch.bytes()).unwrap_or(usize::MAX) < bytes {
            watch.grown().await;
        }
    };
    tokio::select! {
        () = enough => {}
        () = sleep_until(until) => {}
        () = context.drain.cancelled() => {}
    }
}
