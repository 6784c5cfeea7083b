//! Users, tokens and rules together.
//!
//! Each change raises the generation, so that decisions that callers remember are made anew. The directory is
//! *open* while no user is an administrator: then callers without a name may do everything.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use stafett_model::SharedLock;

use crate::action::Action;
use crate::caller::{Caller, Denied, Who};
use crate::limit::{Limit, Limited, Limits};
use crate::permission::Permission;
use crate::quota::{Entity, Quotas, Rates};
use crate::resource::{Kind, Kinds, Resource};
use crate::rule::{Rule, Subject};
use crate::rules::{Rules, Verdict};
use crate::token::{Token, TokenHash};
use crate::topic_permission::{KeyUse, TopicPermission, TopicPermissions};
use crate::user::{ADMINISTRATOR, MONITORING, SUPERUSER, User};

/// Kinds that administrators manage.
const ADMINISTERED: Kinds = Kinds::of(&[Kind::Cluster, Kind::Namespace, Kind::User, Kind::Token]);

/// A change of the directory, as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    PutUser(User),
    DeleteUser(Box<str>),
    PutToken(Token),
    DeleteToken(TokenHash),
    /// Replaces the actions of a rule; without actions it is removed.
    SetRule(Rule),
    /// Replaces the rates of a quota; without any it is removed.
    SetQuota(Entity, Rates),
    /// Replaces the limits of a namespace or user; without any they are removed.
    SetLimits(Limited, Limits),
    PutTopicPermission(TopicPermission),
    DeleteTopicPermission(TopicPermission),
}

#[derive(Debug, Default)]
struct State {
    users: BTreeMap<Box<str>, Arc<User>>,
    administrators: usize,
    tokens: HashMap<TokenHash, Arc<Token>>,
    rules: Rules,
    quotas: Quotas,
    limits: BTreeMap<Limited, Limits>,
    topic_permissions: TopicPermissions,
}

/// Function that hears of refusals.
type OnDenied = fn(&Caller, &Denied);

#[derive(Debug, Default)]
pub struct Directory {
    state: SharedLock<State>,
    generation: AtomicU64,
    is_closed: AtomicBool,
    has_quotas: AtomicBool,
    has_topic_permissions: AtomicBool,
    on_denied: OnceLock<OnDenied>,
}

impl Directory {
    /// Sets the function that hears of refusals. Called once, at the start.
    pub fn on_denied(&self, hear: OnDenied) {
        let _ = self.on_denied.set(hear);
    }

    pub(crate) fn tell(&self, caller: &Caller, denied: &Denied) {
        if let Some(hear) = self.on_denied.get() {
            hear(caller, denied);
        }
    }

