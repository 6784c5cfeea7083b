//! Waits of operations, for the registry of connections.

use stafett_net::registry::Wait;

use crate::operation::{GroupOperation, Operation};

impl Operation {
    /// Returns the wait of the operation. `None` if it is for its client or for new records.
    pub(crate) fn wait(&self) -> Option<Wait> {
        match self {
            Self::Turn(_)
            | Self::WriteLarge(_)
            | Self::WriteBlocking { .. }
            | Self::FindTimes(..)
            | Self::FindEpochEnds(..)
            | Self::Read(..)
            | Self::AskFirstCell(_)
            | Self::AwaitGrowth { .. }
            | Self::Share(_)
            | Self::Authenticate(..)
            | Self::Group(GroupOperation::HoldHeartbeat(..)) => None,
            Self::Group(GroupOperation::Join(..) | GroupOperation::Sync(..)) => Some(Wait::Group),
            Self::CreateTopics(..)
            | Self::AwaitNames(..)
            | Self::GrowTopics(..)
            | Self::DeleteTopics(..)
            | Self::Truncate(..)
            | Self::Alter(..)
            | Self::NewProducerId(_)
            | Self::AwaitCommits(..)
            | Self::Access(_)
            | Self::Group(GroupOperation::AwaitStep(..) | GroupOperation::AwaitDeletions(..))
            | Self::Transaction(_)
            | Self::CreateOffsetsTopic(_)
            | Self::RefreshOffsetsTopic(_) => Some(Wait::Journal),
        }
    }
}
