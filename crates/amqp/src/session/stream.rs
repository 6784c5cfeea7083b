//! Stored topics as streams: declared, described, consumed. A stream is the stored topic that the virtual
//! host has under its name ([`stafett_topics::names`]); a queue of that name takes precedence.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use stafett_amqp_wire::methods::{basic, queue};
use stafett_amqp_wire::{ReplyCode, Table};
use stafett_messaging::queues::Queue;
use stafett_messaging::readers::ReaderSpec;
use stafett_messaging::{ConsumerFacts, ConsumerSource};
use stafett_store::wall_ms;
use stafett_topics::names::topic_name;
use stafett_topics::{CreateError, DeleteError, NewTopic, Topic, TopicSettings};

use super::channel::ConsumerHandle;
use super::consume::{StreamOfConsumer, TokenOwner};
use super::held::Flow;
use super::{MethodError, Session};
use crate::context::AmqpContext;
use crate::exception::Exception;
use crate::operation::{Done, Operation};
use crate::{arguments, error, stream_arguments};

/// Limit on the bytes of a message's properties: the original ones and the headers for other protocols.
const PROPERTIES_BYTES_MAX: u64 = 1 << 20;

/// Meaning of a queue name.
#[derive(Debug)]
pub(super) enum ConsumeTarget {
    Queue(Arc<Queue>),
    Stream(Arc<Topic>),
}

impl Session {
    /// Returns the stream of a name, or the queue if this connection may use it.
    pub(super) fn found(&self, name: &str) -> Result<ConsumeTarget, Exception> {
        match self.stream(name) {
            Some(topic) => Ok(ConsumeTarget::Stream(topic)),
            None => self.queue(name).map(ConsumeTarget::Queue),
        }
    }

    /// Returns the stream of a name. `None` if a queue has the name, or its partitions lie in several cells.
    pub(super) fn stream(&self, name: &str) -> Option<Arc<Topic>> {
        let (broker, vhost) = (&self.context.broker, &self.namespace);
        if broker.messaging().queues().get(vhost, name).is_some() {
            return None;
        }
        let topic = broker.topics().in_namespace(vhost, name);
        topic.filter(|topic| topic.is_whole())
    }

    pub(super) fn declare_stream(
        &mut self,
        number: u16,
        name: ByteString,
        method: &queue::Declare,
    ) -> Result<Flow, MethodError> {
        let what = error::queue_in(&name, &self.namespace);
        let settings = stream_arguments::settings(&method.arguments, &what)?;
        let Some(topic) = topic_name(&self.namespace, &name).map(Cow::into_owned) else {
            let text = format!("{what} cannot be a stream: the name is too long");
            return Err(Exception::precondition(text).into());
        };
        let known = match self.done.take() {
            Some(Done::TopicCreated(Ok(created))) => {
                return self.on_declared(number, name, &ConsumeTarget::Stream(created), method.no_wait);
            }
            Some(Done::TopicCreated(Err(CreateError::Changing))) => {
                return Ok(Flow::Hold(Operation::AwaitName(topic)));
            }
            Some(Done::TopicCreated(Err(cause))) => match (cause, self.stream(&name)) {
                // A concurrent declaration was first.
                (CreateError::Exists, Some(known)) => Some(known),
                (cause, _) => return Err(not_created(&cause, &what).into()),
            },
            _ => self.stream(&name),
        };
        if let Some(known) = known {
            self.check_stream(&known, method, &settings, &what)?;
            return self.on_declared(number, name, &ConsumeTarget::Stream(known), method.no_wait);
        }
        stream_arguments::check_properties(method, &what)?;
        if !self.context.exchanges().has_namespace(&self.namespace) {
            return Err(error::no_namespace(&self.namespace).into());
        }
        Ok(Flow::Hold(Operation::CreateTopic(NewTopic {
            name: topic.into(),
            partitions: Some(1),
            settings: TopicSettings {
                declared: Some(arguments::canonical(&method.arguments)),
                message_bytes_max: Some(self.message_bytes_max()),
                ..settings
            },
        })))
    }

    /// Returns the limit on the bytes of a message of this protocol in a topic.
    fn message_bytes_max(&self) -> u32 {
        let body = self.context.settings.message_bytes_max;
        u32::try_from(body.saturating_add(PROPERTIES_BYTES_MAX)).unwrap_or(u32::MAX)
    }

    /// Checks that a stream is equivalent to a declaration.
    pub(super) fn check_stream(
        &self,
        topic: &Topic,
        method: &queue::Declare,
        settings: &TopicSettings,
        what: &str,
    ) -> Result<(), Exception> {
        if method.exclusive {
            return Err(error::locked(what));
        }
        for (name, received, current) in [
            ("durable", method.durable, true),
            ("auto_delete", method.auto_delete, false),
        ] {
            if received != current {
                let differs = (name.into(), format!("'{received}'"), format!("'{current}'"));
                return Err(error::inequivalent(&differs, what));
            }
        }
        let Some(declared) = &topic.settings.declared else {
            // The topic was not declared as a stream: only the given limits must match.
            let kept = self.context.broker.catalog().log_spec(topic).retention;
            return stream_arguments::check_retention(settings, kept, what);
        };
        error::check_arguments(&method.arguments, declared, what)
    }