    /// Applies changes, all at once.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) {
        self.apply_to(&mut self.state.write(), changes);
    }

    /// Forgets everything, and applies changes, all at once.
    pub fn replace(&self, changes: impl IntoIterator<Item = Change>) {
        let mut state = self.state.write();
        *state = State::default();
        self.apply_to(&mut state, changes);
    }

    fn apply_to(&self, state: &mut State, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            state.apply(change);
        }
        self.is_closed.store(state.administrators > 0, Ordering::Release);
        self.has_quotas.store(!state.quotas.is_empty(), Ordering::Release);
        let has_topic_permissions = !state.topic_permissions.is_empty();
        self.has_topic_permissions
            .store(has_topic_permissions, Ordering::Release);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns true while no user is an administrator.
    pub fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Number that changes with every change.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        self.state.read().users.get(name).cloned()
    }

    /// Returns all users, by name.
    pub fn users(&self) -> Vec<Arc<User>> {
        self.state.read().users.values().cloned().collect()
    }

    /// Returns up to `count` users behind a name.
    pub fn users_after(&self, after: &str, count: usize) -> Vec<Arc<User>> {
        let state = self.state.read();
        let bounds = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        let users = state.users.range::<str, _>(bounds).take(count);
        users.map(|(_, user)| Arc::clone(user)).collect()
    }

    pub fn user_count(&self) -> usize {
        self.state.read().users.len()
    }

    /// Returns a token that is valid, and its user.
    pub fn token(&self, hash: TokenHash, now_ms: i64) -> Option<(Arc<Token>, Arc<User>)> {
        let state = self.state.read();
        let token = state
            .tokens
            .get(&hash)
            .filter(|token| !token.is_expired(now_ms))?;
        let user = state.users.get(&token.user)?;
        Some((Arc::clone(token), Arc::clone(user)))
    }

    /// Returns all tokens, by id.
    pub fn tokens(&self) -> Vec<Arc<Token>> {
        let mut tokens: Vec<_> = self.state.read().tokens.values().cloned().collect();
        tokens.sort_by(|a, b| a.id.cmp(&b.id));
        tokens
    }

    /// Reads the rules under a lock; `read` should be short.
    pub fn with_rules<T>(&self, read: impl FnOnce(&Rules) -> T) -> T {
        read(&self.state.read().rules)
    }

    /// Returns true if rules that permissions are not made of count for a user in a namespace, too.
    pub fn has_other_rules(&self, user: &User, namespace: &str) -> bool {
        let state = self.state.read();
        let own = Subject::User(user.name.clone());
        subjects(user).any(|subject| {
            let is_part = |rule: &Rule| subject == own && Permission::is_made_of(rule);
            let mut rules = state.rules.of(&subject);
            rules.any(|rule| Permission::is_about(&rule, namespace) && !is_part(&rule))
        })
    }

    /// Returns true if there are quotas.
    pub fn has_quotas(&self) -> bool {
        self.has_quotas.load(Ordering::Acquire)
    }

    /// Returns true if there are permissions for routing keys.
    pub fn has_topic_permissions(&self) -> bool {
        self.has_topic_permissions.load(Ordering::Acquire)
    }

    pub fn topic_permissions(&self) -> Vec<TopicPermission> {
        self.state.read().topic_permissions.all()
    }

    /// Returns true if a user may publish or bind with a routing key of an exchange.
    pub fn permits_key(
        &self,
        user: &str,
        namespace: &str,
        exchange: &str,
        key_use: KeyUse,
        key: &str,
    ) -> bool {
        let state = self.state.read();
        let is_superuser = state.users.get(user).is_some_and(|user| user.has_tag(SUPERUSER));
        is_superuser
            || state
                .topic_permissions
                .permits(user, namespace, exchange, key_use, key)
    }

    /// Returns a limit of a namespace or user. `None` if there is none.
    pub fn limit(&self, of: &Limited, limit: Limit) -> Option<u64> {
        self.state.read().limits.get(of)?.get(&limit).copied()
    }

    pub fn limits(&self, of: &Limited) -> Limits {
        self.state.read().limits.get(of).cloned().unwrap_or_default()
    }

    /// Returns all limits, by owner.
    pub fn all_limits(&self) -> Vec<(Limited, Limits)> {
        let state = self.state.read();
        let all = state.limits.iter();
        all.map(|(of, limits)| (of.clone(), limits.clone())).collect()
    }

    /// Reads the quotas under a lock; `read` should be short.
    pub fn with_quotas<T>(&self, read: impl FnOnce(&Quotas) -> T) -> T {
        read(&self.state.read().quotas)
    }

    /// Decides, without regard to a caller's memory.
    pub(crate) fn decide(&self, who: &Who, peer: IpAddr, action: Action, resource: &Resource<'_>) -> bool {
        let state = self.state.read();
        let Some(user) = state.user_of(who) else {
            return who.is_internal() || (*who == Who::Anonymous && self.is_open());
        };
        if user.has_tag(SUPERUSER) {
            return true;
        }
        let mut verdict = Verdict::Silent;
        for subject in subjects(user) {
            match state.rules.verdict(&subject, action, resource, peer) {
                Verdict::Forbidden => return false,
                Verdict::Allowed => verdict = Verdict::Allowed,
                Verdict::Silent => {}
            }
        }
        verdict == Verdict::Allowed || is_allowed_by_tag(user, action, resource.kind)
    }

    /// Returns true if `action` is permitted on all things of a kind, and false if that may depend on their
    /// names.
    pub(crate) fn decide_all(&self, who: &Who, peer: IpAddr, action: Action, kind: Kind) -> bool {
        let state = self.state.read();
        let Some(user) = state.user_of(who) else {
            return who.is_internal() || (*who == Who::Anonymous && self.is_open());
        };
        if user.has_tag(SUPERUSER) {
            return true;
        }
        let mut is_allowed = is_allowed_by_tag(user, action, kind);
        for subject in subjects(user) {
            match state.rules.verdict_on_all(&subject, action, kind, peer) {
                Verdict::Forbidden => return false,
                Verdict::Allowed => is_allowed = true,
                Verdict::Silent => {}
            }
        }
        is_allowed
    }

    /// Returns true if a rule permits `action` on at least some things of these kinds, and none forbids it on
    /// all.
    pub(crate) fn decide_any(&self, who: &Who, peer: IpAddr, action: Action, kinds: Kinds) -> bool {
        let state = self.state.read();
        let Some(user) = state.user_of(who) else {
            return who.is_internal() || (*who == Who::Anonymous && self.is_open());
        };
        let is_permitted = |kind: Kind| {
            let rules = &state.rules;
            let is_allowed = is_allowed_by_tag(user, action, kind)
                || subjects(user).any(|subject| rules.permits_any(&subject, action, kind.into(), peer));
            is_allowed && !subjects(user).any(|subject| rules.forbids_all(&subject, action, kind, peer))
        };
        user.has_tag(SUPERUSER) || kinds.iter().any(is_permitted)
    }
}

