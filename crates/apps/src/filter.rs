//! Records that are for the worker of a task, and the filter of an app: a condition on records.

use std::sync::Arc;

use stafett_expr::{BadExpression, Expression, PlacedRecord};
use stafett_model::StoredRecord;

use crate::definition::Definition;
use crate::mark::Mark;
use crate::task::{Slice, TaskId};

/// Work of the filter on one record.
const WORK_MAX: usize = 1 << 20;

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
        let expression = Expression::compile(source, PlacedRecord::VARIABLES)?;
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
        let verdict = filter.is_true(&PlacedRecord {
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
