//! The groups' view of topics.

use crate::topic::TopicId;

/// Properties of a topic that matter for assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicShape {
    pub id: TopicId,
    pub partitions: u32,
}

/// All topics, and those that changed since a group last looked.
pub trait TopicSource {
    /// Returns a number that rises whenever a topic is created or deleted or gets other partitions. Never 0.
    fn version(&self) -> u64;

    fn named(&self, name: &str) -> Option<TopicShape>;

    /// Visits all topics, in any order.
    fn each(&self, visit: &mut dyn FnMut(&str, TopicShape));

    /// Visits the names of topics that changed after `version`. False, with nothing visited, if these are no
    /// longer known.
    fn each_changed(&self, version: u64, visit: &mut dyn FnMut(&str)) -> bool;
}
