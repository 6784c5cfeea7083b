//! Rights on live topics: reading is subscribing, writing is publishing.
//!
//! A caller that may do everything has none of this: nothing is looked up for it. For others the answer about
//! all topics together is kept per state of the users and rules, and one about a name is remembered by the
//! [`Caller`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::Request;
use stafett_access::{Action, Caller, Kind, Resource};
use stafett_live_topics::{NameList, TopicGuard};

use crate::command::{Command, Names, PresenceOf, Publish};
use crate::fault::Fault;

/// Rights of a connection or request.
#[derive(Debug, Clone, Default)]
pub struct Rights(Option<Arc<Named>>);

/// Rights of a caller that rules are about.
#[derive(Debug)]
struct Named {
    caller: Arc<Caller>,
    read: OnAll,
    write: OnAll,
}

/// The answer about all topics together: twice the state of users and rules plus one, and 1 if it is yes.
#[derive(Debug, Default)]
struct OnAll(AtomicU64);

impl Rights {
    /// Returns the rights of the caller that the guard of the routes has found.
    pub(crate) fn of(request: &Request) -> Self {
        let caller = request.extensions().get::<Arc<Caller>>();
        caller.map_or_else(Self::default, |caller| Self::of_caller(Arc::clone(caller)))
    }

    #[must_use]
    pub fn of_caller(caller: Arc<Caller>) -> Self {
        if caller.is_unrestricted() {
            return Self(None);
        }
        Self(Some(Arc::new(Named {
            caller,
            read: OnAll::default(),
            write: OnAll::default(),
        })))
    }

    /// Returns the guard of the connection's outbox.
    pub(crate) fn guard(&self) -> Option<Arc<dyn TopicGuard>> {
        let named = Arc::clone(self.0.as_ref()?);
        Some(named)
    }

    /// Refuses a command on topics that the caller may not use.
    pub(crate) fn check(&self, command: &Command<'_>) -> Result<(), Fault> {
        if self.0.is_none() {
            return Ok(());
        }
        match command {
            Command::Publish { messages, .. } => self.check_write(messages),
            Command::Subscribe(Names::Topics(names)) | Command::SubscribeFrom(names, _) => {
                self.check_read(names)
            }
            Command::Presence(of, _) => self.check_presence(of),
            // A pattern reaches those topics alone that may be read.
            Command::Subscribe(Names::Patterns(_))
            | Command::Listen { .. }
            | Command::Leave
            | Command::Unsubscribe(_)
            | Command::List(_)
            | Command::Ping => Ok(()),
        }
    }

    pub(crate) fn check_write(&self, messages: &[Publish<'_>]) -> Result<(), Fault> {
        self.check_topics(Action::Write, messages.iter().map(|message| &*message.topic))
    }

    pub(crate) fn check_read(&self, names: &NameList) -> Result<(), Fault> {
        self.check_topics(Action::Read, names.iter())
    }

    fn check_topics<'n>(
        &self,
        action: Action,
        mut topics: impl Iterator<Item = &'n str>,
    ) -> Result<(), Fault> {
        let Some(named) = &self.0 else { return Ok(()) };
        match topics.find(|topic| !named.may(action, topic)) {
            Some(topic) => Err(named.refuse(action, topic)),
            None => Ok(()),
        }
    }

    /// Lists of clients, and those of a pattern, are about all topics.
    pub(crate) fn check_presence(&self, of: &PresenceOf<'_>) -> Result<(), Fault> {
        let Some(named) = &self.0 else { return Ok(()) };
        let is_allowed = match of {
            PresenceOf::Topics => true,
            PresenceOf::Topic(topic) => self.may_see(topic),
            PresenceOf::Clients | PresenceOf::Listening | PresenceOf::Pattern(_) => {
                named.caller.may_all(Action::Describe, Kind::LiveTopic)
            }
        };
        let topic = match of {
            PresenceOf::Topic(topic) => topic,
            PresenceOf::Topics | PresenceOf::Clients | PresenceOf::Listening | PresenceOf::Pattern(_) => "",
        };
        is_allowed
            .then_some(())
            .ok_or_else(|| named.refuse(Action::Describe, topic))
    }

    /// Returns true if a topic may be shown.
    pub(crate) fn may_see(&self, topic: &str) -> bool {
        let see = |named: &Arc<Named>| named.caller.may(Action::Describe, &live(topic));
        self.0.as_ref().is_none_or(see)
    }
}

impl Named {
    fn may(&self, action: Action, topic: &str) -> bool {
        let on_all = if action == Action::Read {
            &self.read
        } else {
            &self.write
        };
        on_all.is(&self.caller, action) || self.caller.may(action, &live(topic))
    }

    /// Notes a refusal where refusals are noted, and returns it.
    fn refuse(&self, action: Action, topic: &str) -> Fault {
        drop(self.caller.check(action, &live(topic)));
        let action = action.word();
        let topic = topic.to_owned();
        Fault::Forbidden { action, topic }
    }
}

impl TopicGuard for Named {
    fn admits(&self, topic: &str) -> bool {
        self.may(Action::Read, topic)
    }
}

impl OnAll {
    fn is(&self, caller: &Caller, action: Action) -> bool {
        // Read before the decision: one that a change overtakes is made anew.
        let state = caller.generation().wrapping_add(1) << 1;
        let known = self.0.load(Ordering::Relaxed);
        if known & !1 == state {
            return known & 1 == 1;
        }
        let is_allowed = caller.may_all(action, Kind::LiveTopic);
        self.0.store(state | u64::from(is_allowed), Ordering::Relaxed);
        is_allowed
    }
}

fn live(topic: &str) -> Resource<'_> {
    Resource::new(Kind::LiveTopic, topic)
}
