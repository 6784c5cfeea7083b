//! Declaring queues: a queue exists as soon as its definition is staged, and is declared once that is stored.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stafett_journal::{Append, Change, Frame, StateWait, Ticket};
use stafett_model::{LogId, Namespace};
use stafett_store::{NotStored, StageOutcome, only_outcome};
use stafett_topics::{Topic, is_internal};

use super::definition::{Declare, QueueId};
use super::publication::Refused;
use super::queue::Queue;
use super::registry::{Queues, definition_frame};
use stafett_delivery::DeliveryState;
use stafett_delivery::LaneLog;

/// Error of declaring a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeclareError {
    #[error("the queue exists with other {what}")]
    Differs { what: &'static str },
    #[error("the queue belongs to somebody else")]
    Locked,
    #[error("there is no such namespace")]
    NoSuchNamespace,
    #[error("the namespace has as many queues as it may have, {max}")]
    TooMany { max: u64 },
    #[error("there is no such topic that it could lie over")]
    NoSuchTopic,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// A queue that exists, and whose definition is being stored.
#[derive(Debug)]
pub struct DeclaredQueue {
    queues: Arc<Queues>,
    queue: Arc<Queue>,
    /// `None` if the definition is stored already.
    ticket: Option<Ticket>,
    /// True if this created the queue, which goes if it is not stored.
    creates: bool,
}

impl DeclaredQueue {
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Returns true if the queue was not there before.
    pub fn is_new(&self) -> bool {
        self.creates
    }

    /// Waits until the definition is stored.
    pub async fn stored(self) -> Result<Arc<Queue>, DeclareError> {
        if let Some(ticket) = self.ticket {
            if let Err(why) = only_outcome(ticket.await.pop().as_ref()) {
                if self.creates {
                    // The queue never existed; messages published to it are lost with it.
                    drop(self.queues.remove(&self.queue, |_| Ok(())));
                }
                return Err(why.into());
            }
            self.queue.stored.store(true, Ordering::Release);
        }
        Ok(self.queue)
    }
}

impl Queues {
    /// Declares a queue: it exists when this returns, and is stored when the result has resolved.
    pub fn declare(
        self: &Arc<Self>,
        namespace: &Namespace,
        name: &str,
        declare: Declare,
    ) -> impl Future<Output = Result<Arc<Queue>, DeclareError>> + use<> {
        let declared = self.begin_declaring(namespace, name, declare);
        async { declared?.stored().await }
    }

    /// Declares a queue: it exists when this returns.
    pub fn begin_declaring(
        self: &Arc<Self>,
        namespace: &Namespace,
        name: &str,
        declare: Declare,
    ) -> Result<DeclaredQueue, DeclareError> {
        self.metrics.declared.inc();
        if let Some(queue) = self.get(namespace, name) {
            return self.declare_again(queue, &declare);
        }
        let mut table = self.write_for(namespace, name);
        if let Some(queue) = table.get(namespace, name).cloned() {
            drop(table);
            return self.declare_again(queue, &declare);
        }
        let topic = self.resolve_prerequisites(namespace, &declare)?;
        if let Some(max) = self.bounds.queues_max(namespace)
            && table.ordered().count_in(namespace) as u64 >= max
        {
            return Err(DeclareError::TooMany { max });
        }
        let log = self.journal.allocate(1);
        let (owner, over) = (declare.exclusive, declare.over);
        let definition = declare.definition(namespace, name, log, self.context.clock.wall_ms());
        let mut frames = vec![
            Frame::CreateLogs {
                first: log,
                count: 1,
                spec: self.log_spec(definition.durable, definition.settings.durability),
            },
            definition_frame(QueueId(log.0), Change::Put(definition.encode().into())),
        ];
        let queue = Queue::new(self, definition, topic.as_deref(), owner);
        if let Some(over) = over {
            frames.push(queue.start_at(&self.context, over.from_end));
        }
        let append = Append::state(frames, queue.state_wait());
        let ticket = Some(self.journal.append(vec![append]));
        queue.watch_logs(&self.context);
        table.insert(&queue);
        drop(table);
        if over.is_some() {
            self.list_pending(&queue);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.metrics.created.inc();
        self.attach_to_topic(&queue);
        // Policies may have changed since its settings were made.
        self.apply_policies_to(&queue);
        self.publish_view(&queue, &queue.lock());
        if let Some(owner) = queue.exclusive {
            let mut by_owner = self.owned.lock();
            by_owner.entry(owner).or_default().push(Arc::clone(&queue));
        }
        queue.use_now();
        Ok(DeclaredQueue {
            queues: Arc::clone(self),
            queue,
            ticket,
            creates: true,
        })
    }

    /// Declares an existing queue.
    fn declare_again(
        self: &Arc<Self>,
        queue: Arc<Queue>,
        declare: &Declare,
    ) -> Result<DeclaredQueue, DeclareError> {
        if queue
            .exclusive
            .is_some_and(|owner| Some(owner) != declare.exclusive)
        {
            return Err(DeclareError::Locked);
        }
        if let Some(what) = queue.differs(declare) {
            return Err(DeclareError::Differs { what });
        }
        queue.use_now();
        // The first declaration may not be stored yet.
        let waits = !queue.stored.load(Ordering::Acquire);
        let ticket = waits.then(|| self.store_definition(&queue, &queue.lock()));
        Ok(DeclaredQueue {
            queues: Arc::clone(self),
            queue,
            ticket,
            creates: false,
        })
    }

    /// Checks that the namespace exists, and returns the topic if the queue is to be over one.
    fn resolve_prerequisites(
        &self,
        namespace: &Namespace,
        declare: &Declare,
    ) -> Result<Option<Arc<Topic>>, DeclareError> {
        if !self.router.has_namespace(namespace) {
            return Err(DeclareError::NoSuchNamespace);
        }
        let Some(over) = declare.over else {
            return Ok(None);
        };
        // Messages for the queue would go to the topic, which the broker alone writes if it is internal.
        let topic = self
            .topics
            .with_id(over.topic)
            .filter(|topic| !is_internal(&topic.name) && topic.is_whole());
        topic.map(Some).ok_or(DeclareError::NoSuchTopic)
    }

    fn store_definition(&self, queue: &Queue, inner: &DeliveryState) -> Ticket {
        let definition = queue.definition(inner).encode();
        let frame = definition_frame(queue.id, Change::Put(definition.into()));
        self.journal
            .append(vec![Append::state([frame], StateWait::Synced)])
    }

    /// Creates the logs of a priority and of missing lower ones, and stores the extended definition.
    pub(super) fn add_lanes(
        &self,
        queue: &Arc<Queue>,
        inner: &mut DeliveryState,
        highest: u8,
    ) -> Result<LogId, Refused> {
        if queue.is_deleted() {
            return Err(Refused::Gone);
        }
        let own = queue.own_logs(inner);
        let lowest = own.iter().map(|(priority, _)| priority + 1).max().unwrap_or(0);
        let count = u32::from(highest.saturating_sub(lowest)) + 1;
        let known = inner.logs.len();
        let first = self.journal.allocate(count);
        for (priority, log) in (lowest..=highest).zip(first.0..) {
            let log = LogId(log);
            inner.logs.push(LaneLog::new(priority.into(), log));
        }
        let create = Frame::CreateLogs {
            first,
            count,
            spec: self.log_spec(queue.durable, inner.settings.durability),
        };
        let definition = queue.definition(inner).encode();
        let put = definition_frame(queue.id, Change::Put(definition.into()));
        if let StageOutcome::Refused(refusal) = StageOutcome::of(&*self.journal, [create, put]) {
            // The logs do not exist; a later message tries again.
            inner.logs.truncate(known);
            return Err(Refused::Journal(refusal));
        }
        for lane in inner.logs.iter_mut().skip(known) {
            lane.watch(&self.context, queue);
        }
        self.publish_view(queue, inner);
        inner.log(highest.into()).ok_or(Refused::Gone)
    }
}
