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

/// Work of all filters on one message.
const MESSAGE_WORK_MAX: usize = 16 << 20;

/// Work of all filters on the messages of one batch.
const BATCH_WORK_MAX: usize = 256 << 20;

/// Work that filters may still do for a batch, and for the message that is routed.
#[derive(Debug)]
pub struct FilterWork {
    batch: usize,
    message: usize,
}

impl Default for FilterWork {
    fn default() -> Self {
        Self {
            batch: BATCH_WORK_MAX,
            message: MESSAGE_WORK_MAX,
        }
    }
}

impl FilterWork {
    pub(crate) fn begin_message(&mut self) {
        self.message = MESSAGE_WORK_MAX.min(self.batch);
    }
}

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
    pub fn is_true<R: Record>(&self, message: &R, work: &mut FilterWork) -> Result<bool, Fault> {
        let before = work.message;
        let verdict = self.0.is_true_within(message, &mut work.message);
        work.batch -= before - work.message;
        verdict
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

#[cfg(test)]
mod tests {
    use super::*;
    use stafett_expr::{Found, NoJson, Paths, Value};

    struct Json(String);

    impl Record for Json {
        fn variable(&self, _: Variable) -> Value<'_> {
            Value::Null
        }

        fn header(&self, _: &str) -> Option<Value<'_>> {
            None
        }

        fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
            paths.read(&self.0, found)
        }
    }

    #[test]
    fn the_filters_of_a_batch_share_a_bound_on_their_work() {
        let filter = Filter::compile("value.a.contains('x') || value.a == value.b").unwrap();
        let text = "a".repeat(400_000);
        let message = Json(format!(r#"{{"a": "{text}", "b": "{text}"}}"#));
        let mut work = FilterWork::default();
        let mut admitted = 0;
        while filter.is_true(&message, &mut work).is_ok() {
            admitted += 1;
        }
        assert!((16..200).contains(&admitted), "{admitted} filters on one message");
        assert_eq!(filter.is_true(&message, &mut work), Err(Fault::Costly));
        let small = Json(r#"{"a": "x"}"#.to_owned());
        let mut messages = 0;
        loop {
            work.begin_message();
            if filter.is_true(&message, &mut work).is_err() {
                break;
            }
            while filter.is_true(&message, &mut work).is_ok() {}
            messages += 1;
        }
        assert!((10..20).contains(&messages), "{messages} messages of a batch");
        work.begin_message();
        assert_eq!(filter.is_true(&small, &mut work), Err(Fault::Costly));
        let mut work = FilterWork::default();
        assert_eq!(filter.is_true(&small, &mut work), Ok(true), "the next batch");
    }
}
