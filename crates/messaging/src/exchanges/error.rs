//! Errors of exchanges and bindings: one enum per operation.

use std::sync::Arc;

use stafett_routing::BadPattern;
use stafett_store::NotStored;

use super::exchange::{Difference, Exchange};

/// Error of declaring an exchange.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeclareError {
    #[error("there is no such namespace")]
    NoSuchNamespace,
    /// The exchange exists with another definition.
    #[error("exchange '{}' exists and differs in {difference:?}", exchange.name)]
    Differs {
        exchange: Arc<Exchange>,
        difference: Difference,
    },
    #[error("the name of an exchange has at most 255 bytes")]
    NameTooLong,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Error of deleting an exchange.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    #[error("there is no such namespace")]
    NoSuchNamespace,
    #[error("there is no such exchange")]
    NoSuchExchange,
    #[error("the exchange has bindings")]
    InUse,
    #[error("the default exchange stays")]
    IsDefault,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Error of making a binding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    #[error("there is no such namespace")]
    NoSuchNamespace,
    #[error("there is no such exchange")]
    NoSuchExchange,
    #[error("there is no such queue, exchange or topic to bind to")]
    NoSuchDestination,
    #[error("the default exchange has no bindings of its own")]
    IsDefault,
    #[error("a binding key has at most 255 bytes")]
    KeyTooLong,
    #[error(
        "the bindings of a namespace may have {max} distinct filters; with this one they would have more"
    )]
    TooManyFilters { max: usize },
    #[error(transparent)]
    BadPattern(BadPattern),
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Error of removing a binding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnbindError {
    #[error("there is no such namespace")]
    NoSuchNamespace,
    #[error("there is no such exchange")]
    NoSuchExchange,
    #[error("there is no such binding")]
    NoSuchBinding,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Error of creating or deleting a namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    #[error("there is no such namespace")]
    NoSuchNamespace,
    #[error("the default namespace stays")]
    IsDefault,
    #[error("the namespace is being deleted")]
    Closing,
    #[error("the name of a namespace has 1 to 255 bytes")]
    BadName,
    #[error("the description of a namespace has at most 1024 bytes")]
    LongDescription,
    #[error("another cell of the cluster keeps the namespace")]
    Elsewhere,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

impl From<stafett_routing::BindError> for BindError {
    fn from(error: stafett_routing::BindError) -> Self {
        match error {
            stafett_routing::BindError::NoSuchExchange(_) => Self::NoSuchExchange,
            stafett_routing::BindError::BadPattern(BadPattern::ByName) => Self::IsDefault,
            stafett_routing::BindError::BadPattern(pattern) => Self::BadPattern(pattern),
        }
    }
}
