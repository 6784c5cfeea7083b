//! Rust for one module: its structs, and how each is read and written in straight lines.

use std::fmt::Write;

use anyhow::{Context, Result};

use crate::emit_fields::Cond;
use crate::fetch::KAFKA_VERSION;
use crate::plan::{FieldPlan, File, MessagePlan, StructPlan, Type};
use crate::schema::Versions;

pub fn module(file: &File) -> Result<String> {
    let mut out = String::new();
    let title = file
        .api
        .as_ref()
        .map_or(file.module.as_str(), |api| api.name.as_str());
    writeln!(
        out,
        "//! `{title}`, generated from Kafka {KAFKA_VERSION} by `tools/kafka-codegen`: do not edit.\n"
    )?;
    writeln!(out, "use super::prelude::*;\n")?;
    for message in &file.messages {
        for plan in &message.structs {
            structure(&mut out, message, plan).with_context(|| plan.name.clone())?;
        }
        marks(&mut out, file, message)?;
    }
    Ok(out)
}

/// The traits that only whole messages have.
fn marks(out: &mut String, file: &File, message: &MessagePlan) -> Result<()> {
    let name = &message.name;
    let Versions { lo, hi } = message.versions;
    let flexible = message.flexible.and(message.versions);
    let flexible_from = if flexible.is_empty() {
        "i16::MAX".to_owned()
    } else {
        flexible.lo.to_string()
    };
    writeln!(
        out,
        "impl Message for {name} {{
            const NAME: &'static str = \"{name}\";
            const VERSIONS: VersionRange = VersionRange::new({lo}, {hi});
            const FLEXIBLE_FROM: i16 = {flexible_from};
        }}\n"
    )?;
    if let Some(api) = file.api.as_ref().filter(|_| message.is_request) {
        let api = &api.name;
        writeln!(
            out,
            "impl Request for {name} {{
                const KEY: ApiKey = ApiKey::{api};
                type Response = {api}Response;
            }}\n"
        )?;
    }
    Ok(())
}

fn structure(out: &mut String, message: &MessagePlan, plan: &StructPlan) -> Result<()> {
    let plain = plan.fields.iter().all(FieldPlan::has_plain_default);
    let default = if plain { ", Default" } else { "" };
    writeln!(
        out,
        "#[derive(Debug, Clone, PartialEq{default})]\npub struct {} {{",
        plan.name
    )?;
    for field in &plan.fields {
        if field.present != plan.versions {
            let hi = if field.present.hi == message.versions.hi {
                i16::MAX
            } else {
                field.present.hi
            };
            writeln!(out, "/// In versions {}.", Versions { hi, ..field.present })?;
        }
        writeln!(out, "pub {}: {},", field.name, field.rust_type())?;
    }
    writeln!(out, "}}\n")?;
    if !plain {
        writeln!(
            out,
            "impl Default for {} {{ fn default() -> Self {{ Self {{",
            plan.name
        )?;
        for field in &plan.fields {
            writeln!(out, "{}: {},", field.name, field.default_expr()?)?;
        }
        writeln!(out, "}} }} }}\n")?;
    }
    let decode = decode(message, plan)?;
    let encode = encode(message, plan)?;
    writeln!(
        out,
        "impl Wire for {} {{
            const BYTES_MIN: usize = {};

            fn decode({}: &mut Decoder, {}: i16) -> Result<Self, DecodeError> {{ {decode} }}

            fn encode(&self, {}: &mut Encoder, {}: i16) {{ {encode} }}
        }}\n",
        plan.name,
        bytes_min(message, plan),
        param(&decode, "d"),
        param(&decode, "v"),
        param(&encode, "e"),
        param(&encode, "v"),
    )?;
    Ok(())
}

fn decode(message: &MessagePlan, plan: &StructPlan) -> Result<String> {
    let flexible = Cond::new(message.flexible, plan.versions);
    let mut body = String::new();
    for field in &plan.fields {
        let default = field.default_expr()?;
        let value = match Cond::new(field.present, plan.versions) {
            _ if field.tag.is_some() => default,
            Cond::Always => field.decode_expr(flag(&flexible), &nullable(field)),
            Cond::If(when) => {
                format!(
                    "if {when} {{ {} }} else {{ {default} }}",
                    field.decode_expr(flag(&flexible), &nullable(field))
                )
            }
            Cond::Never => unreachable!("absent fields are not planned"),
        };
        writeln!(body, "{}: {value},", field.name)?;
    }
    let tags = decode_tags(message, plan);
    let has_tags = plan.fields.iter().any(|field| field.tag.is_some());
    let tags = match &flexible {
        Cond::Always => tags,
        Cond::Never => String::new(),
        Cond::If(_) => format!("if f {{ {tags} }}"),
    };
    let mutable = if has_tags { "mut " } else { "" };
    let built = if tags.is_empty() {
        format!("Ok(Self {{ {body} }})")
    } else {
        format!("let {mutable}m = Self {{ {body} }}; {tags} Ok(m)")
    };
    Ok(with_flag(&flexible, built))
}

