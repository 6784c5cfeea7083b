//! The policies of all namespaces, and the choice for a queue.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use stafett_model::{Namespace, SharedLock};
use stafett_queue::{ChangedSettings, PolicySettings, QueueSettings};

use super::policy::{Policy, PolicyKind};

/// Policies of a namespace, each kind in the order in which they are asked.
#[derive(Debug, Default, Clone)]
pub(super) struct NamespacePolicies([Vec<Arc<Policy>>; 2]);

/// Policies that are in force for a queue.
#[derive(Debug, Clone, Default)]
pub struct AppliedPolicies {
    pub user: Option<Arc<Policy>>,
    pub operator: Option<Arc<Policy>>,
}

/// Policies of all namespaces.
#[derive(Debug, Default)]
pub(in super::super) struct Policies(SharedLock<HashMap<Namespace, Arc<NamespacePolicies>>>);

impl NamespacePolicies {
    fn of(&self, kind: PolicyKind) -> &Vec<Arc<Policy>> {
        let [user, operator] = &self.0;
        match kind {
            PolicyKind::User => user,
            PolicyKind::Operator => operator,
        }
    }

    fn of_mut(&mut self, kind: PolicyKind) -> &mut Vec<Arc<Policy>> {
        let [user, operator] = &mut self.0;
        match kind {
            PolicyKind::User => user,
            PolicyKind::Operator => operator,
        }
    }

    pub(super) fn matching(&self, name: &str, declared: &QueueSettings) -> AppliedPolicies {
        let first = |kind| {
            let mut all = self.of(kind).iter();
            all.find(|policy| policy.matches(name, declared)).cloned()
        };
        AppliedPolicies {
            user: first(PolicyKind::User),
            operator: first(PolicyKind::Operator),
        }
    }
}

impl AppliedPolicies {
    pub(in super::super) fn is_same(&self, other: &Self) -> bool {
        let address = |policy: &Option<Arc<Policy>>| policy.as_ref().map(Arc::as_ptr);
        let addresses = |of: &Self| (address(&of.user), address(&of.operator));
        addresses(self) == addresses(other)
    }

    /// Returns the settings in force of a queue; `owns_messages` is false for one over a topic.
    pub(in super::super) fn in_force(
        &self,
        declared: &QueueSettings,
        changed: &ChangedSettings,
        owns_messages: bool,
    ) -> QueueSettings {
        let settings_of = |policy: &Option<Arc<Policy>>| {
            policy.as_ref().map(|policy| {
                let settings = &policy.new.settings;
                if owns_messages {
                    settings.clone()
                } else {
                    settings.without_messages()
                }
            })
        };
        let (user, operator) = (settings_of(&self.user), settings_of(&self.operator));
        if user.is_none() && operator.is_none() {
            return declared.with(changed.iter());
        }
        let user = user.unwrap_or_default();
        let operator = operator.unwrap_or_else(PolicySettings::default);
        let settings = declared.under(&user.within(&operator));
        settings.with(changed.iter()).bounded_by(&operator)
    }
}

impl Policies {
    /// Returns the policies of a namespace. `None` if it has none.
    pub(super) fn of(&self, namespace: &Namespace) -> Option<Arc<NamespacePolicies>> {
        self.0.read().get(namespace).cloned()
    }

    /// Returns the policies for a queue.
    pub(in super::super) fn matching(
        &self,
        namespace: &Namespace,
        name: &str,
        declared: &QueueSettings,
    ) -> AppliedPolicies {
        let own = self.of(namespace);
        own.map_or_else(AppliedPolicies::default, |own| own.matching(name, declared))
    }

    pub(super) fn get(&self, kind: PolicyKind, namespace: &Namespace, name: &str) -> Option<Arc<Policy>> {
        let own = self.of(namespace)?;
        own.of(kind)
            .iter()
            .find(|policy| policy.new.name == name)
            .cloned()
    }

    pub(super) fn count(&self, kind: PolicyKind, namespace: &Namespace) -> usize {
        self.of(namespace).map_or(0, |own| own.of(kind).len())
    }

    /// Returns all policies of a kind, by namespace and name.
    pub(super) fn all(&self, kind: PolicyKind) -> Vec<(Namespace, Arc<Policy>)> {
        let spaces = self.0.read();
        let mut all: Vec<_> = spaces
            .iter()
            .flat_map(|(namespace, own)| {
                let own = own.of(kind).iter();
                own.map(|policy| (namespace.clone(), Arc::clone(policy)))
            })
            .collect();
        drop(spaces);
        all.sort_unstable_by(|(space, policy), (other, later)| {
            (space, &policy.new.name).cmp(&(other, &later.new.name))
        });
        all
    }

    /// Puts a policy into the table.
    pub(super) fn put(&self, kind: PolicyKind, namespace: &Namespace, policy: Policy) {
        self.change(namespace, |own| {
            let own = own.of_mut(kind);
            own.retain(|other| other.new.name != policy.new.name);
            own.push(Arc::new(policy));
            own.sort_by(|one, other| {
                (Reverse(one.new.priority), &one.new.name)
                    .cmp(&(Reverse(other.new.priority), &other.new.name))
            });
        });
    }

    pub(super) fn remove(&self, kind: PolicyKind, namespace: &Namespace, name: &str) {
        self.change(namespace, |own| {
            own.of_mut(kind).retain(|other| other.new.name != name);
        });
    }

    pub(super) fn forget(&self, namespace: &Namespace) {
        self.0.write().remove(namespace);
    }

    fn change(&self, namespace: &Namespace, change: impl FnOnce(&mut NamespacePolicies)) {
        let mut spaces = self.0.write();
        let mut own = spaces
            .get(namespace)
            .map(|own| (**own).clone())
            .unwrap_or_default();
        change(&mut own);
        if own.0.iter().all(Vec::is_empty) {
            spaces.remove(namespace);
        } else {
            spaces.insert(namespace.clone(), Arc::new(own));
        }
    }
}
