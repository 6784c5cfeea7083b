//! From tokens to a tree. In the order in which they bind, the loosest first:
//!
//! ```text
//! expression  any [ "?" any ":" expression ]
//! any         all { "||" all }
//! all         relation { "&&" relation }
//! relation    sum { ( "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" ) sum }
//! sum         product { ( "+" | "-" ) product }
//! product     unary { ( "*" | "/" | "%" ) unary }
//! unary       { "!" } member | { "-" } member
//! member      primary { "." name [ arguments ] | "[" constant "]" }
//! primary     name [ arguments ] | "(" expression ")" | "[" list "]" | constant
//! ```

mod calls;

use std::borrow::Cow;

use crate::error::BadExpression;
use crate::node::{Comparison, Node, Operator};
use crate::paths::Segment;
use crate::token::{Token, bad, tokens};
use crate::value::Value;
use crate::{SOURCE_BYTES_MAX, Variable};

/// Levels of a tree, and of parentheses.
const LEVELS_MAX: usize = 64;
/// Steps of a path.
const PATH_MAX: usize = 32;

pub(crate) struct Parsed {
    pub(crate) root: Node,
    /// Paths into the value, by slot.
    pub(crate) slots: Vec<Vec<Segment>>,
}

pub(crate) fn parse(source: &str, variables: &[Variable]) -> Result<Parsed, BadExpression> {
    if source.len() > SOURCE_BYTES_MAX {
        let why = format!("an expression has at most {SOURCE_BYTES_MAX} bytes");
        return Err(bad(source, 0, why));
    }
    let mut parser = Parser {
        source,
        tokens: tokens(source)?,
        at: 0,
        variables,
        slots: Vec::new(),
        level: 0,
        pattern_bytes: calls::PATTERN_BYTES_MAX,
    };
    let tree = parser.expression()?;
    if *parser.peek() != Token::End {
        return Err(parser.refused("an operator or the end was expected"));
    }
    Ok(Parsed {
        root: tree.node,
        slots: parser.slots,
    })
}

struct Tree {
    node: Node,
    /// Levels, this one included.
    levels: usize,
}

/// The beginning of a chain of dots and brackets.
enum Operand {
    Tree(Tree),
    Path(Vec<Segment>),
    Headers,
}

struct Parser<'s> {
    source: &'s str,
    tokens: Vec<(usize, Token)>,
    at: usize,
    variables: &'s [Variable],
    slots: Vec<Vec<Segment>>,
    level: usize,
    /// Bytes that are left for compiled patterns.
    pattern_bytes: usize,
}

type Read<T> = Result<T, BadExpression>;

