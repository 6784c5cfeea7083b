//! Conditions of bindings on the content of messages, beside the rule of their exchange.

use std::cmp::Ordering;

use stafett_expr::{BadExpression, Expression, Fault, Record, Variable};

const VARIABLES: &[Variable] = &[
    Variable::Value,
    Variable::Headers,
    Variable::Key,
    Variable::Timestamp,
    Variable::Exchange,
    Variable::RoutingKey,
    Variable::Priority,
];

/// Work of a filter on one message: its publisher waits meanwhile.
const WORK_MAX: usize = 1 << 20;

/// A condition. Equal ones have the same text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(Expression);

impl Filter {
    pub fn compile(source: &str) -> Result<Self, BadExpression> {
        Ok(Self(
            Expression::compile(source, VARIABLES)?.with_work_max(WORK_MAX),
        ))
    }

    pub fn source(&self) -> &str {
        self.0.source()
    }

    /// Returns whether the condition is true of a message; a failure says why it is neither.
    pub fn is_true<R: Record>(&self, message: &R) -> Result<bool, Fault> {
        self.0.is_true(message)
    }
}

impl PartialOrd for Filter {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Filter {
    fn cmp(&self, other: &Self) -> Ordering {
        self.source().cmp(other.source())
    }
}