    pub(super) fn consume_stream(
        &mut self,
        number: u16,
        topic: &Arc<Topic>,
        name: ByteString,
        tag: ByteString,
        method: &basic::Consume,
    ) -> Result<(), MethodError> {
        let what = error::queue_in(&name, &self.namespace);
        let spec = self.reader_spec(number, topic, &method.arguments, method.no_ack, &what)?;
        self.last_token += 1;
        let token = self.last_token;
        let facts = ConsumerFacts {
            connection: self.connection,
            channel: number,
            name: tag.clone(),
            source: ConsumerSource::Topic(topic.id),
            namespace: self.namespace.clone(),
            source_name: name.clone(),
            settles: true,
            exclusive: false,
            priority: 0,
            credit: spec.credit,
            arguments: Bytes::copy_from_slice(method.arguments.as_bytes()),
        };
        let holder = TokenOwner {
            channel: number,
            tag: tag.clone(),
            queue: name.clone(),
            settles: true,
            counts_deliveries: false,
            shares_credit: false,
            stream: Some(StreamOfConsumer {
                name,
                has_partitions: topic.partitions() > 1,
            }),
        };
        self.token_owners.insert(token, holder);
        let outbox = Arc::clone(&self.outbox);
        let reading = self
            .context
            .broker
            .messaging()
            .readers()
            .open(topic, &spec, outbox, token);
        if !method.no_wait {
            let consumer_tag = tag;
            self.out.send(number, basic::ConsumeOk { consumer_tag });
        }
        self.add_consumer(token, ConsumerHandle::Reader(reading), facts)
    }

    fn reader_spec(
        &mut self,
        number: u16,
        topic: &Topic,
        arguments: &Table,
        no_ack: bool,
        what: &str,
    ) -> Result<ReaderSpec, MethodError> {
        let start = stream_arguments::start(arguments, wall_ms(), what)?;
        let partition = stream_arguments::partition(arguments, topic.partitions(), what)?;
        let filter = self.filter(arguments)?;
        let prefetch = &self.channel(number)?.prefetch;
        let Some(credit) = prefetch.each else {
            let text = format!("consumer prefetch count is not set for stream {what}");
            return Err(Exception::precondition(text).into());
        };
        if no_ack {
            let text = format!("automatic acknowledgement not supported by stream {what}");
            return Err(Exception::new(ReplyCode::NotImplemented, text).into());
        }
        if self.has_global_qos(number)? {
            return Err(error::no_global_qos(what).into());
        }
        Ok(ReaderSpec {
            start,
            partition,
            credit: Some(credit),
            wanted: stream_arguments::wanted(arguments),
            filter,
        })
    }
}

/// Returns the number of messages in a stream.
pub(crate) fn stream_length(context: &AmqpContext, topic: &Topic) -> u64 {
    let length = |partition| {
        let bounds = context.broker.catalog().bounds(topic.log(partition)?)?;
        Some(bounds.end.0.saturating_sub(bounds.start.0))
    };
    (0..topic.partitions()).filter_map(length).sum()
}

fn not_created(cause: &CreateError, what: &str) -> Exception {
    match cause {
        CreateError::NotStored(cause) => error::not_stored(cause, what),
        CreateError::Changing
        | CreateError::Exists
        | CreateError::Collides(_)
        | CreateError::Name(_)
        | CreateError::TooMany { .. }
        | CreateError::Spread
        | CreateError::Partitions(_) => {
            Exception::precondition(format!("{what} cannot be a stream: {cause}"))
        }
    }
}

/// Refuses to delete a topic that was not declared as a stream.
pub(super) fn check_deletable(topic: &Topic, what: &str) -> Result<(), Exception> {
    if topic.settings.declared.is_some() {
        return Ok(());
    }
    let text = format!("{what} is a topic that was not declared as a queue: it is deleted where it was made");
    Err(Exception::refused(text))
}

/// Maps the outcome of a stream's deletion.
pub(super) fn stream_deleted(deleted: Result<(), DeleteError>, what: &str) -> Result<(), Exception> {
    match deleted {
        Ok(()) | Err(DeleteError::NoSuchTopic) => Ok(()),
        Err(DeleteError::NotStored(cause)) => Err(error::not_stored(&cause, what)),
    }
}

/// Refuses an operation that streams do not support.
pub(super) fn not_for_streams(text: &str, what: &str) -> Exception {
    Exception::new(ReplyCode::NotImplemented, format!("{text} {what}"))
}
