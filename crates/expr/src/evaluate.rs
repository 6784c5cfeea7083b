//! The meaning of a tree for a record.

use std::borrow::Cow;
use std::sync::Arc;

use crate::error::Fault;
use crate::node::{Comparison, Node, Operator};
use crate::paths::{Found, NoJson};
use crate::value::{NoOrder, Value, has_field, items};
use crate::{Expression, Record};

/// Work of a pattern, per byte of text.
const PATTERN_WORK: usize = 8;
/// Bytes of JSON that are read for one piece of work, at each level of a path.
const READ_BYTES: usize = 16;
/// Work of a look into a list or an object, per byte.
const JSON_WORK: usize = 4;

pub(crate) struct Evaluation<'r, R> {
    expression: &'r Expression,
    record: &'r R,
    /// Fields of the value, once one was asked for.
    found: Option<Result<Found<'r>, NoJson>>,
    /// Work that is left, in nodes and bytes that are looked at.
    work: usize,
}

impl<'r, R: Record> Evaluation<'r, R> {
    pub(crate) fn new(expression: &'r Expression, record: &'r R) -> Self {
        Self {
            expression,
            record,
            found: None,
            work: expression.work_max,
        }
    }

    pub(crate) fn with_work(mut self, work: usize) -> Self {
        self.work = work;
        self
    }

    /// Returns the work that is left.
    pub(crate) fn left(&self) -> usize {
        self.work
    }

    fn spend(&mut self, work: usize) -> Result<(), Fault> {
        self.work = self.work.checked_sub(work).ok_or(Fault::Costly)?;
        Ok(())
    }

