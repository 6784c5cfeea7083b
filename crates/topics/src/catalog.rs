//! Definitions of stored topics (create, change, grow, delete), and access to their logs.
//!
//! Every change is a task of its own: it completes even if its caller leaves, so that stored state and memory
//! stay consistent and no name stays claimed. Changes of one topic are serialised.

mod changes;
mod following;

use std::collections::HashMap;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stafett_journal::{
    Append, Bounds, Frame, Journal, LogSpec, OpenTransaction, ProducerStatus, ReadError, ReadFrom,
    ReadRequest, ReadTicket, Refusal, StateUnreadable, StateWait, Ticket, TimeQuery, TimeTicket, Visibility,
    Watch,
};
use stafett_model::{Epoch, LogId, Offset, ProducerId, SharedLock};
use stafett_store::{Changes, NotStored, only_outcome, spaces, store_synced};
use tokio_util::sync::CancellationToken;

use self::changes::respec;
pub use self::changes::{AlterError, CreateError, DeleteError, GrowError, NewTopic, PARTITIONS_MAX};
pub use self::following::FollowError;
use crate::homes::{Cells, cell_of};
use crate::log_read::{LogTicket, read_log_at};
use crate::producer_ids::ProducerIds;
use crate::registry::Topics;
use crate::settings::{Rules, TopicDefaults};
use crate::topic::{Topic, TopicId, TopicSettings};

/// Pause before a refused change of logs is retried.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Number of topics whose logs are changed together when the defaults change.
const TOPICS_AT_ONCE: usize = 1000;

/// All stored topics, with their definitions and logs.
#[derive(Debug)]
pub struct TopicCatalog {
    journal: Arc<dyn Journal>,
    topics: Arc<Topics>,
    /// Settings of topics that have not set their own.
    defaults: Arc<SharedLock<TopicDefaults>>,
    no_settings: Arc<TopicSettings>,
    /// Earlier definitions with the name of another topic: their deletions were lost with a part of the
    /// journal.
    superseded: Vec<Arc<Topic>>,
    producer_ids: ProducerIds,
    /// Unset in a broker that is alone.
    cells: OnceLock<Cells>,
    /// Set in the first of several cells.
    copies: OnceLock<Arc<dyn TopicCopies>>,
    changes: Changes,
    /// Cancelled to end retries.
    stop: CancellationToken,
}

