//! The caller of a connection, and its rights in Kafka's words.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use stafett_access::{Action, Caller, Kind, Limit, Limited, Resource, Tallied};
use stafett_broker::{AccessControl, Broker};
use stafett_kafka_wire::ErrorCode;
use stafett_model::Lock;
use stafett_net::{ConnectionEntry, TlsSession};
use stafett_store::wall_ms;
use stafett_topics::TopicId;

use crate::context::RequestContext;
use crate::sasl::Sasl;

/// Identity of a connection.
#[derive(Debug)]
pub(crate) struct Identity {
    anonymous: Arc<Caller>,
    /// Set once, by the login.
    login: OnceLock<Arc<Caller>>,
    /// Time at which the last login expires, in ms since 1970; 0 for never.
    expires_ms: AtomicI64,
    sasl: Lock<Sasl>,
    /// The connection among those of its user, from the first login on.
    counted: OnceLock<Tallied>,
    /// True from the begin of a login to its good end.
    is_logging_in: AtomicBool,
}

impl Identity {
    /// Creates the identity of a connection before a login: the user of its certificate, if there is one.
    pub(crate) fn new(broker: &Broker, entry: &ConnectionEntry) -> Self {
        let tls = entry.tls();
        let user = tls.as_deref().and_then(TlsSession::user);
        Self::of(broker.access().before_login(user, entry.peer.ip()))
    }

    /// Creates the identity of a connection for a caller that is known.
    pub(crate) fn of(anonymous: Arc<Caller>) -> Self {
        let expires_ms = anonymous.expires_ms().unwrap_or(0);
        Self {
            anonymous,
            login: OnceLock::new(),
            expires_ms: AtomicI64::new(expires_ms),
            sasl: Lock::default(),
            counted: OnceLock::new(),
            is_logging_in: AtomicBool::new(false),
        }
    }

    /// Replaces the state of the login.
    pub(crate) fn set_sasl(&self, state: Sasl) -> Sasl {
        let is_between = !matches!(state, Sasl::Start | Sasl::Done);
        self.is_logging_in.store(is_between, Ordering::Release);
        std::mem::replace(&mut *self.sasl.lock(), state)
    }

    /// Returns true while a login has begun and is not complete. A client may take no notice of a refusal
    /// that asks for a last message; it goes on neither as the user of its certificate nor as that of an
    /// earlier login.
    pub(crate) fn is_logging_in(&self) -> bool {
        self.is_logging_in.load(Ordering::Acquire)
    }

    pub(crate) fn caller(&self) -> &Arc<Caller> {
        self.login.get().unwrap_or(&self.anonymous)
    }

    /// Takes the caller of a login. A later login must be of the same user; returns false otherwise.
    pub(crate) fn log_in(&self, caller: Arc<Caller>) -> bool {
        let (name, expiry) = (caller.name().map(str::to_owned), caller.expires_ms());
        let is_same = self.login.get_or_init(|| caller).name() == name.as_deref();
        if is_same {
            self.expires_ms.store(expiry.unwrap_or(0), Ordering::Relaxed);
        }
        is_same
    }

    /// Counts the connection for a user that has logged in. The error is the limit.
    pub(crate) fn count(&self, access: &AccessControl, caller: &Caller) -> Result<(), u64> {
        let (Some(user), None) = (caller.name(), self.counted.get()) else {
            return Ok(());
        };
        let counted = access.count(Limited::User(user.into()), Limit::Connections)?;
        // One that is there already counts.
        drop(self.counted.set(counted));
        Ok(())
    }

    fn is_expired(&self) -> bool {
        let expiry = self.expires_ms.load(Ordering::Relaxed);
        expiry != 0 && expiry <= wall_ms()
    }
}

/// Refuses an action on a topic, or on the queue that it shows.
pub(crate) fn check_topic(
    broker: &Broker,
    caller: &Caller,
    action: Action,
    name: &str,
) -> Result<(), ErrorCode> {
    let checked = caller.check(action, &Resource::topic(name));
    let checked =
        checked.and_then(|()| of_queue_shown_as(broker, caller, name, |queue| caller.check(action, queue)));
    checked.map_err(|_| ErrorCode::TopicAuthorizationFailed)
}

/// Looks at the right on the queue that a topic shows, if it shows one.
fn of_queue_shown_as<E>(
    broker: &Broker,
    caller: &Caller,
    name: &str,
    right: impl FnOnce(&Resource<'_>) -> Result<(), E>,
) -> Result<(), E> {
    if caller.is_unrestricted() || !name.starts_with("queue") {
        return Ok(());
    }
    let Some(queue) = broker.messaging().queues().shown_as(name) else {
        return Ok(());
    };
    right(&Resource::queue(queue.namespace.as_str(), &queue.name))
}

impl RequestContext {
    pub(crate) fn caller(&self) -> &Caller {
        self.identity.caller()
    }

    /// Returns true while the client may do nothing but log in.
    pub(crate) fn must_log_in(&self) -> bool {
        !self.caller().is_valid() || self.identity.is_expired()
    }

    pub(crate) fn check_topic(&self, action: Action, name: &str) -> Result<(), ErrorCode> {
        check_topic(&self.shared.broker, self.caller(), action, name)
    }

    /// As [`Self::check_topic`], without a line in the audit.
    pub(crate) fn may_topic(&self, action: Action, name: &str) -> bool {
        let caller = self.caller();
        let may_queue = |queue: &Resource<'_>| caller.may(action, queue).then_some(()).ok_or(());
        caller.may(action, &Resource::topic(name))
            && of_queue_shown_as(&self.shared.broker, caller, name, may_queue).is_ok()
    }

    /// Returns true if a topic may be seen. One that is gone shows nothing.
    pub(crate) fn may_see_id(&self, id: TopicId) -> bool {
        if self.caller().is_unrestricted() {
            return true;
        }
        let topic = self.shared.broker.topics().with_id(id);
        topic.is_none_or(|topic| self.may_topic(Action::Describe, &topic.name))
    }

    pub(crate) fn check_group(&self, action: Action, name: &str) -> Result<(), ErrorCode> {
        let checked = self.caller().check(action, &Resource::group(name));
        checked.map_err(|_| ErrorCode::GroupAuthorizationFailed)
    }

    pub(crate) fn check_transaction(&self, action: Action, id: &str) -> Result<(), ErrorCode> {
        let checked = self
            .caller()
            .check(action, &Resource::new(Kind::TransactionalId, id));
        checked.map_err(|_| ErrorCode::TransactionalIdAuthorizationFailed)
    }

    pub(crate) fn check_cluster(&self, action: Action) -> Result<(), ErrorCode> {
        let checked = self.caller().check(action, &Resource::CLUSTER);
        checked.map_err(|_| ErrorCode::ClusterAuthorizationFailed)
    }

    /// Topics are made by those who may make all, or this one.
    pub(crate) fn check_creation(&self, name: &str) -> Result<(), ErrorCode> {
        if self.caller().may(Action::Create, &Resource::CLUSTER) {
            return Ok(());
        }
        self.check_topic(Action::Create, name)
    }
}
