//! Limits of namespaces and users that are set.

use stafett_access::{Caller, Change, Limit, Limited};

use super::{AccessControl, AccessError, audit};

impl AccessControl {
    /// Sets limits of a namespace or user, or removes them. Others stay.
    pub async fn set_limits(
        &self,
        by: &Caller,
        of: Limited,
        wanted: &[(Limit, Option<u64>)],
    ) -> Result<(), AccessError> {
        let _turn = self.turn().await?;
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
