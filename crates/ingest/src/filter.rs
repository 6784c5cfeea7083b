//! Condition on the events of an endpoint: others are taken, and not stored.

use stafett_expr::{BadExpression, Expression, Found, NoJson, Paths, Record, Value, Variable};

/// Work of the filter on one event.
const WORK_MAX: usize = 1 << 20;

/// A condition on events.
#[derive(Debug, Clone)]
pub struct Filter(Expression);

/// Fate of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Stored,
    LeftOut,
    /// The condition is neither true nor false: the event is left out.
    Failed,
}

/// An event as a filter sees it: its JSON.
struct Event<'a>(&'a [u8]);

impl Record for Event<'_> {
    fn variable(&self, _: Variable) -> Value<'_> {
        Value::Null
    }

    fn header(&self, _: &str) -> Option<Value<'_>> {
        None
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        let text = std::str::from_utf8(self.0).map_err(|_| NoJson)?;
        paths.read(text, found)
    }
}

impl Filter {
    pub(crate) fn compile(source: &str) -> Result<Self, BadExpression> {
        let expression = Expression::compile(source, &[Variable::Value])?;
        Ok(Self(expression.with_work_max(WORK_MAX)))
    }

    pub(crate) fn judge(&self, event: &[u8]) -> Verdict {
        match self.0.is_true(&Event(event)) {
            Ok(true) => Verdict::Stored,
            Ok(false) => Verdict::LeftOut,
            Err(_) => Verdict::Failed,
        }
    }
}
