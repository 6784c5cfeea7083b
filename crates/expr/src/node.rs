//! The tree of an expression.

use std::cmp::Ordering;

use regex::Regex;

use crate::Variable;
use crate::function::Function;
use crate::value::Value;

#[derive(Debug, Clone)]
pub(crate) enum Node {
    Constant(Value<'static>),
    /// A field of the value, by slot.
    Field(usize),
    HasField(usize),
    Header(Box<str>),
    HasHeader(Box<Node>),
    Variable(Variable),
    Not(Box<Node>),
    Negative(Box<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
    /// Condition, and the values if it is true or false.
    Choice(Box<[Node; 3]>),
    Compare(Comparison, Box<[Node; 2]>),
    In(Box<[Node; 2]>),
    Arithmetic(Operator, Box<[Node; 2]>),
    List(Vec<Node>),
    Call(Function, Vec<Node>),
    Matches(Box<Node>, Box<Regex>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    pub(crate) fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Plus,
    Minus,
    Times,
    Over,
    Modulo,
}

impl Operator {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plus => "+",
            Self::Minus => "-",
            Self::Times => "*",
            Self::Over => "/",
            Self::Modulo => "%",
        }
    }
}
