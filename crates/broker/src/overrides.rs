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
use stafett_topics::{AlterError, TopicDefaults, TopicSettings};
use tokio::sync::Semaphore;

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
            if scope == Scope::Cluster {
                broker.topics().notify_of_defaults();
            }
            Ok(())
        })
    }
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
