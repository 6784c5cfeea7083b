//! Limits of namespaces and users that are set.

use stafett_access::{Caller, Change, Limit, Limited, Tallied};

use super::{AccessControl, AccessError, audit};

impl AccessControl {
    /// Counts a thing of a namespace or user until it is dropped. The error is the limit.
    pub fn count(&self, of: Limited, limit: Limit) -> Result<Tallied, u64> {
        let max = self.directory.limit(&of, limit);
        let counted = self.tally.add(of, limit, max);
        counted.ok_or_else(|| max.unwrap_or_default())
    }

    /// Sets limits of a namespace or user, or removes them. Others stay.
    pub async fn set_limits(
        &self,
        by: &Caller,
        of: Limited,
        wanted: &[(Limit, Option<u64>)],
    ) -> Result<(), AccessError> {
        let _turn = self.turn().await?;
        self.set_limits_in_turn(by, of, wanted).await
    }

    /// Sets the first limits of a namespace or user. Returns false if it has some: these then stay.
    pub async fn make_limits(
        &self,
        by: &Caller,
        of: Limited,
        wanted: &[(Limit, Option<u64>)],
    ) -> Result<bool, AccessError> {
        let _turn = self.turn().await?;
        let is_first = self.directory.limits(&of).is_empty();
        if is_first {
            self.set_limits_in_turn(by, of, wanted).await?;
        }
        Ok(is_first)
    }

    async fn set_limits_in_turn(
        &self,
        by: &Caller,
        of: Limited,
        wanted: &[(Limit, Option<u64>)],
    ) -> Result<(), AccessError> {
        let before = self.directory.limits(&of);
        let mut now = before.clone();
        for (limit, number) in wanted {
            match number {
                Some(number) => now.insert(*limit, *number),
                None => now.remove(limit),
            };
        }
        if now == before {
            return Ok(());
        }
        self.store(vec![Change::SetLimits(of.clone(), now.clone())])
            .await?;
        audit::limits(by, &of, &now);
        Ok(())
    }
}
