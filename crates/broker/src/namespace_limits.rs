//! Limits of namespaces, given to the parts that keep to them.

use stafett_access::{Caller, Limit, Limited, Limits};
use stafett_accounts::{AccessError, BadCopy};
use stafett_messaging::queues::NamespaceBounds;
use stafett_model::Namespace;
use stafett_store::RoomBound;

use crate::broker::Broker;

impl Broker {
    /// Sets limits of a namespace or user, or removes them. Others stay. They are in force when this
    /// resolves. Things beyond them stay.
    pub async fn set_limits(
        &self,
        by: &Caller,
        of: Limited,
        wanted: &[(Limit, Option<u64>)],
    ) -> Result<(), AccessError> {
        self.access().set_limits(by, of.clone(), wanted).await?;
        self.apply_limits(&of, &self.access().directory().limits(&of));
        Ok(())
    }

    /// Sets the first limits of a namespace or user. Returns false if it has some: these then stay.
    pub async fn make_limits(
        &self,
        by: &Caller,
        of: Limited,
        wanted: &[(Limit, Option<u64>)],
    ) -> Result<bool, AccessError> {
        let is_first = self.access().make_limits(by, of.clone(), wanted).await?;
        self.apply_limits(&of, &self.access().directory().limits(&of));
        Ok(is_first)
    }

    /// Puts the stored limits into force, at the start.
    pub(crate) fn apply_all_limits(&self) {
        for (of, limits) in self.access().directory().all_limits() {
            self.apply_limits(&of, &limits);
        }
    }

    /// Takes users, rights and limits from a copy of another broker's, in place of all that there are.
    pub fn follow_access(&self, copy: &[u8]) -> Result<(), BadCopy> {
        let before = self.access().directory().all_limits();
        self.access().follow(copy)?;
        for (of, _) in before {
            self.apply_limits(&of, &self.access().directory().limits(&of));
        }
        self.apply_all_limits();
        Ok(())
    }

    fn apply_limits(&self, of: &Limited, limits: &Limits) {
        let Limited::Namespace(name) = of else { return };
        let limit = |limit| limits.get(&limit).copied();
        let bounds = NamespaceBounds {
            queues: limit(Limit::Queues),
            room: RoomBound {
                messages: limit(Limit::Messages),
                bytes: limit(Limit::Bytes),
            },
        };
        let namespace = Namespace::new(name);
        self.messaging.queues().set_bounds(&namespace, bounds);
        self.topics().set_bound(&namespace, limit(Limit::Topics));
    }
}
