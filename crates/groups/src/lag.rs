//! Lags of groups: offsets from their commits to the ends of the partitions, measured before each sweep of
//! the counters.
//!
//! Only groups are measured whose commits have changed, or one of whose topics has. Commits are copied under
//! the lock of their groups, and compared with the ends of partitions without it.

use std::collections::HashMap;
use std::sync::Arc;

use stafett_topics::TopicId;

use super::commit_counts::GroupCounts;
use super::group::Group;
use super::registry::Groups;

/// A committed offset, by topic and partition.
type Committed = (TopicId, u32, i64);

/// Returns the offsets from a commit to the end of its partition.
pub fn lag(committed: i64, end: u64) -> u64 {
    end.saturating_sub(u64::try_from(committed).unwrap_or(0))
}

impl Groups {
    /// Measures the lags of groups with new commits, or with commits in topics that `has_grown` names: they
    /// got records since the sweep before the last one, or are gone.
    pub fn measure_lags(&self, has_grown: impl Fn(TopicId) -> bool) {
        let mut grown: HashMap<TopicId, bool> = HashMap::new();
        let mut has_grown = |topic| *grown.entry(topic).or_insert_with(|| has_grown(topic));
        for shard in self.shards() {
            let mut due = Vec::new();
            for group in self.lock(shard).values_mut() {
                group.commits.settle();
                let is_new = group.counter.begin_measuring(!group.commits.has_staged());
                // A group without commits has a lag only if it had some.
                if is_new && group.counter.get().is_some()
                    || group
                        .commits
                        .topics()
                        .any(|(topic, _)| is_new || has_grown(topic))
                {
                    due.push(copy(group));
                }
            }
            for (counts, commits) in due {
                self.set_lag(&counts, self.lag_of(&commits));
            }
        }
    }

    fn lag_of(&self, commits: &[Committed]) -> u64 {
        let lags = commits.iter().filter_map(|(topic, partition, committed)| {
            let log = self.topics.with_id(*topic)?.log(*partition)?;
            Some(lag(*committed, self.journal.bounds(log)?.end.0))
        });
        lags.sum()
    }
}

fn copy(group: &mut Group) -> (Arc<GroupCounts>, Vec<Committed>) {
    let commits = group.commits.topics().flat_map(|(topic, partitions)| {
        let commits = partitions.iter();
        commits.map(move |(partition, committed)| (topic, *partition, committed.offset))
    });
    let commits = commits.collect();
    (Arc::clone(group.counter.get_or_insert()), commits)
}
