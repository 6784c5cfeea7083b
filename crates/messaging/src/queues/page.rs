//! Pages of queues, by namespace and name.

use std::sync::Arc;

use stafett_model::Namespace;

use super::queue::Queue;
use super::registry::Queues;

impl Queues {
    /// Returns the first `count` queues by namespace and name, of one namespace or of all, behind the one
    /// that `after` names.
    pub fn page(
        &self,
        only: Option<&Namespace>,
        after: Option<(&Namespace, &str)>,
        count: usize,
    ) -> Vec<Arc<Queue>> {
        let table = self.read();
        let is_wanted = |queue: &&Arc<Queue>| {
            only.is_none_or(|only| queue.namespace == *only) && after.is_none_or(|after| key(queue) > after)
        };
        let mut found: Vec<&Arc<Queue>> = table.iter().filter(is_wanted).collect();
        if found.len() > count {
            found.select_nth_unstable_by(count, |one, other| key(one).cmp(&key(other)));
            found.truncate(count);
        }
        found.sort_unstable_by(|one, other| key(one).cmp(&key(other)));
        found.into_iter().cloned().collect()
    }
}

fn key(queue: &Arc<Queue>) -> (&Namespace, &str) {
    (&queue.namespace, &queue.name)
}