/// Copies of the topics in the other cells of a cluster.
pub trait TopicCopies: Debug + Send + Sync {
    /// Waits until all cells that have owners have a version of the topics, for a bounded time.
    fn have(&self, version: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl TopicCatalog {
    /// Loads all topics. The defaults are in force once [`TopicCatalog::follow_defaults`] has been called.
    pub fn load(journal: Arc<dyn Journal>, defaults: TopicDefaults) -> Result<Self, StateUnreadable> {
        let no_settings: Arc<TopicSettings> = Arc::default();
        let topics = Arc::new(Topics::default());
        let mut superseded = Vec::new();
        spaces::TOPICS.load_values(&*journal, |key, value| {
            let id = TopicId(u128::from_be_bytes(key.try_into().ok()?));
            let topic = Arc::new(Topic::decode(id, value, &no_settings)?);
            superseded.extend(insert_newer(&topics, topic));
            Some(())
        })?;
        Ok(Self {
            producer_ids: ProducerIds::load(&*journal)?,
            journal,
            topics,
            defaults: Arc::new(SharedLock::new(defaults)),
            no_settings,
            superseded,
            cells: OnceLock::new(),
            copies: OnceLock::new(),
            changes: Changes::default(),
            stop: CancellationToken::new(),
        })
    }

    /// Deletes again, in the background, the topics with lost deletions. Must be called once all parts of the
    /// broker are loaded. If the disk is full, the next start retries.
    pub fn finish_deletions(&self) {
        let deletions = self.superseded.iter().map(|topic| self.deletion(topic));
        let appends = deletions.map(|frames| Append::state(frames, StateWait::Written));
        drop(self.append(appends.collect()));
    }

    /// Returns the stored form of the defaults that the topics' logs followed in the previous run.
    pub fn load_followed(&self) -> Result<Option<Vec<u8>>, StateUnreadable> {
        spaces::DEFAULTS.load(&*self.journal)
    }

    /// Returns the topics, by name and by id.
    pub fn topics(&self) -> &Arc<Topics> {
        &self.topics
    }

    /// Returns the tracker of changes in progress.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Waits until every change has ended. No change may begin afterwards.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.changes.finish().await;
    }

    /// Returns the settings of topics that have not set their own.
    pub fn defaults(&self) -> TopicDefaults {
        *self.defaults.read()
    }

    /// Returns the shared value of [`Self::defaults`].
    pub fn shared_defaults(&self) -> &Arc<SharedLock<TopicDefaults>> {
        &self.defaults
    }

    /// Returns the shared value for topics without settings of their own.
    pub fn no_settings(&self) -> &Arc<TopicSettings> {
        &self.no_settings
    }

    /// Returns the rules for the batches of a topic.
    pub fn rules(&self, topic: &Topic) -> Rules {
        self.defaults().rules(&topic.settings)
    }

    /// Returns durability, retention and compaction of a topic's logs.
    pub fn log_spec(&self, topic: &Topic) -> LogSpec {
        topic.settings.log_spec(&self.defaults())
    }

    /// Has topics that ask for it spread over the cells of a cluster. Called once, before any is created.
    pub fn spread_over(&self, cells: Cells) {
        self.cells.get_or_init(|| cells);
        if cells.own != 0 {
            self.topics.hide_own();
        }
    }

    /// Has each change end once other cells know of it, from now on: their clients would use a topic that is
    /// deleted, or one of the same name. Called once.
    pub fn tell(&self, copies: Arc<dyn TopicCopies>) {
        self.copies.get_or_init(|| copies);
    }

    /// Returns the cells of the cluster.
    pub fn cells(&self) -> Cells {
        self.cells.get().copied().unwrap_or(Cells::ALONE)
    }

    /// Returns true if clients of the whole cluster see a topic. Other cells than the first have some of
    /// their own, too.
    pub fn is_of_clients(&self, topic: &Topic) -> bool {
        self.cells().own == 0 || topic.is_of_cluster()
    }

    /// Returns true if the partitions of a topic lie in several cells.
    pub fn is_spread(&self, topic: &Topic) -> bool {
        topic.settings.spread == Some(true) && self.cells().count > 1
    }

    /// Gives out producer ids behind this one only, which a loaded part of the broker knows.
    pub fn pass_producer_id(&self, id: ProducerId) {
        self.producer_ids.pass(id);
    }

    /// Returns an id that no producer has had.
    pub async fn new_producer_id(&self) -> Result<ProducerId, NotStored> {
        self.producer_ids.next(&*self.journal).await
    }

    /// Appends verified batches. Those of one log are stored in order.
    pub fn append(&self, appends: Vec<Append>) -> Ticket {
        self.topics.traffic().count_appends(&appends);
        self.journal.append(appends)
    }

    pub fn read(&self, request: ReadRequest) -> ReadTicket {
        self.journal.read(request)
    }

    /// Reads one log, its first batch whole.
    pub fn read_log(&self, log: LogId, from: Offset, bytes_max: usize, visibility: Visibility) -> LogTicket {
        read_log_at(&*self.journal, log, from, bytes_max, visibility)
    }

    pub fn find_time(&self, log: LogId, query: TimeQuery) -> TimeTicket {
        self.journal.find_time(log, query)
    }

    /// Returns the first offset with this timestamp or a later one, as [`crate::offset_at_time`] does.
    pub async fn offset_at_time(&self, log: LogId, time_ms: i64) -> Result<Option<u64>, ReadError> {
        crate::offset_at_time(&*self.journal, log, time_ms).await
    }

    pub fn bounds(&self, log: LogId) -> Option<Bounds> {
        self.journal.bounds(log)
    }

    /// Waits until the bounds of a topic's partitions in other cells are known, and these cells have owners.
    /// False if that does not come soon.
    pub async fn reach(&self, topic: &Topic) -> bool {
        if topic.is_whole() {
            return true;
        }
        let logs = (0..topic.partitions()).filter_map(|partition| topic.log(partition));
        self.reach_logs(&logs.collect::<Vec<_>>()).await
    }

    /// Waits for the bounds of logs, as [`Self::reach`] does.
    pub async fn reach_logs(&self, logs: &[LogId]) -> bool {
        match self.journal.reach(logs) {
            Some(reaching) => reaching.await,
            None => true,
        }
    }

    /// Returns true if the bounds of logs are known, and their cells have owners.
    pub fn is_reached(&self, logs: &[LogId]) -> bool {
        self.journal.reach(logs).is_none()
    }

    /// Returns the bounds of a log as they are in its cell at this moment. An error if the cell does not
    /// answer.
    pub async fn bounds_now(&self, log: LogId) -> Result<Option<Bounds>, ReadError> {
        let Some(known) = self.bounds(log).filter(|_| cell_of(log).is_some()) else {
            return Ok(self.bounds(log));
        };
        // The answer of a read tells them.
        let from = ReadFrom {
            log,
            offset: known.end,
            bytes_max: 0,
            visibility: Visibility::Stored,
        };
        let request = ReadRequest {
            logs: vec![from],
            ..ReadRequest::default()
        };
        let answer = self.read(request).finish().await.ok();
        match answer.and_then(|mut answer| answer.pop()) {
            Some(Ok(_)) => Ok(self.bounds(log)),
            Some(Err(ReadError::OutOfRange { start, end, .. })) => Ok(Some(Bounds {
                start,
                end,
                stable: known.stable.max(start),
                ..known
            })),
            Some(Err(why)) => Err(why),
            None => Err(ReadError::Io {
                log,
                reason: "there is no answer".into(),
            }),
        }
    }

    /// Returns the bounds of all logs that have records.
    pub fn filled(&self) -> HashMap<LogId, Bounds> {
        self.journal.filled().into_iter().collect()
    }

    /// Returns the log's idempotent producers, or `None` if the log does not exist.
    pub fn producers(&self, log: LogId) -> Option<Vec<ProducerStatus>> {
        self.journal.producers(log)
    }

    /// Returns the transactions that are open, of all logs.
    pub fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.journal.open_transactions()
    }

