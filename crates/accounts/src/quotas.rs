//! Quotas that are set, and their buckets.

use std::sync::Arc;
use std::time::Duration;

use stafett_access::{Bucket, Caller, Change, Entity, Rate, Rates, check_rate};

use super::{AccessControl, AccessError, audit};

/// Rates of a quota that are set, or removed. Others stay.
#[derive(Debug, Clone)]
pub struct NewQuota {
    pub entity: Entity,
    pub rates: Vec<(Rate, Option<f64>)>,
}

/// Buckets of a connection, kept until users or quotas change. Empty while there are no quotas.
#[derive(Debug, Default)]
pub struct ConnectionQuota(Option<Box<Buckets>>);

#[derive(Debug)]
struct Buckets {
    /// Generation of the users and quotas that they are of.
    generation: u64,
    /// By rate.
    buckets: [Option<Arc<Bucket>>; Rate::ALL.len()],
}

impl AccessControl {
    /// Takes bytes or requests of a connection from its quota, and returns the time until the debt is gone.
    /// The user and the client of a connection do not change.
    pub fn charge(
        &self,
        quota: &mut ConnectionQuota,
        (user, client): (Option<&str>, &str),
        rate: Rate,
        count: usize,
    ) -> Duration {
        if !self.directory.has_quotas() {
            quota.0 = None;
            return Duration::ZERO;
        }
        let generation = self.directory.generation();
        let known = quota.0.take().filter(|known| known.generation == generation);
        let known = known.unwrap_or_else(|| {
            let buckets = Rate::ALL.map(|rate| self.bucket(user, client, rate));
            Box::new(Buckets { generation, buckets })
        });
        let known = quota.0.insert(known);
        let bucket = known.buckets.get(rate as usize).and_then(Option::as_ref);
        bucket.map_or(Duration::ZERO, |bucket| self.take(bucket, count))
    }

    /// Sets quotas, all or none of them; with `check_only` none.
    pub async fn set_quotas(
        &self,
        by: &Caller,
        quotas: Vec<NewQuota>,
        check_only: bool,
    ) -> Result<(), AccessError> {
        let _turn = self.turn().await?;
        self.set_quotas_in_turn(by, quotas, check_only).await
    }

    /// Sets the first rates of a user, a client, or both. Returns false if there are some: these then stay.
    pub async fn make_quota(&self, by: &Caller, quota: NewQuota) -> Result<bool, AccessError> {
        let _turn = self.turn().await?;
        let is_first = self
            .directory
            .with_quotas(|quotas| quotas.rates(&quota.entity).is_none());
        if is_first {
            self.set_quotas_in_turn(by, vec![quota], false).await?;
        }
        Ok(is_first)
    }

    async fn set_quotas_in_turn(
        &self,
        by: &Caller,
        quotas: Vec<NewQuota>,
        check_only: bool,
    ) -> Result<(), AccessError> {
        let mut wanted: Vec<(Entity, Rates)> = Vec::new();
        for NewQuota { entity, rates } in quotas {
            entity.check()?;
            let before = self.directory.with_quotas(|quotas| {
                quotas.check_room(&entity)?;
                Ok::<_, AccessError>(quotas.rates(&entity).cloned().unwrap_or_default())
            })?;
            let mut now = before.clone();
            for (rate, bytes) in rates {
                match bytes {
                    Some(bytes) => {
                        check_rate(bytes)?;
                        now.insert(rate, bytes);
                    }
                    None => {
                        now.remove(&rate);
                    }
                }
            }
            if now != before {
                wanted.push((entity, now));
            }
        }
        if check_only {
            return Ok(());
        }
        let changes = wanted.iter().cloned();
        self.store(
            changes
                .map(|(entity, rates)| Change::SetQuota(entity, rates))
                .collect(),
        )
        .await?;
        for (entity, rates) in &wanted {
            audit::quota(by, entity, rates);
        }
        Ok(())
    }

    /// Returns the bucket of a user and client. `None` if no quota limits the rate.
    pub fn bucket(&self, user: Option<&str>, client: &str, rate: Rate) -> Option<Arc<Bucket>> {
        if !self.directory.has_quotas() {
            return None;
        }
        let now = self.started.elapsed();
        self.directory
            .with_quotas(|quotas| quotas.bucket(user, client, rate, now))
    }

    /// Takes bytes or requests out of a bucket, and returns the time that its users have to wait.
    pub fn take(&self, bucket: &Bucket, count: usize) -> Duration {
        bucket.take(count, self.started.elapsed())
    }
}
