//! Rust for one field: its type, its default, how it is read and how it is written.

use anyhow::{Context, Result, bail};

use crate::plan::{FieldPlan, Type};
use crate::schema::Versions;

/// Whether something holds in the version at hand, given the versions there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cond {
    Always,
    Never,
    If(String),
}

impl Cond {
    pub fn new(holds: Versions, of: Versions) -> Self {
        let holds = holds.and(of);
        if holds.is_empty() {
            return Self::Never;
        }
        match (holds.lo > of.lo, holds.hi < of.hi) {
            (false, false) => Self::Always,
            (true, false) => Self::If(format!("v >= {}", holds.lo)),
            (false, true) => Self::If(format!("v <= {}", holds.hi)),
            (true, true) if holds.lo == holds.hi => Self::If(format!("v == {}", holds.lo)),
            (true, true) => Self::If(format!("({}..={}).contains(&v)", holds.lo, holds.hi)),
        }
    }

    pub fn expr(&self) -> String {
        match self {
            Self::Always => "true".to_owned(),
            Self::Never => "false".to_owned(),
            Self::If(expr) => expr.clone(),
        }
    }

    pub fn negated(&self) -> String {
        match self {
            Self::Always => "false".to_owned(),
            Self::Never => "true".to_owned(),
            Self::If(expr) => match expr.split_once(" >= ").or_else(|| expr.split_once(" <= ")) {
                Some((left, right)) if expr.contains(">=") => format!("{left} < {right}"),
                Some((left, right)) => format!("{left} > {right}"),
                None => format!("!({expr})"),
            },
        }
    }
}

fn bare(ty: &Type) -> String {
    match ty {
        Type::Bool => "bool".to_owned(),
        Type::I8 => "i8".to_owned(),
        Type::I16 => "i16".to_owned(),
        Type::U16 => "u16".to_owned(),
        Type::I32 => "i32".to_owned(),
        Type::I64 => "i64".to_owned(),
        Type::F64 => "f64".to_owned(),
        Type::Uuid => "Uuid".to_owned(),
        Type::Str => "Str".to_owned(),
        Type::Bytes => "Bytes".to_owned(),
        Type::Records => "Records".to_owned(),
        Type::Struct(name) => name.clone(),
        Type::Array(element) => format!("Vec<{}>", bare(element)),
    }
}

/// How methods of the decoder and the encoder are called for a type.
fn method(ty: &Type) -> &'static str {
    match ty {
        Type::Bool => "bool",
        Type::I8 => "i8",
        Type::I16 => "i16",
        Type::U16 => "u16",
        Type::I32 => "i32",
        Type::I64 => "i64",
        Type::F64 => "f64",
        Type::Uuid => "uuid",
        Type::Str => "string",
        Type::Bytes => "bytes",
        Type::Records => "records",
        Type::Struct(_) => "struct",
        Type::Array(element) if **element == Type::Str => "strings",
        Type::Array(_) => "array",
    }
}

fn integer(number: i64) -> String {
    match number {
        i64::MAX => "i64::MAX".to_owned(),
        _ if number == i64::from(i32::MIN) => "i32::MIN".to_owned(),
        _ if number == i64::from(i32::MAX) => "i32::MAX".to_owned(),
        _ => number.to_string(),
    }
}

impl FieldPlan {
    pub fn is_optional(&self) -> bool {
        !self.nullable.is_empty()
    }

    pub fn rust_type(&self) -> String {
        if self.is_optional() {
            format!("Option<{}>", bare(&self.ty))
        } else {
            bare(&self.ty)
        }
    }

    fn is_null_by_default(&self) -> bool {
        self.is_optional() && self.default.as_deref() == Some("null")
    }

    fn number(&self) -> Result<i64> {
        let text = self.default.as_deref().unwrap_or("0");
        let number = match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.with_context(|| format!("default {text}"))
    }

    fn text(&self) -> &str {
        self.default.as_deref().unwrap_or("")
    }

