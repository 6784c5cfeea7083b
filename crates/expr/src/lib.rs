//! Expressions over a record: conditions and computed values, in a subset of CEL (Common Expression
//! Language).
//!
//! There are no loops and no macros but `has`, so the cost of an expression is a sum over its nodes; the
//! cost of a node is the size of the values that it looks at. A budget ends evaluations that are too costly
//! all the same. An expression is read once, where it is declared; then only the fields that it names are
//! read out of a record's JSON text, in one pass.
//!
//! Nothing here knows sinks, topics or protocols; they implement [`Record`].
//!
//! - `token`, `parse`, `node`: from text to a tree
//! - `paths`: fields of JSON text by path
//! - `value`: values, how they compare and how they are written
//! - `evaluate`, `function`, `time`: meaning
//! - `stored`: records of topics

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operation names the kinds of values that it takes, and refuses all others"
)]

mod error;
mod evaluate;
mod function;
mod node;
mod parse;
mod paths;
mod stored;
mod time;
mod token;
mod value;

use std::sync::Arc;

pub use error::{BadExpression, Fault};
pub use paths::{Found, Name, NoJson, Paths};
pub use stored::PlacedRecord;
pub use time::zone;
pub use value::Value;

use evaluate::Evaluation;
use node::Node;

/// Bytes of an expression, at most.
pub const SOURCE_BYTES_MAX: usize = 4096;

/// Work for one record, unless the expression has another bound.
const WORK_MAX: usize = 16 << 20;

/// A name of an expression that stands for a part of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variable {
    /// The JSON value, whose fields are read by path.
    Value,
    Headers,
    Key,
    Topic,
    Partition,
    Offset,
    Timestamp,
    Exchange,
    RoutingKey,
    Priority,
}

impl Variable {
    const ALL: [(&'static str, Self); 10] = [
        ("value", Self::Value),
        ("headers", Self::Headers),
        ("key", Self::Key),
        ("topic", Self::Topic),
        ("partition", Self::Partition),
        ("offset", Self::Offset),
        ("timestamp", Self::Timestamp),
        ("exchange", Self::Exchange),
        ("routing_key", Self::RoutingKey),
        ("priority", Self::Priority),
    ];

    fn of(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, variable)| *variable)
    }
}

/// A record, as an expression sees it.
pub trait Record {
    /// Returns a variable other than the value and the headers.
    fn variable(&self, variable: Variable) -> Value<'_>;

    /// Returns a header.
    fn header(&self, name: &str) -> Option<Value<'_>>;

    /// Returns the work of a look at one header: the bytes that are read for it.
    fn header_work(&self) -> usize {
        0
    }

    /// Reads the fields of the value.
    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson>;
}

/// A checked expression. Equal ones have the same text.
#[derive(Debug, Clone)]
pub struct Expression {
    source: Box<str>,
    root: Node,
    paths: Paths,
    /// Paths as text, for errors, by slot.
    names: Vec<Arc<str>>,
    work_max: usize,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expression {}

impl Expression {
    /// Checks an expression. It may use the given variables.
    pub fn compile(source: &str, variables: &[Variable]) -> Result<Self, BadExpression> {
        let parsed = parse::parse(source, variables)?;
        let mut paths = Paths::default();
        let mut names = Vec::with_capacity(parsed.slots.len());
        for (slot, path) in parsed.slots.iter().enumerate() {
            paths.insert(path, slot);
            names.push(paths::display(path).into());
        }
        Ok(Self {
            source: source.into(),
            root: parsed.root,
            paths,
            names,
            work_max: WORK_MAX,
        })
    }

    /// Returns the expression with another bound on its work for one record: nodes, and bytes that they look
    /// at.
    #[must_use]
    pub fn with_work_max(mut self, work_max: usize) -> Self {
        self.work_max = work_max;
        self
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the value of the expression for a record.
    pub fn evaluate<'r, R: Record>(&'r self, record: &'r R) -> Result<Value<'r>, Fault> {
        Evaluation::new(self, record).value(&self.root)
    }

    /// Returns whether the expression is true of a record, as [`Self::is_true`] does. The work is taken off
    /// `left`; where that does not suffice, the evaluation fails.
    pub fn is_true_within<R: Record>(&self, record: &R, left: &mut usize) -> Result<bool, Fault> {
        let most = self.work_max.min(*left);
        let mut evaluation = Evaluation::new(self, record).with_work(most);
        let value = evaluation.value(&self.root);
        // One that was too costly may have looked at more than it had left.
        let spent = match &value {
            Err(Fault::Costly) => most,
            _ => most - evaluation.left(),
        };
        *left -= spent;
        condition(&value?)
    }

    /// Returns whether the expression is true of a record. Other values than true and false are a fault.
    pub fn is_true<R: Record>(&self, record: &R) -> Result<bool, Fault> {
        condition(&self.evaluate(record)?)
    }
}

fn condition(value: &Value<'_>) -> Result<bool, Fault> {
    match value {
        Value::Bool(it) => Ok(*it),
        other => Err(Fault::NoCondition(other.kind())),
    }
}
