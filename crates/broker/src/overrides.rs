//! Settings changed at run time, except those of single topics: of all brokers, of this one, of a group.
//!
//! They are stored as keyed state and override the settings that the broker was started with. Settings known
//! only to a front end are kept for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use stafett_groups::GroupOverrides;
use stafett_journal::{Change, Journal, StateUnreadable};
use stafett_model::SharedLock;
use stafett_store::{Changing, NotStored, spaces, store_synced};
use stafett_topics::{AlterError, FollowError, TopicDefaults, TopicSettings};
use tokio::sync::{Semaphore, watch};

use crate::broker::Broker;

/// Bound on the scopes with settings of their own.
const SCOPES_MAX: usize = 100_000;

/// Scope of settings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Defaults of all brokers.
    Cluster,
    /// This broker.
    Broker,
    Group(Box<str>),
}

/// Reader of a group's overrides from its settings, whose names only a front end knows.
pub type ReadGroupSettings = fn(&TopicSettings) -> GroupOverrides;

#[derive(Debug)]
pub(crate) struct Overrides {
    set: SharedLock<BTreeMap<Scope, Arc<TopicSettings>>>,
    read_group: Option<ReadGroupSettings>,
    /// Number of changes of groups' settings.
    group_changes: watch::Sender<u64>,
    /// One permit, held while settings are changed.
    turn: Semaphore,
}

impl Scope {
    /// Encodes the key: `u8 kind (1 cluster, 2 broker, 3 group), name`.
    fn key(&self) -> Bytes {
        match self {
            Self::Cluster => Bytes::from_static(&[1]),
            Self::Broker => Bytes::from_static(&[2]),
            Self::Group(name) => [&[3], name.as_bytes()].concat().into(),
        }
    }

    fn of(key: &[u8]) -> Option<Self> {
        match key.split_first()? {
            (1, []) => Some(Self::Cluster),
            (2, []) => Some(Self::Broker),
            (3, name) => Some(Self::Group(std::str::from_utf8(name).ok()?.into())),
            _ => None,
        }
    }
}

impl Overrides {
    pub(crate) fn load(
        journal: &dyn Journal,
        read_group: Option<ReadGroupSettings>,
    ) -> Result<Self, StateUnreadable> {
        let mut set = BTreeMap::new();
        spaces::OVERRIDES.load_values(journal, |key, mut value| {
            let (scope, settings) = (Scope::of(key)?, TopicSettings::decode(&mut value)?);
            set.insert(scope, Arc::new(settings));
            Some(())
        })?;
        Ok(Self {
            set: SharedLock::new(set),
            read_group,
            group_changes: watch::Sender::default(),
            turn: Semaphore::new(1),
        })
    }

    /// Returns `base` with the overrides applied.
    pub(crate) fn over(&self, base: TopicDefaults) -> TopicDefaults {
        let set = self.set.read();
        [Scope::Cluster, Scope::Broker]
            .iter()
            .filter_map(|scope| set.get(scope))
            .fold(base, |below, settings| below.under(settings))
    }
}

impl Broker {
    /// Returns the settings of a scope; empty if none were set.
    pub fn scoped_settings(&self, scope: &Scope) -> Arc<TopicSettings> {
        let set = self.overrides.set.read();
        set.get(scope)
            .cloned()
            .unwrap_or_else(|| Arc::clone(self.catalog.no_settings()))
    }

    /// Returns the scopes that have settings.
    pub fn scopes(&self) -> Vec<Scope> {
        let set = self.overrides.set.read();
        set.keys().cloned().collect()
    }

    /// Puts the settings of all groups in force as they were stored.
    pub(crate) fn apply_group_settings(&self) {
        for scope in self.scopes() {
            self.on_scope_changed(&scope);
        }
    }

    fn on_scope_changed(&self, scope: &Scope) {
        if let (Scope::Group(name), Some(read)) = (scope, self.overrides.read_group) {
            self.groups
                .set_overrides(name, read(&self.scoped_settings(scope)));
        }
    }