    fn found(&mut self) -> Result<&Found<'r>, Fault> {
        let (expression, record) = (self.expression, self.record);
        if self.found.is_none() {
            let mut found = Found::with_slots(expression.names.len());
            let read = record.read(&expression.paths, &mut found);
            let bytes = found.bytes;
            self.found = Some(read.map(|()| found));
            self.spend(bytes / READ_BYTES)?;
        }
        match &self.found {
            Some(Ok(found)) => Ok(found),
            Some(Err(NoJson)) | None => Err(Fault::NoJson),
        }
    }

    pub(crate) fn value(&mut self, node: &'r Node) -> Result<Value<'r>, Fault> {
        self.spend(1)?;
        match node {
            Node::Constant(value) => Ok(borrowed(value)),
            Node::Field(slot) => {
                let value = self.found()?.get(*slot).cloned();
                let value = value.ok_or_else(|| Fault::Missing(self.name(*slot)))?;
                if let Value::Text(Cow::Owned(text)) | Value::Json(Cow::Owned(text)) = &value {
                    self.spend(text.len())?;
                }
                Ok(value)
            }
            Node::HasField(slot) => Ok(Value::Bool(self.found()?.get(*slot).is_some())),
            Node::Header(name) => {
                self.spend(self.record.header_work())?;
                let value = self.record.header(name);
                value.ok_or_else(|| Fault::Missing(format!("headers[{name:?}]").into()))
            }
            Node::HasHeader(name) => self.has_header(name),
            Node::Variable(variable) => Ok(self.record.variable(*variable)),
            Node::Not(inner) => Ok(Value::Bool(!self.condition(inner)?)),
            Node::Negative(inner) => negative(&self.value(inner)?),
            Node::All(nodes) => self.junction(nodes, false),
            Node::Any(nodes) => self.junction(nodes, true),
            Node::Choice(nodes) => {
                let [condition, yes, no] = &**nodes;
                let chosen = if self.condition(condition)? { yes } else { no };
                self.value(chosen)
            }
            Node::Compare(comparison, nodes) => self.compare(*comparison, nodes),
            Node::In(nodes) => self.contained(nodes),
            Node::Arithmetic(operator, nodes) => {
                let [one, other] = &**nodes;
                let (one, other) = (self.value(one)?, self.value(other)?);
                self.spend(one.weight().saturating_add(other.weight()))?;
                arithmetic(*operator, one, other)
            }
            Node::List(nodes) => {
                let items: Result<Vec<_>, Fault> = nodes.iter().map(|node| self.value(node)).collect();
                Ok(Value::List(items?))
            }
            Node::Call(function, nodes) => {
                let mut values = [None, None];
                for (value, node) in values.iter_mut().zip(nodes) {
                    let of = self.value(node)?;
                    let each = if matches!(of, Value::Json(_)) {
                        JSON_WORK
                    } else {
                        1
                    };
                    self.spend(of.weight().saturating_mul(each))?;
                    *value = Some(of);
                }
                let [first, second] = values;
                function.call(first.unwrap_or(Value::Null), second)
            }
            Node::Matches(node, pattern) => {
                let value = self.value(node)?;
                self.spend(value.weight().saturating_mul(PATTERN_WORK))?;
                match &value {
                    Value::Text(text) => Ok(Value::Bool(pattern.is_match(text))),
                    other => Err(Fault::Type {
                        of: "matches",
                        left: other.kind(),
                    }),
                }
            }
        }
    }

    fn name(&self, slot: usize) -> Arc<str> {
        let name = self.expression.names.get(slot);
        name.cloned().unwrap_or_else(|| "field".into())
    }

    fn has_header(&mut self, name: &'r Node) -> Result<Value<'r>, Fault> {
        match self.value(name)? {
            Value::Text(name) => {
                self.spend(self.record.header_work())?;
                Ok(Value::Bool(self.record.header(&name).is_some()))
            }
            other => Err(Fault::Types {
                of: "in",
                left: other.kind(),
                right: "headers",
            }),
        }
    }

    fn condition(&mut self, node: &'r Node) -> Result<bool, Fault> {
        match self.value(node)? {
            Value::Bool(it) => Ok(it),
            other => Err(Fault::NoCondition(other.kind())),
        }
    }

    /// Returns `deciding` if one of the nodes has that value, whatever fails among the others.
    fn junction(&mut self, nodes: &'r [Node], deciding: bool) -> Result<Value<'r>, Fault> {
        let mut fault = None;
        for node in nodes {
            match self.condition(node) {
                Ok(it) if it == deciding => return Ok(Value::Bool(deciding)),
                Ok(_) => {}
                Err(Fault::Costly) => return Err(Fault::Costly),
                Err(why) => fault = fault.or(Some(why)),
            }
        }
        fault.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    fn equal(&mut self, one: &Value<'_>, other: &Value<'_>) -> Result<bool, Fault> {
        let work = if matches!(one, Value::Json(_) | Value::List(_)) {
            one.weight()
                .saturating_add(other.weight())
                .saturating_mul(JSON_WORK)
        } else {
            one.weight().min(other.weight())
        };
        self.spend(work)?;
        Ok(one.equals(other))
    }

    fn compare(&mut self, comparison: Comparison, nodes: &'r [Node; 2]) -> Result<Value<'r>, Fault> {
        let [one, other] = nodes;
        let (one, other) = (self.value(one)?, self.value(other)?);
        let holds = match comparison {
            Comparison::Equal => self.equal(&one, &other)?,
            Comparison::NotEqual => !self.equal(&one, &other)?,
            Comparison::Less | Comparison::LessOrEqual | Comparison::Greater | Comparison::GreaterOrEqual => {
                self.spend(one.weight().min(other.weight()))?;
                let order = one.order(&other).map_err(|NoOrder| Fault::Types {
                    of: comparison.name(),
                    left: one.kind(),
                    right: other.kind(),
                })?;
                order.is_some_and(|order| comparison.holds(order))
            }
        };
        Ok(Value::Bool(holds))
    }

    fn contained(&mut self, nodes: &'r [Node; 2]) -> Result<Value<'r>, Fault> {
        let [wanted, whole] = nodes;
        let wanted = self.value(wanted)?;
        if let Node::List(list) = whole {
            // Without a list in memory.
            let mut is_in = false;
            for node in list {
                let item = self.value(node)?;
                is_in |= self.equal(&wanted, &item)?;
            }
            return Ok(Value::Bool(is_in));
        }
        let whole = self.value(whole)?;
        self.spend(whole.weight().saturating_mul(JSON_WORK))?;
        if let Some(items) = items(&whole) {
            let mut is_in = false;
            for item in &items {
                is_in |= self.equal(&wanted, item)?;
            }
            return Ok(Value::Bool(is_in));
        }
        let found = match (&wanted, &whole) {
            (Value::Text(name), Value::Json(_)) => has_field(&whole, name),
            _ => None,
        };
        match found {
            Some((is_there, _)) => Ok(Value::Bool(is_there)),
            None => Err(Fault::Types {
                of: "in",
                left: wanted.kind(),
                right: whole.kind(),
            }),
        }
    }
}

fn borrowed<'r>(constant: &'r Value<'static>) -> Value<'r> {
    match constant {
        Value::Text(text) => Value::Text(Cow::Borrowed(text)),
        Value::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
        other => other.clone(),
    }
}

fn negative(value: &Value<'_>) -> Result<Value<'static>, Fault> {
    match value {
        Value::Int(number) => number.checked_neg().map(Value::Int).ok_or(Fault::Overflow),
        Value::Double(number) => Ok(Value::Double(-number)),
        other => Err(Fault::Type {
            of: "-",
            left: other.kind(),
        }),
    }
}

fn arithmetic<'r>(operator: Operator, one: Value<'r>, other: Value<'r>) -> Result<Value<'r>, Fault> {
    let refused = |one: &Value<'_>, other: &Value<'_>| Fault::Types {
        of: operator.name(),
        left: one.kind(),
        right: other.kind(),
    };
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => whole(operator, one, other).map(Value::Int),
        (Value::Double(one), Value::Double(other)) => Ok(Value::Double(match operator {
            Operator::Plus => one + other,
            Operator::Minus => one - other,
            Operator::Times => one * other,
            Operator::Over => one / other,
            Operator::Modulo => return Err(refused(&Value::Double(one), &Value::Double(other))),
        })),
        (Value::Text(one), Value::Text(other)) if operator == Operator::Plus => {
            Ok(Value::Text(Cow::Owned(one.into_owned() + &other)))
        }
        (Value::Time(time), Value::Duration(duration)) if operator == Operator::Plus => time
            .checked_add(duration)
            .map(Value::Time)
            .map_err(|_| Fault::Overflow),
        (Value::Duration(duration), Value::Time(time)) if operator == Operator::Plus => time
            .checked_add(duration)
            .map(Value::Time)
            .map_err(|_| Fault::Overflow),
        (Value::Time(time), Value::Duration(duration)) if operator == Operator::Minus => time
            .checked_sub(duration)
            .map(Value::Time)
            .map_err(|_| Fault::Overflow),
        (Value::Time(one), Value::Time(other)) if operator == Operator::Minus => {
            Ok(Value::Duration(one.duration_since(other)))
        }
        (Value::Duration(one), Value::Duration(other)) => {
            let result = match operator {
                Operator::Plus => one.checked_add(other),
                Operator::Minus => one.checked_sub(other),
                Operator::Times | Operator::Over | Operator::Modulo => {
                    return Err(refused(&Value::Duration(one), &Value::Duration(other)));
                }
            };
            result.map(Value::Duration).ok_or(Fault::Overflow)
        }
        (one, other) => Err(refused(&one, &other)),
    }
}

fn whole(operator: Operator, one: i64, other: i64) -> Result<i64, Fault> {
    if other == 0 && matches!(operator, Operator::Over | Operator::Modulo) {
        return Err(Fault::Zero);
    }
    let result = match operator {
        Operator::Plus => one.checked_add(other),
        Operator::Minus => one.checked_sub(other),
        Operator::Times => one.checked_mul(other),
        Operator::Over => one.checked_div(other),
        Operator::Modulo => one.checked_rem(other),
    };
    result.ok_or(Fault::Overflow)
}
