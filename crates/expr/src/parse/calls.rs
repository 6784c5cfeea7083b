//! Calls: `has`, patterns, and functions.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};

use super::{Operand, Parser, Read, Tree};
use crate::function::Function;
use crate::node::Node;
use crate::token::bad;
use crate::value::Value;

/// Bytes of the compiled patterns of an expression, with their caches.
pub(super) const PATTERN_BYTES_MAX: usize = 256 << 10;
/// Least bytes that a pattern counts for.
const PATTERN_BYTES_MIN: usize = 1 << 10;

impl Parser<'_> {
    /// Reads the argument of `has`: a field.
    pub(super) fn has(&mut self, at: usize) -> Read<Tree> {
        let mut operand = self.primary()?;
        let mut ends_with_name = false;
        loop {
            if self.takes(".") {
                operand = self.selected(operand)?;
                ends_with_name = true;
            } else if self.takes("[") {
                operand = self.indexed(operand)?;
                ends_with_name = false;
            } else {
                break;
            }
        }
        self.expect(")")?;
        let node = match operand {
            Operand::Path(path) if ends_with_name => Node::HasField(self.slot(path)),
            Operand::Tree(Tree {
                node: Node::Header(name),
                ..
            }) if ends_with_name => {
                let name = Node::Constant(Value::Text(Cow::Owned(name.into())));
                Node::HasHeader(Box::new(name))
            }
            _ => return Err(bad(self.source, at, "has takes a field, such as value.x")),
        };
        Ok(Tree { node, levels: 2 })
    }

    /// Reads expressions up to a closing sign; returns them with the most levels of one.
    pub(super) fn list(&mut self, end: &str) -> Read<(Vec<Node>, usize)> {
        let (mut nodes, mut levels) = (Vec::new(), 0);
        while !self.takes(end) {
            if !nodes.is_empty() {
                self.expect(",")?;
                if self.takes(end) {
                    break;
                }
            }
            let tree = self.expression()?;
            levels = levels.max(tree.levels);
            nodes.push(tree.node);
        }
        Ok((nodes, levels))
    }

    /// Reads the arguments of a function, and returns its call.
    pub(super) fn call(&mut self, at: usize, name: &str, first: Option<Tree>) -> Read<Tree> {
        Function::check_name(name).map_err(|why| bad(self.source, at, why))?;
        let is_method = first.is_some();
        let (mut nodes, mut levels) = (Vec::new(), 0);
        if let Some(first) = first {
            levels = first.levels;
            nodes.push(first.node);
        }
        let (arguments, below) = self.list(")")?;
        nodes.extend(arguments);
        levels = levels.max(below);
        if name == "matches" && nodes.len() == 2 {
            return self.matches(at, nodes, levels);
        }
        let function =
            Function::find(name, nodes.len(), is_method).map_err(|why| bad(self.source, at, why))?;
        self.above(Node::Call(function, nodes), levels)
    }

    fn matches(&mut self, at: usize, mut nodes: Vec<Node>, levels: usize) -> Read<Tree> {
        let (Some(pattern), Some(text)) = (nodes.pop(), nodes.pop()) else {
            return Err(bad(self.source, at, "matches takes a text and a pattern"));
        };
        let Node::Constant(Value::Text(pattern)) = pattern else {
            return Err(bad(self.source, at, "the pattern of matches is a constant text"));
        };
        let pattern = self.compiled(&pattern).map_err(|why| {
            if let regex::Error::CompiledTooBig(_) = why {
                let why =
                    format!("compiled, all patterns of an expression have at most {PATTERN_BYTES_MAX} bytes");
                return bad(self.source, at, why);
            }
            let text = why.to_string();
            let line = text.lines().last().unwrap_or_default().to_owned();
            bad(self.source, at, format!("the pattern is wrong: {line}"))
        })?;
        self.above(Node::Matches(Box::new(text), Box::new(pattern)), levels)
    }

    /// Compiles a pattern. It counts for the least size, of doubled ones, that it fits into.
    fn compiled(&mut self, pattern: &str) -> Result<Regex, regex::Error> {
        let mut bytes = PATTERN_BYTES_MIN.min(self.pattern_bytes);
        loop {
            let mut builder = RegexBuilder::new(pattern);
            match builder.size_limit(bytes).dfa_size_limit(bytes).build() {
                Err(regex::Error::CompiledTooBig(_)) if bytes < self.pattern_bytes => {
                    bytes = (bytes * 2).min(self.pattern_bytes);
                }
                built => {
                    self.pattern_bytes -= bytes;
                    return built;
                }
            }
        }
    }
}
