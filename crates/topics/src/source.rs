//! Topics as groups see them.

use crate::topic::TopicId;

/// A topic as far as assignment goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicShape {
    pub id: TopicId,
    pub partitions: u32,
}

/// All topics, and which of them changed since a group last looked.
pub trait TopicSource {
    /// Rises with every topic that comes, goes, or gets other partitions. Never 0.
    fn version(&self) -> u64;

    fn named(&self, name: &str) -> Option<TopicShape>;

    /// Visits all topics, in any order.
    fn each(&self, visit: &mut dyn FnMut(&str, TopicShape));

    /// Visits the names of topics that changed after `version`. False, with nothing visited, if that is no
    /// longer known.
    fn each_changed(&self, version: u64, visit: &mut dyn FnMut(&str)) -> bool;
}
