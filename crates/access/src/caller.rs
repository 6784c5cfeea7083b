//! The origin of a request, with its decisions remembered.
//!
//! A connection makes its caller once. While the directory does not change, a decision about the same action
//! and thing is a look-up; a caller without a name in an open directory is not looked up at all.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stafett_model::Lock;

use crate::action::Action;
use crate::decisions::Decisions;
use crate::directory::Directory;
use crate::resource::{Kind, Kinds, Resource};

/// Identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// The broker itself.
    Internal,
    /// Without a name. It may do everything while there is no administrator, and nothing afterwards.
    Anonymous,
    User(Arc<str>),
}

impl Who {
    pub(crate) fn is_internal(&self) -> bool {
        *self == Self::Internal
    }
}

/// A refused action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{user:?} may not {} {} {name:?}", .action.word(), .kind.word())]
pub struct Denied {
    /// Empty for a caller without a name.
    pub user: String,
    pub action: Action,
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

pub struct Caller {
    /// `None` for the broker itself.
    directory: Option<Arc<Directory>>,
    who: Who,
    peer: IpAddr,
    /// End of the proof of its identity, in ms since 1970.
    expires_ms: Option<i64>,
    /// Generation of the directory in which its user was there, plus one.
    valid_in: AtomicU64,
    decisions: Lock<Decisions>,
}

impl Caller {
    /// Creates the caller of the broker's own work, which may do everything.
    #[must_use]
    pub const fn internal() -> Self {
        Self {
            directory: None,
            who: Who::Internal,
            peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
            expires_ms: None,
            valid_in: AtomicU64::new(0),
            decisions: Lock::new(Decisions::new()),
        }
    }

    /// Has the broker's own work be for a client at this address.
    #[must_use]
    pub const fn at(mut self, peer: IpAddr) -> Self {
        self.peer = peer;
        self
    }

    #[must_use]
    pub fn anonymous(directory: &Arc<Directory>, peer: IpAddr) -> Self {
        Self::new(directory, Who::Anonymous, peer)
    }

    /// Creates the caller of a user that has logged in.
    #[must_use]
    pub fn user(directory: &Arc<Directory>, name: &str, peer: IpAddr) -> Self {
        Self::new(directory, Who::User(name.into()), peer)
    }

    /// Has the identity end at a time, in ms since 1970.
    #[must_use]
    pub fn until(self, expires_ms: i64) -> Self {
        let expires_ms = Some(expires_ms);
        Self { expires_ms, ..self }
    }

    /// Returns the time at which its identity ends. `None` if it lasts.
    pub fn expires_ms(&self) -> Option<i64> {
        self.expires_ms
    }