impl State {
    fn user_of(&self, who: &Who) -> Option<&User> {
        let Who::User(name) = who else { return None };
        self.users.get(&**name).map(|user| &**user)
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::PutUser(user) => {
                let is_administrator = user.is_administrator();
                let before = self.users.insert(user.name.clone(), Arc::new(user));
                self.administrators += usize::from(is_administrator);
                self.administrators -= usize::from(before.is_some_and(|user| user.is_administrator()));
            }
            Change::DeleteUser(name) => {
                let before = self.users.remove(&name);
                self.administrators -= usize::from(before.is_some_and(|user| user.is_administrator()));
            }
            Change::PutToken(token) => {
                self.tokens.insert(token.hash, Arc::new(token));
            }
            Change::DeleteToken(hash) => {
                self.tokens.remove(&hash);
            }
            Change::SetRule(rule) => self.rules.set(rule),
            Change::SetQuota(entity, rates) => self.quotas.set(entity, rates),
            Change::PutTopicPermission(permission) => self.topic_permissions.put(permission),
            Change::DeleteTopicPermission(permission) => self.topic_permissions.delete(permission),
            Change::SetLimits(of, limits) if limits.is_empty() => {
                self.limits.remove(&of);
            }
            Change::SetLimits(of, limits) => {
                self.limits.insert(of, limits);
            }
        }
    }
}

/// Returns the subjects whose rules are about a user.
fn subjects(user: &User) -> impl Iterator<Item = Subject> {
    let own = [Subject::User(user.name.clone()), Subject::Everyone];
    own.into_iter()
        .chain(user.tags().map(|tag| Subject::Role(tag.into())))
}

fn is_allowed_by_tag(user: &User, action: Action, kind: Kind) -> bool {
    let is_view = matches!(action, Action::Describe | Action::DescribeSettings);
    if user.has_tag(ADMINISTRATOR) {
        is_view || ADMINISTERED.has(kind)
    } else {
        is_view && user.has_tag(MONITORING)
    }
}
