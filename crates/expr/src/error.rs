//! Errors of expressions, and of single evaluations.

use std::sync::Arc;

/// Reason why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why} (at column {column})")]
pub struct BadExpression {
    /// Column of the place, in characters from 1.
    pub column: usize,
    pub why: String,
}

/// Reason why an expression has no value for a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the value is not JSON")]
    NoJson,
    #[error("there is no {0}")]
    Missing(Arc<str>),
    #[error("{of} does not take {left}")]
    Type { of: &'static str, left: &'static str },
    #[error("{of} does not take {left} and {right}")]
    Types {
        of: &'static str,
        left: &'static str,
        right: &'static str,
    },
    #[error("a condition is true or false, and this is {0}")]
    NoCondition(&'static str),
    #[error("the result is too large a number")]
    Overflow,
    #[error("a division by zero")]
    Zero,
    #[error("the text is no {0}")]
    Text(&'static str),
    #[error("there is no such time zone")]
    Zone,
    #[error("the expression is too costly for this record")]
    Costly,
}