    /// Returns a watch on the number of changes of groups' settings.
    pub fn watch_group_settings(&self) -> watch::Receiver<u64> {
        self.overrides.group_changes.subscribe()
    }

    /// Returns the number of changes of groups' settings, and a copy of all for other cells: for each group,
    /// u32 bytes of its name, the name, and the settings. Integers are little-endian.
    pub fn copy_group_settings(&self) -> (u64, Vec<u8>) {
        let version = *self.overrides.group_changes.borrow();
        let mut copy = Vec::new();
        for (scope, settings) in &*self.overrides.set.read() {
            if let Scope::Group(name) = scope {
                let bytes = u32::try_from(name.len()).unwrap_or(u32::MAX);
                copy.extend_from_slice(&bytes.to_le_bytes());
                copy.extend_from_slice(name.as_bytes());
                settings.encode(&mut copy);
            }
        }
        (version, copy)
    }

    /// Has the settings of groups be those of a copy, until this broker ends.
    pub fn follow_group_settings(&self, copy: &[u8]) -> Result<(), FollowError> {
        let mut wanted = read_group_settings(copy).ok_or(FollowError::Malformed)?;
        let none = self.catalog.no_settings();
        for scope in self.scopes() {
            if let Scope::Group(_) = scope {
                wanted.entry(scope).or_insert_with(|| (**none).clone());
            }
        }
        for (scope, settings) in wanted {
            if *self.scoped_settings(&scope) != settings {
                self.overrides.put(scope.clone(), settings, none);
                self.on_scope_changed(&scope);
            }
        }
        Ok(())
    }

    /// Replaces the settings of a scope by the result of `edit`; durable and in force when the change has
    /// ended.
    pub fn alter_scope<E: Send + 'static>(
        self: &Arc<Self>,
        scope: Scope,
        edit: impl FnOnce(&TopicSettings) -> Result<TopicSettings, E> + Send + 'static,
    ) -> Changing<(), AlterError<E>> {
        let broker = Arc::clone(self);
        self.catalog.changes().begin(async move {
            let turn = broker.overrides.turn.acquire().await;
            let _turn = turn.map_err(|_| NotStored::Unknown)?;
            let none = broker.catalog.no_settings();
            let before = broker.scoped_settings(&scope);
            let now = edit(&before).map_err(AlterError::Unwanted)?;
            if now == *before {
                return Ok(());
            }
            if broker.scopes().len() >= SCOPES_MAX && before == *none {
                return Err(AlterError::TooMany);
            }
            let change = if now == **none {
                Change::Delete
            } else {
                let mut value = Vec::new();
                now.encode(&mut value);
                Change::Put(value.into())
            };
            let frame = spaces::OVERRIDES.change(scope.key(), change);
            store_synced(&*broker.journal, [frame]).await?;
            broker.overrides.put(scope.clone(), now, none);
            broker.on_scope_changed(&scope);
            let defaults = broker.overrides.over(broker.base);
            broker.catalog.change_defaults(defaults).await?;
            match scope {
                Scope::Cluster => broker.topics().notify_of_defaults(),
                Scope::Broker => {}
                Scope::Group(_) => broker
                    .overrides
                    .group_changes
                    .send_modify(|changes| *changes += 1),
            }
            Ok(())
        })
    }
}

fn read_group_settings(mut copy: &[u8]) -> Option<BTreeMap<Scope, TopicSettings>> {
    let mut all = BTreeMap::new();
    while !copy.is_empty() {
        let (bytes, rest) = copy.split_first_chunk()?;
        let bytes = usize::try_from(u32::from_le_bytes(*bytes)).ok()?;
        let (name, rest) = rest.split_at_checked(bytes)?;
        let name = std::str::from_utf8(name).ok()?;
        copy = rest;
        all.insert(Scope::Group(name.into()), TopicSettings::decode(&mut copy)?);
    }
    Some(all)
}

impl Overrides {
    fn put(&self, scope: Scope, settings: TopicSettings, none: &TopicSettings) {
        let mut set = self.set.write();
        if settings == *none {
            set.remove(&scope);
        } else {
            set.insert(scope, Arc::new(settings));
        }
    }
}
