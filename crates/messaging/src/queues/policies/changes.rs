//! Policies that are made and deleted, and put into force.

use std::sync::Arc;

use stafett_journal::StateUnreadable;
use stafett_model::Namespace;
use stafett_store::{NotStored, spaces, store_synced};

use super::super::queue::Queue;
use super::super::registry::Queues;
use super::super::table::QueueRange;
use super::policy::{BadPolicy, NewPolicy, Policy, PolicyKind, decode_key, encode_key};
use super::table::AppliedPolicies;

/// Policies of one kind that a namespace may have.
const POLICIES_MAX: usize = 1000;
/// Queues that are looked at before other tasks have their turn.
const LOOKED_AT: usize = 64;

/// Error of changing policies.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error(transparent)]
    Bad(#[from] BadPolicy),
    #[error("there is no such namespace")]
    NoSuchNamespace,
    #[error("there is no such policy")]
    NoSuchPolicy,
    #[error("a namespace has at most {POLICIES_MAX} policies")]
    TooMany,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

impl Queues {
    /// Loads the policies, before the queues.
    pub(in super::super) fn load_policies(&self) -> Result<(), StateUnreadable> {
        spaces::POLICIES.load_values(&*self.journal, |key, value| {
            let (kind, namespace, name) = decode_key(key)?;
            self.policies.put(kind, &namespace, Policy::decode(&name, value)?);
            Some(())
        })
    }

    /// Returns all policies of a kind, by namespace and name.
    pub fn policies(&self, kind: PolicyKind) -> Vec<(Namespace, Arc<Policy>)> {
        self.policies.all(kind)
    }

    pub fn policy(&self, kind: PolicyKind, namespace: &Namespace, name: &str) -> Option<Arc<Policy>> {
        self.policies.get(kind, namespace, name)
    }

    /// Makes or replaces a policy. It is stored, and in force for all queues, when this resolves. Continues
    /// even if the caller stops waiting. True if the policy is new.
    pub async fn put_policy(
        self: &Arc<Self>,
        kind: PolicyKind,
        namespace: &Namespace,
        new: NewPolicy,
    ) -> Result<bool, PolicyError> {
        self.store_policy(kind, namespace, new, true).await
    }

    /// Makes a policy. Returns false if it is there: it then stays as it is.
    pub async fn make_policy(
        self: &Arc<Self>,
        kind: PolicyKind,
        namespace: &Namespace,
        new: NewPolicy,
    ) -> Result<bool, PolicyError> {
        self.store_policy(kind, namespace, new, false).await
    }

    async fn store_policy(
        self: &Arc<Self>,
        kind: PolicyKind,
        namespace: &Namespace,
        new: NewPolicy,
        replaces: bool,
    ) -> Result<bool, PolicyError> {
        let policy = Policy::new(new)?;
        let (queues, namespace) = (Arc::clone(self), namespace.clone());
        let putting = self.spawn(async move {
            let turn = queues.policy_turn.acquire().await;
            if !queues.router.has_namespace(&namespace) {
                return Err(PolicyError::NoSuchNamespace);
            }
            let name = policy.new.name.clone();
            let is_new = queues.policies.get(kind, &namespace, &name).is_none();
            if !is_new && !replaces {
                return Ok(false);
            }
            if is_new && queues.policies.count(kind, &namespace) >= POLICIES_MAX {
                return Err(PolicyError::TooMany);
            }
            let key = encode_key(kind, &namespace, &name);
            let row = spaces::POLICIES.put(key, policy.encode());
            store_synced(&*queues.journal, [row]).await?;
            queues.policies.put(kind, &namespace, policy);
            drop(turn);
            queues.apply_policies(&namespace).await;
            Ok(is_new)
        });
        putting.await.unwrap_or_else(|_| Err(NotStored::Unknown.into()))
    }

    /// Deletes a policy. As [`Self::put_policy`].
    pub async fn delete_policy(
        self: &Arc<Self>,
        kind: PolicyKind,
        namespace: &Namespace,
        name: &str,
    ) -> Result<(), PolicyError> {
        let (queues, namespace, name) = (Arc::clone(self), namespace.clone(), name.to_owned());
        let deleting = self.spawn(async move {
            let turn = queues.policy_turn.acquire().await;
            let known = queues.policies.get(kind, &namespace, &name);
            known.ok_or(PolicyError::NoSuchPolicy)?;
            let row = spaces::POLICIES.delete(encode_key(kind, &namespace, &name));
            store_synced(&*queues.journal, [row]).await?;
            queues.policies.remove(kind, &namespace, &name);
            drop(turn);
            queues.apply_policies(&namespace).await;
            Ok(())
        });
        deleting.await.unwrap_or_else(|_| Err(NotStored::Unknown.into()))
    }

    /// Deletes the policies of a namespace that is being deleted.
    pub async fn forget_policies(&self, namespace: &Namespace) -> Result<(), NotStored> {
        let _turn = self.policy_turn.acquire().await;
        let mut rows = Vec::new();
        for kind in PolicyKind::ALL {
            let all = self.policies.all(kind);
            let own = all.iter().filter(|(space, _)| space == namespace);
            rows.extend(
                own.map(|(_, policy)| spaces::POLICIES.delete(encode_key(kind, namespace, &policy.new.name))),
            );
        }
        if rows.is_empty() {
            return Ok(());
        }
        store_synced(&*self.journal, rows).await?;
        self.policies.forget(namespace);
        Ok(())
    }

    /// Puts the policies of a namespace into force, some queues at a time.
    async fn apply_policies(&self, namespace: &Namespace) {
        let mut after: Option<Arc<Queue>> = None;
        loop {
            let page = self.page(QueueRange {
                namespace: Some(namespace),
                after: after.as_ref().map(|queue| (namespace.as_str(), &*queue.name)),
                count: LOOKED_AT,
                ..QueueRange::default()
            });
            page.queues.iter().for_each(|queue| self.apply_policies_to(queue));
            after = page.queues.last().cloned();
            if !page.has_more || after.is_none() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Puts the policies into force that are now those of a queue.
    pub(in super::super) fn apply_policies_to(&self, queue: &Arc<Queue>) {
        loop {
            let own = self.policies.of(&queue.namespace);
            let applied = match &own {
                Some(own) => own.matching(&queue.name, &queue.declared),
                None => AppliedPolicies::default(),
            };
            if queue.policies().is_same(&applied) {
                return;
            }
            let mut inner = queue.lock();
            // Another change has come meanwhile, whose policies may be in force already.
            let address = |own: Option<&Arc<_>>| own.map(Arc::as_ptr);
            if address(self.policies.of(&queue.namespace).as_ref()) != address(own.as_ref()) {
                continue;
            }
            if queue.is_deleted() {
                return;
            }
            let settings = applied.in_force(&queue.declared, &queue.changed.lock(), queue.over.is_none());
            *queue.policies.lock() = applied;
            queue.set_settings(&self.context, &mut inner, settings);
            drop(inner);
            queue.dispatch_now();
            return;
        }
    }
}