    /// The default value as an expression.
    pub fn default_expr(&self) -> Result<String> {
        if self.is_null_by_default() {
            return Ok("None".to_owned());
        }
        let value = match &self.ty {
            Type::Bool => (self.default.as_deref() == Some("true")).to_string(),
            Type::I8 | Type::I16 | Type::U16 | Type::I32 | Type::I64 => integer(self.number()?),
            Type::F64 => format!("{}.0", self.number()?),
            Type::Str if !self.text().is_empty() => format!("Str::from_static({:?})", self.text()),
            Type::Struct(name) => format!("{name}::default()"),
            _ if !self.text().is_empty() => bail!("default {:?}", self.text()),
            Type::Uuid => "Uuid::ZERO".to_owned(),
            Type::Str => "Str::default()".to_owned(),
            Type::Bytes => "Bytes::new()".to_owned(),
            Type::Records => "Records::new()".to_owned(),
            Type::Array(_) => "Vec::new()".to_owned(),
        };
        Ok(if self.is_optional() {
            format!("Some({value})")
        } else {
            value
        })
    }

    /// Whether the type's own default is the field's.
    pub fn has_plain_default(&self) -> bool {
        match self.default.as_deref() {
            None => !self.is_optional(),
            Some("null") => self.is_optional(),
            Some("" | "false" | "0") => !self.is_optional(),
            Some(_) => false,
        }
    }

    /// An expression that is true if the field is not at its default.
    pub fn is_set_expr(&self) -> Result<String> {
        let it = format!("self.{}", self.name);
        if self.is_null_by_default() {
            return Ok(format!("{it}.is_some()"));
        }
        Ok(match &self.ty {
            Type::Bool if self.default.as_deref() == Some("true") => format!("!{it}"),
            Type::Bool => it,
            Type::Uuid => format!("!{it}.is_zero()"),
            Type::Str | Type::Bytes | Type::Records | Type::Array(_) if self.text().is_empty() => {
                if self.is_optional() {
                    format!("{it}.as_ref().is_none_or(|it| !it.is_empty())")
                } else {
                    format!("!{it}.is_empty()")
                }
            }
            _ => format!("{it} != {}", self.default_expr()?),
        })
    }

    /// An expression that reads the field. `flexible` and `nullable` are conditions as expressions.
    pub fn decode_expr(&self, flexible: &str, nullable: &str) -> String {
        let method = method(&self.ty);
        match (&self.ty, self.is_optional()) {
            (Type::Struct(_), true) => format!("d.opt_struct(v, {nullable})?"),
            (Type::Struct(name), false) => format!("{name}::decode(d, v)?"),
            (Type::Array(element), true) if **element != Type::Str => {
                format!("d.opt_array(v, {flexible}, {nullable})?")
            }
            (Type::Array(element), false) if **element != Type::Str => format!("d.array(v, {flexible})?"),
            (Type::Str | Type::Bytes | Type::Records | Type::Array(_), true) => {
                format!("d.opt_{method}({flexible}, {nullable})?")
            }
            (Type::Str | Type::Bytes | Type::Records | Type::Array(_), false) => {
                format!("d.{method}({flexible})?")
            }
            _ => format!("d.{method}()?"),
        }
    }

    /// An expression that writes the field.
    pub fn encode_expr(&self, flexible: &str) -> String {
        let it = format!("self.{}", self.name);
        let method = method(&self.ty);
        match (&self.ty, self.is_optional()) {
            (Type::Struct(_), true) => format!("e.opt_struct({it}.as_ref(), v)"),
            (Type::Struct(_), false) => format!("{it}.encode(e, v)"),
            (Type::Array(element), true) if **element != Type::Str => {
                format!("e.opt_array({it}.as_ref(), v, {flexible})")
            }
            (Type::Array(element), false) if **element != Type::Str => {
                format!("e.array(&{it}, v, {flexible})")
            }
            (Type::Str | Type::Bytes | Type::Records | Type::Array(_), true) => {
                format!("e.opt_{method}({it}.as_ref(), {flexible})")
            }
            (Type::Str | Type::Bytes | Type::Records | Type::Array(_), false) => {
                format!("e.{method}(&{it}, {flexible})")
            }
            _ => format!("e.{method}({it})"),
        }
    }
}
