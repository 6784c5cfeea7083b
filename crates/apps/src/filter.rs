//! Records that are for the worker of a task, and the filter of an app: a condition on records.

use std::borrow::Cow;
use std::sync::Arc;

use stafett_expr::{BadExpression, Expression, Found, NoJson, Paths, Record, Value, Variable};
use stafett_model::StoredRecord;

use crate::definition::Definition;
use crate::mark::Mark;
use crate::task::{Slice, TaskId};

const VARIABLES: &[Variable] = &[
    Variable::Value,
    Variable::Headers,
    Variable::Key,
    Variable::Topic,
    Variable::Partition,
    Variable::Offset,
    Variable::Timestamp,
];

/// Work of the filter on one record.
const WORK_MAX: usize = 1 << 20;

/// Work of a look at one header: each of a record is read for it.
const HEADER_WORK: usize = 16;

/// A condition on records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter(Arc<Expression>);

/// Records that are for the worker of a task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selection<'a> {
    topics: &'a [Box<str>],
    filter: Option<&'a Filter>,
    partition: u32,
    slice: Slice,
}

/// A record of a partition.
struct Placed<'a> {
    topic: &'a str,
    partition: u32,
    record: &'a StoredRecord,
}

/// Numbers of records that were passed over, though they are of the task's slice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passed {
    /// Records of finished keys.
    pub ignored: u64,
    /// Records that the filter refuses.
    pub filtered: u64,
    /// Of these, records for which it failed.
    pub failed: u64,
}

impl Filter {
    pub fn compile(source: &str) -> Result<Self, BadExpression> {
        let expression = Expression::compile(source, VARIABLES)?;
        Ok(Self(Arc::new(expression.with_work_max(WORK_MAX))))
    }

    pub fn source(&self) -> &str {
        self.0.source()
    }
}

impl<'a> Selection<'a> {
    pub(crate) fn of(task: TaskId, definition: &'a Definition) -> Self {
        Self {
            topics: &definition.topics,
            filter: definition.filter.as_ref(),
            partition: task.partition,
            slice: task.slice(),
        }
    }

    /// True for a record that is not for the worker.
    pub(crate) async fn passes_over(
        &self,
        mark: &Mark,
        input: usize,
        record: &StoredRecord,
        passed: &mut Passed,
    ) -> bool {
        if !self.slice.has(record.key.as_deref()) {
            return true;
        }
        if mark.is_left(input, record) {
            passed.ignored += 1;
            return true;
        }
        let Some(Filter(filter)) = self.filter else {
            return false;
        };
        // Many records may be passed over in a row.
        tokio::task::consume_budget().await;
        let verdict = filter.is_true(&Placed {
            topic: self.topics.get(input).map_or("", |name| name),
            partition: self.partition,
            record,
        });
        passed.failed += u64::from(verdict.is_err());
        let is_refused = !verdict.unwrap_or(false);
        passed.filtered += u64::from(is_refused);
        is_refused
    }
}

impl Record for Placed<'_> {
    fn variable(&self, variable: Variable) -> Value<'_> {
        let record = self.record;
        match variable {
            Variable::Key => record.key.as_deref().map_or(Value::Null, Value::of_bytes),
            Variable::Topic => Value::Text(Cow::Borrowed(self.topic)),
            Variable::Partition => Value::Int(self.partition.into()),
            Variable::Offset => Value::Int(i64::try_from(record.offset.0).unwrap_or(i64::MAX)),
            Variable::Timestamp => Value::of_millis(record.timestamp),
            Variable::Value
            | Variable::Headers
            | Variable::Exchange
            | Variable::RoutingKey
            | Variable::Priority => Value::Null,
        }
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        let found = self.record.headers.last(name.as_bytes())?;
        Some(found.map_or(Value::Null, Value::of_bytes))
    }

    fn header_work(&self) -> usize {
        self.record.headers.len() * HEADER_WORK
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        let value = self.record.value.as_deref().ok_or(NoJson)?;
        paths.read(std::str::from_utf8(value).map_err(|_| NoJson)?, found)
    }
}
