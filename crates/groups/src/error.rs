//! Errors of group operations.

use stafett_store::NotStored;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    #[error("a group's name has at most {max} bytes, and members need one: {bytes} were given")]
    Name { bytes: usize, max: usize },
    #[error("there is no such group")]
    NoSuchGroup,
    #[error("groups of this name are spread over the cells of the cluster, and have no members of this kind")]
    Elsewhere,
    #[error("there are as many groups as there may be")]
    TooManyGroups,
    #[error("the group has members")]
    NotEmpty,
    #[error("the group is of another kind")]
    OtherKind,
    #[error("the group has as many members as it may have")]
    Full,
    #[error("the members of all groups take as much memory as they may")]
    NoMemory,
    #[error("the group does not know this member")]
    UnknownMember,
    /// The member has to join again with the id that it was given.
    #[error("the member has to join again with the id that it was given")]
    MemberIdRequired,
    #[error("another member took over this instance")]
    FencedInstance,
    #[error("the group is in another generation")]
    OtherGeneration,
    /// The epoch given by a member of a consumer group is not its current one.
    #[error("the member is in another epoch")]
    StaleEpoch,
    #[error("the group is about to change")]
    Rebalancing,
    #[error("the members have no strategy in common")]
    NoCommonStrategy,
    #[error("a session of {given} ms is not possible: expected {min} to {max}")]
    SessionTime { given: u32, min: u32, max: u32 },
    #[error("what the member says of itself takes {bytes} bytes, at most {max} are possible")]
    MemberTooLarge { bytes: usize, max: usize },
    #[error("the broker is stopping")]
    Stopping,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}
