//! An expression and a record, with a line end between: refused, or evaluated within its bound, twice to the
//! same end.
#![no_main]

use std::borrow::Cow;

use libfuzzer_sys::fuzz_target;
use stafett_expr::{Expression, Fault, Found, NoJson, Paths, Record, Value, Variable};

const WORK_MAX: usize = 1 << 20;
const VARIABLES: &[Variable] = &[
    Variable::Value,
    Variable::Headers,
    Variable::Key,
    Variable::Topic,
    Variable::Partition,
    Variable::Offset,
    Variable::Timestamp,
    Variable::Exchange,
    Variable::RoutingKey,
    Variable::Priority,
];

struct Given<'a>(&'a [u8]);

impl Record for Given<'_> {
    fn variable(&self, variable: Variable) -> Value<'_> {
        match variable {
            Variable::Key => Value::of_bytes(self.0),
            Variable::Topic | Variable::Exchange | Variable::RoutingKey => Value::Text(Cow::Borrowed("a.b")),
            Variable::Partition | Variable::Offset | Variable::Priority => Value::Int(i64::MAX),
            _ => Value::Null,
        }
    }

    fn header(&self, name: &str) -> Option<Value<'_>> {
        (name == "a").then(|| Value::of_bytes(self.0))
    }

    fn read<'r>(&'r self, paths: &Paths, found: &mut Found<'r>) -> Result<(), NoJson> {
        paths.read(std::str::from_utf8(self.0).map_err(|_| NoJson)?, found)
    }
}

fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (source, record) = input.split_at(end);
    let Ok(source) = std::str::from_utf8(source) else {
        return;
    };
    let Ok(expression) = Expression::compile(source, VARIABLES) else {
        return;
    };
    let (expression, record) = (expression.with_work_max(WORK_MAX), Given(record));
    let value = expression.evaluate(&record);
    if let Ok(value) = &value
        && let Some(json) = value.to_json()
    {
        assert!(serde_json::from_str::<&serde_json::value::RawValue>(&json).is_ok(), "{json}");
    }
    let verdict = expression.is_true(&record);
    let mut left = WORK_MAX;
    assert_eq!(expression.is_true_within(&record, &mut left), verdict);
    assert!(left < WORK_MAX, "each evaluation is some work");
    let spent = WORK_MAX - left;
    if !matches!(verdict, Err(Fault::Costly)) {
        assert_eq!(expression.is_true_within(&record, &mut spent.clone()), verdict, "just enough");
    }
});