impl Parser<'_> {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(_, token)| token)
    }

    fn place(&self) -> usize {
        self.tokens
            .get(self.at)
            .map_or(self.source.len(), |(place, _)| *place)
    }

    fn refused(&self, why: impl Into<String>) -> BadExpression {
        bad(self.source, self.place(), why)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_it = matches!(self.peek(), Token::Sign(found) if *found == sign);
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, sign: &str) -> Read<()> {
        if self.takes(sign) {
            return Ok(());
        }
        Err(self.refused(format!("{sign} was expected")))
    }

    /// Returns a tree above others.
    fn above(&self, node: Node, below: usize) -> Read<Tree> {
        let levels = below + 1;
        if levels > LEVELS_MAX {
            return Err(self.refused(format!("an expression has at most {LEVELS_MAX} levels")));
        }
        Ok(Tree { node, levels })
    }

    fn expression(&mut self) -> Read<Tree> {
        self.level += 1;
        if self.level > LEVELS_MAX {
            return Err(self.refused(format!("an expression has at most {LEVELS_MAX} levels")));
        }
        let condition = self.junction("||")?;
        let tree = if self.takes("?") {
            let yes = self.junction("||")?;
            self.expect(":")?;
            let no = self.expression()?;
            let below = condition.levels.max(yes.levels).max(no.levels);
            self.above(Node::Choice(Box::new([condition.node, yes.node, no.node])), below)?
        } else {
            condition
        };
        self.level -= 1;
        Ok(tree)
    }

    /// Reads operands of `||`, each of which is operands of `&&`; or those.
    fn junction(&mut self, sign: &str) -> Read<Tree> {
        let operand = |parser: &mut Self| match sign {
            "||" => parser.junction("&&"),
            _ => parser.relation(),
        };
        let first = operand(self)?;
        let mut levels = first.levels;
        let mut nodes = vec![first.node];
        while self.takes(sign) {
            let next = operand(self)?;
            levels = levels.max(next.levels);
            nodes.push(next.node);
        }
        if nodes.len() > 1 {
            let node = if sign == "||" {
                Node::Any(nodes)
            } else {
                Node::All(nodes)
            };
            return self.above(node, levels);
        }
        match nodes.pop() {
            Some(node) => Ok(Tree { node, levels }),
            None => Err(self.refused("a value was expected")),
        }
    }

    fn relation(&mut self) -> Read<Tree> {
        let mut tree = self.sum()?;
        loop {
            if matches!(self.peek(), Token::Name(name) if name == "in") {
                self.at += 1;
                tree = self.contained(tree)?;
                continue;
            }
            let known = [
                Comparison::Equal,
                Comparison::NotEqual,
                Comparison::LessOrEqual,
                Comparison::GreaterOrEqual,
                Comparison::Less,
                Comparison::Greater,
            ];
            let Some(comparison) = known.into_iter().find(|known| self.takes(known.name())) else {
                return Ok(tree);
            };
            let other = self.sum()?;
            let below = tree.levels.max(other.levels);
            let node = Node::Compare(comparison, Box::new([tree.node, other.node]));
            tree = self.above(node, below)?;
        }
    }

    /// Reads the right side of `in`.
    fn contained(&mut self, tree: Tree) -> Read<Tree> {
        if matches!(self.peek(), Token::Name(name) if name == "headers") && !self.is_followed_by_member() {
            self.variable("headers")?;
            self.at += 1;
            return self.above(Node::HasHeader(Box::new(tree.node)), tree.levels);
        }
        let whole = self.sum()?;
        let below = tree.levels.max(whole.levels);
        self.above(Node::In(Box::new([tree.node, whole.node])), below)
    }

    fn is_followed_by_member(&self) -> bool {
        let behind = self.tokens.get(self.at + 1).map(|(_, token)| token);
        matches!(behind, Some(Token::Sign("." | "[")))
    }

    fn sum(&mut self) -> Read<Tree> {
        self.arithmetic(&[Operator::Plus, Operator::Minus], Self::product)
    }

    fn product(&mut self) -> Read<Tree> {
        let operators = [Operator::Times, Operator::Over, Operator::Modulo];
        self.arithmetic(&operators, Self::unary)
    }

    fn arithmetic(
        &mut self,
        operators: &[Operator],
        operand: impl Fn(&mut Self) -> Read<Tree>,
    ) -> Read<Tree> {
        let mut tree = operand(self)?;
        while let Some(operator) = operators.iter().find(|known| self.takes(known.name())) {
            let other = operand(self)?;
            let below = tree.levels.max(other.levels);
            let node = Node::Arithmetic(*operator, Box::new([tree.node, other.node]));
            tree = self.above(node, below)?;
        }
        Ok(tree)
    }

    fn unary(&mut self) -> Read<Tree> {
        let (mut nots, mut minuses) = (0, 0);
        while self.takes("!") {
            nots += 1;
        }
        while nots == 0 && self.takes("-") {
            minuses += 1;
        }
        if minuses > 0 && *self.peek() == Token::IntMin {
            self.at += 1;
            minuses -= 1;
            let constant = Node::Constant(Value::Int(i64::MIN));
            return self.repeated(
                Tree {
                    node: constant,
                    levels: 1,
                },
                minuses,
                Node::Negative,
            );
        }
        let tree = self.member()?;
        let tree = self.repeated(tree, nots, Node::Not)?;
        self.repeated(tree, minuses, Node::Negative)
    }

    fn repeated(&self, mut tree: Tree, count: usize, node: impl Fn(Box<Node>) -> Node) -> Read<Tree> {
        for _ in 0..count {
            tree = self.above(node(Box::new(tree.node)), tree.levels)?;
        }
        Ok(tree)
    }

    fn member(&mut self) -> Read<Tree> {
        let mut operand = self.primary()?;
        loop {
            if self.takes(".") {
                operand = self.selected(operand)?;
            } else if self.takes("[") {
                operand = self.indexed(operand)?;
            } else {
                return self.finished(operand);
            }
        }
    }

    /// Reads a name behind a dot.
    fn selected(&mut self, operand: Operand) -> Read<Operand> {
        let at = self.place();
        let Token::Name(name) = self.next() else {
            return Err(bad(self.source, at, "a name was expected behind the dot"));
        };
        if self.takes("(") {
            let first = self.finished(operand)?;
            let call = self.call(at, &name, Some(first))?;
            return Ok(Operand::Tree(call));
        }
        self.part(operand, Segment::Field(name.into()), at)
    }

    fn indexed(&mut self, operand: Operand) -> Read<Operand> {
        let at = self.place();
        let segment = match self.next() {
            Token::Text(name) => Segment::Field(name.into()),
            Token::Int(place) => match usize::try_from(place) {
                Ok(place) => Segment::Item(place),
                Err(_) => return Err(bad(self.source, at, "the place in a list is from 0")),
            },
            _ => {
                let why = "in brackets stands a whole number or a text";
                return Err(bad(self.source, at, why));
            }
        };
        self.expect("]")?;
        self.part(operand, segment, at)
    }

    /// Returns a part of a value.
    fn part(&mut self, operand: Operand, segment: Segment, at: usize) -> Read<Operand> {
        match (operand, segment) {
            (Operand::Path(mut path), segment) => {
                path.push(segment);
                if path.len() > PATH_MAX {
                    return Err(bad(
                        self.source,
                        at,
                        format!("a path has at most {PATH_MAX} steps"),
                    ));
                }
                Ok(Operand::Path(path))
            }
            (Operand::Headers, Segment::Field(name)) => Ok(Operand::Tree(Tree {
                node: Node::Header(name),
                levels: 1,
            })),
            (Operand::Headers, Segment::Item(_)) => Err(bad(self.source, at, "headers go by name")),
            (Operand::Tree(_), _) => Err(bad(self.source, at, "only value and headers have fields")),
        }
    }

    fn finished(&mut self, operand: Operand) -> Read<Tree> {
        let node = match operand {
            Operand::Tree(tree) => return Ok(tree),
            Operand::Path(path) => Node::Field(self.slot(path)),
            Operand::Headers => return Err(self.refused("a header's name was expected: headers.NAME")),
        };
        Ok(Tree { node, levels: 1 })
    }

    fn slot(&mut self, path: Vec<Segment>) -> usize {
        if let Some(slot) = self.slots.iter().position(|known| *known == path) {
            return slot;
        }
        self.slots.push(path);
        self.slots.len() - 1
    }

    fn primary(&mut self) -> Read<Operand> {
        let at = self.place();
        let constant = |value| {
            Ok(Operand::Tree(Tree {
                node: Node::Constant(value),
                levels: 1,
            }))
        };
        match self.next() {
            Token::Int(number) => constant(Value::Int(number)),
            Token::Double(number) => constant(Value::Double(number)),
            Token::Text(text) => constant(Value::Text(Cow::Owned(text))),
            Token::Bytes(bytes) => constant(Value::Bytes(Cow::Owned(bytes))),
            Token::IntMin => Err(bad(self.source, at, "whole numbers have 64 bits")),
            Token::Sign("(") => {
                let tree = self.expression()?;
                self.expect(")")?;
                Ok(Operand::Tree(tree))
            }
            Token::Sign("[") => {
                let (nodes, levels) = self.list("]")?;
                self.above(Node::List(nodes), levels).map(Operand::Tree)
            }
            Token::Name(name) => match name.as_str() {
                "true" => constant(Value::Bool(true)),
                "false" => constant(Value::Bool(false)),
                "null" => constant(Value::Null),
                "has" if self.takes("(") => self.has(at).map(Operand::Tree),
                _ if self.takes("(") => self.call(at, &name, None).map(Operand::Tree),
                _ => {
                    self.at -= 1;
                    let variable = self.variable(&name)?;
                    self.at += 1;
                    Ok(match variable {
                        Variable::Value => Operand::Path(Vec::new()),
                        Variable::Headers => Operand::Headers,
                        other => Operand::Tree(Tree {
                            node: Node::Variable(other),
                            levels: 1,
                        }),
                    })
                }
            },
            Token::Sign(_) | Token::End => Err(bad(self.source, at, "a value was expected")),
        }
    }

    /// Returns a variable that may be used here.
    fn variable(&self, name: &str) -> Read<Variable> {
        let known = Variable::of(name).filter(|variable| self.variables.contains(variable));
        known.ok_or_else(|| {
            let names = Variable::ALL
                .iter()
                .filter(|(_, known)| self.variables.contains(known));
            let names: Vec<&str> = names.map(|(name, _)| *name).collect();
            self.refused(format!("there is no {name}; there are {}", names.join(", ")))
        })
    }
}