    /// Creates an empty watch: add logs to it with [`TopicCatalog::watch_log`].
    pub fn watch(&self) -> Watch {
        self.journal.watch()
    }

    pub fn watch_log(&self, watch: &Watch, log: LogId, token: u32) -> bool {
        self.journal.watch_log(watch, log, token)
    }

    /// Returns the epoch, the number of this start of the program, under which batches are stored.
    pub fn epoch(&self) -> Epoch {
        self.journal.epoch()
    }

    /// Frees the records before an offset, log by log; durable when this returns.
    pub async fn truncate(&self, logs: &[(LogId, Offset)]) -> Vec<Result<(), NotStored>> {
        let append = |&(log, before): &(LogId, Offset)| {
            Append::state([Frame::Truncate { log, before }], StateWait::Synced)
        };
        let outcomes = self.journal.append(logs.iter().map(append).collect()).await;
        outcomes
            .into_iter()
            .map(|outcome| only_outcome(Some(&outcome)))
            .collect()
    }

    /// Replaces the defaults; `followed` is the stored form of those that the topics' logs follow.
    pub async fn follow_defaults(
        &self,
        defaults: TopicDefaults,
        followed: Option<&[u8]>,
    ) -> Result<(), NotStored> {
        *self.defaults.write() = defaults;
        let now = stored_form(&defaults.logs);
        if followed == Some(&now) {
            return Ok(());
        }
        if followed.is_some() {
            let mut topics = self.topics.all();
            topics.retain(|topic| !topic.id.is_queue());
            for topics in topics.chunks(TOPICS_AT_ONCE) {
                let append = |topic: &Arc<Topic>| {
                    Append::state(respec(topic, self.log_spec(topic)), StateWait::Written)
                };
                let outcomes = self.journal.append(topics.iter().map(append).collect()).await;
                for outcome in &outcomes {
                    match only_outcome(Some(outcome)) {
                        // A topic that is being deleted has no logs to change.
                        Ok(()) | Err(NotStored::Refused(Refusal::NoSuchLog(_))) => {}
                        // As the defaults are not stored, the next start retries.
                        Err(why) => return Err(why),
                    }
                }
            }
        }
        store_synced(&*self.journal, [spaces::DEFAULTS.put(now)]).await
    }

    /// Replaces the current defaults.
    pub async fn change_defaults(&self, defaults: TopicDefaults) -> Result<(), NotStored> {
        let before = self.defaults();
        if before.logs == defaults.logs {
            *self.defaults.write() = defaults;
            return Ok(());
        }
        self.follow_defaults(defaults, Some(&stored_form(&before.logs)))
            .await
    }

    /// Returns a shared value: most topics have no settings of their own.
    fn shared(&self, settings: TopicSettings) -> Arc<TopicSettings> {
        if settings == *self.no_settings {
            Arc::clone(&self.no_settings)
        } else {
            Arc::new(settings)
        }
    }
}

/// Inserts a loaded topic. Of two topics with one name the later one is kept, by log id, and the earlier one
/// is returned: its deletion was lost with a part of the journal.
fn insert_newer(topics: &Topics, topic: Arc<Topic>) -> Option<Arc<Topic>> {
    let Some(other) = topics.named(&topic.name) else {
        topics.insert(topic);
        return None;
    };
    tracing::error!(
        topic = &*topic.name,
        "two definitions of one topic are left: the deletion of the earlier one is lost, and is done again"
    );
    let age = |topic: &Topic| {
        let logs = topic.log_runs().map(|(first, _)| *first);
        logs.filter(|log| cell_of(*log).is_none()).min()
    };
    if age(&topic) < age(&other) {
        return Some(topic);
    }
    topics.remove(&other);
    topics.insert(topic);
    Some(other)
}

/// Returns the stored form of the settings that logs follow.
fn stored_form(logs: &LogSpec) -> Vec<u8> {
    format!("{logs:?}").into_bytes()
}