    pub fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|expiry| expiry <= now_ms)
    }

    fn new(directory: &Arc<Directory>, who: Who, peer: IpAddr) -> Self {
        Self {
            directory: Some(Arc::clone(directory)),
            who,
            peer: peer.to_canonical(),
            expires_ms: None,
            valid_in: AtomicU64::new(0),
            decisions: Lock::new(Decisions::new()),
        }
    }

    pub fn who(&self) -> &Who {
        &self.who
    }

    /// Returns the name of the user. `None` for a caller without one.
    pub fn name(&self) -> Option<&str> {
        match &self.who {
            Who::User(name) => Some(name),
            Who::Internal | Who::Anonymous => None,
        }
    }

    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Returns true if it may do everything, because it has no name and there is no administrator, or because
    /// it is the broker.
    pub fn is_unrestricted(&self) -> bool {
        match (&self.who, &self.directory) {
            (Who::Anonymous, Some(directory)) => directory.is_open(),
            (Who::Internal, _) => true,
            (Who::User(_) | Who::Anonymous, _) => false,
        }
    }

    /// Returns true if it still has an identity: its user exists, or callers need no name.
    pub fn is_valid(&self) -> bool {
        match (&self.who, &self.directory) {
            (Who::User(name), Some(directory)) => self.is_there(name, directory),
            (Who::User(_) | Who::Internal | Who::Anonymous, _) => self.is_unrestricted(),
        }
    }

    /// Returns true if the directory has the user; looks it up once in each generation.
    fn is_there(&self, name: &str, directory: &Directory) -> bool {
        // Read before the look-up, as in `decide`.
        let generation = directory.generation().wrapping_add(1);
        if self.valid_in.load(Ordering::Relaxed) == generation {
            return true;
        }
        let is_there = directory.user(name).is_some();
        if is_there {
            self.valid_in.store(generation, Ordering::Relaxed);
        }
        is_there
    }

    /// Refuses an action that no rule permits, or that a rule forbids.
    pub fn check(&self, action: Action, resource: &Resource<'_>) -> Result<(), Denied> {
        if self.decide(action, resource) {
            return Ok(());
        }
        let denied = Denied {
            user: self.name().unwrap_or_default().to_owned(),
            action,
            kind: resource.kind,
            namespace: resource.namespace.to_owned(),
            name: resource.name.to_owned(),
        };
        if let Some(directory) = &self.directory
            && self.decisions.lock().note(action, resource)
        {
            directory.tell(self, &denied);
        }
        Err(denied)
    }

    /// As [`Self::check`], where a refusal is no event: for lists and hidden things.
    pub fn may(&self, action: Action, resource: &Resource<'_>) -> bool {
        self.decide(action, resource)
    }

    /// Returns true if `action` is permitted on all things of a kind, and false if that may depend on their
    /// names. The decision is not remembered.
    pub fn may_all(&self, action: Action, kind: Kind) -> bool {
        let decide = |directory: &Arc<Directory>| directory.decide_all(&self.who, self.peer, action, kind);
        self.is_unrestricted() || self.directory.as_ref().is_some_and(decide)
    }

    /// Returns a number that changes whenever its rights may.
    pub fn generation(&self) -> u64 {
        self.directory
            .as_ref()
            .map_or(0, |directory| directory.generation())
    }

    /// Returns true if `action` is permitted on at least some things of these kinds.
    pub fn may_any(&self, action: Action, kinds: Kinds) -> bool {
        let decide = |directory: &Arc<Directory>| directory.decide_any(&self.who, self.peer, action, kinds);
        self.is_unrestricted() || self.directory.as_ref().is_some_and(decide)
    }

    fn decide(&self, action: Action, resource: &Resource<'_>) -> bool {
        if self.is_unrestricted() {
            return true;
        }
        let Some(directory) = &self.directory else {
            return false;
        };
        // Read before the decision: one that a change overtakes is made anew.
        let generation = directory.generation();
        let mut decisions = self.decisions.lock();
        decisions.begin(generation);
        if let Some(is_allowed) = decisions.find(action, resource) {
            return is_allowed;
        }
        let is_allowed = directory.decide(&self.who, self.peer, action, resource);
        decisions.insert(action, resource, is_allowed);
        is_allowed
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} from {}", self.who, self.peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Actions;
    use crate::directory::Change;
    use crate::rule::{Effect, Form, Rule, Subject};
    use crate::user::{ADMINISTRATOR, MONITORING, SUPERUSER, User};
    use crate::verifier::Verifiers;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn user(name: &str, tags: &[&str]) -> Change {
        Change::PutUser(User::new(name, Verifiers::default(), tags).unwrap())
    }

    fn rule(subject: Subject, effect: Effect, name: &str, actions: Actions) -> Change {
        Change::SetRule(Rule {
            subject,
            effect,
            kinds: Kind::Topic.into(),
            namespace: None,
            form: Form::Prefix,
            name: name.into(),
            host: None,
            actions,
        })
    }

    fn may(caller: &Caller, action: Action, topic: &str) -> bool {
        caller.check(action, &Resource::topic(topic)).is_ok()
    }

    #[test]
    fn callers_without_a_name_may_do_everything_until_there_is_an_administrator() {
        let directory = Arc::new(Directory::default());
        let caller = Caller::anonymous(&directory, HERE);
        directory.apply([user("ann", &[])]);
        assert!(may(&caller, Action::Write, "a") && caller.is_valid());
        let ann = Caller::user(&directory, "ann", HERE);
        assert!(
            !may(&ann, Action::Write, "a"),
            "a user has rules from the beginning"
        );
        directory.apply([user("root", &[SUPERUSER])]);
        assert!(!may(&caller, Action::Write, "a") && !caller.is_valid());
        directory.apply([Change::DeleteUser("root".into())]);
        assert!(may(&caller, Action::Write, "a"));
        assert!(may(&Caller::internal(), Action::Operate, "a"));
    }

    #[test]
    fn changes_act_at_once_on_callers_that_remember() {
        let directory = Arc::new(Directory::default());
        let ann = || Subject::User("ann".into());
        directory.apply([user("ann", &["clerks"]), user("root", &[SUPERUSER])]);
        let caller = Caller::user(&directory, "ann", HERE);
        assert!(!may(&caller, Action::Read, "orders"));
        let read = Actions::of(&[Action::Read]);
        directory.apply([rule(Subject::Role("clerks".into()), Effect::Allow, "ord", read)]);
        assert!(may(&caller, Action::Read, "orders") && !may(&caller, Action::Write, "orders"));
        directory.apply([rule(Subject::Everyone, Effect::Deny, "", Actions::ALL)]);
        assert!(!may(&caller, Action::Read, "orders"), "deny goes before allow");
        let root = Caller::user(&directory, "root", HERE);
        assert!(
            may(&root, Action::Read, "orders"),
            "nothing is forbidden to superusers"
        );
        directory.apply([rule(Subject::Everyone, Effect::Deny, "", Actions::NONE)]);
        assert!(may(&caller, Action::Read, "orders"));
        directory.apply([rule(ann(), Effect::Deny, "orders", read)]);
        assert!(!may(&caller, Action::Read, "orders"));
        assert!(
            may(&caller, Action::Describe, "orders"),
            "a prohibition is of one action"
        );
        directory.apply([Change::DeleteUser("ann".into())]);
        assert!(!may(&caller, Action::Describe, "orders") && !caller.is_valid());
        directory.apply([user("ann", &[])]);
        assert!(caller.is_valid(), "a user that is made again");
        directory.apply([Change::DeleteUser("ann".into())]);
        assert!(!caller.is_valid(), "what was valid a moment ago");
    }

    #[test]
    fn a_refusal_is_told_once_also_after_a_look_without_one() {
        static TOLD: AtomicU64 = AtomicU64::new(0);
        let directory = Arc::new(Directory::default());
        directory.on_denied(|_, _| {
            TOLD.fetch_add(1, Ordering::Relaxed);
        });
        directory.apply([user("ann", &[]), user("root", &[SUPERUSER])]);
        let told = || TOLD.load(Ordering::Relaxed);
        let ann = Caller::user(&directory, "ann", HERE);
        assert!(!ann.may(Action::Read, &Resource::topic("orders")));
        assert_eq!(told(), 0);
        for _ in 0..3 {
            assert!(!may(&ann, Action::Read, "orders"));
            assert_eq!(told(), 1);
        }
        assert!(!may(&ann, Action::Read, "others"));
        assert_eq!(told(), 2);
        directory.apply([user("bob", &[])]);
        assert!(!may(&ann, Action::Read, "orders"));
        assert_eq!(told(), 3, "anew when rules change");
    }

    #[test]
    fn tags_open_the_cluster_and_the_view_but_no_content() {
        let directory = Arc::new(Directory::default());
        directory.apply([user("ann", &[ADMINISTRATOR]), user("bob", &[MONITORING])]);
        let (ann, bob) = (
            Caller::user(&directory, "ann", HERE),
            Caller::user(&directory, "bob", HERE),
        );
        for (caller, is_administrator) in [(ann, true), (bob, false)] {
            assert_eq!(caller.may(Action::Alter, &Resource::CLUSTER), is_administrator);
            assert!(caller.may(Action::Describe, &Resource::topic("orders")));
            assert!(!caller.may(Action::Read, &Resource::topic("orders")));
            assert!(!caller.may_any(Action::Write, Kind::Topic.into()));
        }
    }
}