fn decode_tags(message: &MessagePlan, plan: &StructPlan) -> String {
    let mut arms = String::new();
    for field in plan.fields.iter() {
        let Some(tag) = field.tag else { continue };
        let guard = match Cond::new(field.present, plan.versions.and(message.flexible)) {
            Cond::If(when) => format!(" if {when}"),
            _ => String::new(),
        };
        let value = field.decode_expr("true", &nullable(field));
        arms += &format!("{tag}{guard} => m.{} = {value},", field.name);
    }
    if arms.is_empty() {
        return "d.no_tags()?;".to_owned();
    }
    format!("d.tags(&mut |d, tag| {{ match tag {{ {arms} _ => return Ok(false) }} Ok(true) }})?;")
}

fn encode(message: &MessagePlan, plan: &StructPlan) -> Result<String> {
    let flexible = Cond::new(message.flexible, plan.versions);
    let mut body = String::new();
    for field in &plan.fields {
        let present = Cond::new(field.present, plan.versions);
        if field.tag.is_none() {
            let write = format!("{}{};", null_check(field), field.encode_expr(flag(&flexible)));
            body += &match (&present, field.ignorable) {
                (Cond::Always, _) => write,
                (when, true) => format!("if {} {{ {write} }}", when.expr()),
                (when, false) => format!(
                    "if {} {{ {write} }} else {{ {} }}",
                    when.expr(),
                    refusal(field, "")?
                ),
            };
        } else if present != Cond::Always && !field.ignorable {
            body += &refusal(field, &format!("{} && ", present.negated()))?;
        }
    }
    let tags = encode_tags(message, plan)?;
    body += &match &flexible {
        Cond::Always => tags,
        Cond::Never => String::new(),
        Cond::If(_) => format!("if f {{ {tags} }}"),
    };
    Ok(with_flag(&flexible, body))
}

fn refusal(field: &FieldPlan, absent: &str) -> Result<String> {
    Ok(format!(
        "e.unsupported({:?}, v, {absent}{});",
        field.name,
        field.is_set_expr()?
    ))
}

fn null_check(field: &FieldPlan) -> String {
    if !field.is_optional() {
        return String::new();
    }
    match Cond::new(field.nullable, field.present) {
        Cond::Always => String::new(),
        when => format!(
            "e.not_null({:?}, v, {} && self.{}.is_none());",
            field.name,
            when.negated(),
            field.name
        ),
    }
}

fn encode_tags(message: &MessagePlan, plan: &StructPlan) -> Result<String> {
    let mut tagged: Vec<(u32, &FieldPlan)> = plan
        .fields
        .iter()
        .filter_map(|field| Some((field.tag?, field)))
        .collect();
    tagged.sort_by_key(|(tag, _)| *tag);
    let mut sets = String::new();
    let mut names = Vec::new();
    let mut writes = String::new();
    for (tag, field) in tagged {
        let when = match Cond::new(field.present, plan.versions.and(message.flexible)) {
            Cond::If(when) => format!("{when} && "),
            _ => String::new(),
        };
        writeln!(sets, "let has_{} = {when}{};", field.name, field.is_set_expr()?)?;
        writeln!(
            writes,
            "e.tag({tag}, has_{}, |e| {{ {}; }});",
            field.name,
            field.encode_expr("true")
        )?;
        names.push(format!("has_{}", field.name));
    }
    Ok(format!("{sets} e.tags(&[{}]); {writes}", names.join(", ")))
}

fn nullable(field: &FieldPlan) -> String {
    Cond::new(field.nullable, field.present).expr()
}

/// The name of the condition that the version is flexible.
fn flag(flexible: &Cond) -> &'static str {
    match flexible {
        Cond::Always => "true",
        Cond::Never => "false",
        Cond::If(_) => "f",
    }
}

fn with_flag(flexible: &Cond, body: String) -> String {
    match flexible {
        Cond::If(when) if uses(&body, "f") => format!("let f = {when}; {body}"),
        _ => body,
    }
}

/// A parameter's name, marked if the body does not use it.
fn param(body: &str, name: &str) -> String {
    if uses(body, name) {
        name.to_owned()
    } else {
        format!("_{name}")
    }
}

fn uses(body: &str, name: &str) -> bool {
    body.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .any(|word| word == name)
}

/// The least size of a struct over its versions.
fn bytes_min(message: &MessagePlan, plan: &StructPlan) -> usize {
    let sizes = (plan.versions.lo..=plan.versions.hi).map(|version| bytes_in(message, plan, version));
    sizes.min().unwrap_or(0)
}

fn bytes_in(message: &MessagePlan, plan: &StructPlan, version: i16) -> usize {
    let flexible = message.flexible.contains(version);
    let fields = plan
        .fields
        .iter()
        .filter(|field| field.tag.is_none() && field.present.contains(version));
    let sizes = fields.map(|field| match &field.ty {
        Type::Bool | Type::I8 => 1,
        Type::I16 | Type::U16 => 2,
        Type::I32 => 4,
        Type::I64 | Type::F64 => 8,
        Type::Uuid => 16,
        Type::Str if !flexible => 2,
        Type::Bytes | Type::Records | Type::Array(_) if !flexible => 4,
        Type::Str | Type::Bytes | Type::Records | Type::Array(_) => 1,
        Type::Struct(_) if field.is_optional() => 1,
        Type::Struct(name) => message
            .structs
            .iter()
            .find(|other| other.name == *name)
            .map_or(0, |other| bytes_in(message, other, version)),
    });
    sizes.sum::<usize>() + usize::from(flexible)
}
