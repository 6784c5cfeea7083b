//! Decides what is generated: which messages, which versions of them, and what each struct is called.
//!
//! Only APIs that a broker serves to clients are kept. A version that its schema calls unstable is dropped, and with it
//! the fields that only it has. Fields of versions that are no longer valid are dropped too.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Context, Result, bail, ensure};

use crate::names::{camel, snake};
use crate::schema::{Field, Kind, Message, Versions};

/// Data structures that are not requests.
const DATA: [&str; 4] = [
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "ControlRecordTypeSchema",
    "EndTxnMarker",
];

/// One module.
pub struct File {
    pub module: String,
    pub api: Option<Api>,
    pub messages: Vec<MessagePlan>,
}

/// The request of a module and what the protocol calls it.
pub struct Api {
    pub name: String,
    pub key: i16,
}

pub struct MessagePlan {
    pub name: String,
    pub is_request: bool,
    pub versions: Versions,
    pub flexible: Versions,
    /// The message itself first.
    pub structs: Vec<StructPlan>,
}

pub struct StructPlan {
    pub name: String,
    /// The versions in which it can occur.
    pub versions: Versions,
    pub fields: Vec<FieldPlan>,
}

pub struct FieldPlan {
    pub name: String,
    pub ty: Type,
    /// The versions that have the field, of those that have its struct.
    pub present: Versions,
    pub nullable: Versions,
    pub tag: Option<u32>,
    pub default: Option<String>,
    pub ignorable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Bool,
    I8,
    I16,
    U16,
    I32,
    I64,
    F64,
    Uuid,
    Str,
    Bytes,
    Records,
    Struct(String),
    Array(Box<Type>),
}

/// The modules, in the order of their keys.
pub fn files(messages: Vec<Message>) -> Result<Vec<File>> {
    let mut by_name: BTreeMap<String, Message> = messages.into_iter().map(|m| (m.name.clone(), m)).collect();
    let mut requests: Vec<(i16, String)> = by_name
        .values()
        .filter(|m| m.kind == Kind::Request && m.listeners.iter().any(|listener| listener == "broker"))
        .filter_map(|m| Some((m.api_key?, m.name.strip_suffix("Request")?.to_owned())))
        .collect();
    requests.sort();
    let mut files = Vec::new();
    for (key, name) in requests {
        let mut take = |suffix| {
            by_name
                .remove(&format!("{name}{suffix}"))
                .context("a message is missing")
        };
        files.push(api_file(key, name.clone(), take("Request")?, take("Response")?).context(name)?);
    }
    for name in DATA {
        let message = by_name
            .remove(name)
            .with_context(|| format!("{name} is missing"))?;
        let plan = message_plan(&message, message.valid_versions, &HashSet::new())?;
        files.push(File {
            module: snake(name),
            api: None,
            messages: vec![plan],
        });
    }
    Ok(files)
}

fn api_file(key: i16, name: String, request: Message, response: Message) -> Result<File> {
    let mut versions = request.valid_versions;
    ensure!(
        versions == response.valid_versions,
        "request and response have different versions"
    );
    if request.latest_version_unstable {
        versions.hi -= 1;
    }
    let asked = struct_names(&request);
    let answered = struct_names(&response);
    let shared: HashSet<String> = asked.intersection(&answered).cloned().collect();
    let messages = vec![
        message_plan(&request, versions, &shared)?,
        message_plan(&response, versions, &shared)?,
    ];
    Ok(File {
        module: snake(&name),
        api: Some(Api { name, key }),
        messages,
    })
}

fn struct_names(message: &Message) -> HashSet<String> {
    fn collect(fields: &[Field], into: &mut HashSet<String>) {
        for field in fields.iter().filter(|field| !field.fields.is_empty()) {
            into.insert(field.type_name.trim_start_matches("[]").to_owned());
            collect(&field.fields, into);
        }
    }
    let mut names = HashSet::new();
    collect(&message.fields, &mut names);
    for common in &message.common_structs {
        names.insert(common.name.clone());
        collect(&common.fields, &mut names);
    }
    names
}

/// Walks one message. `shared` are names that its counterpart in the same module uses for other structs.
struct Planner<'a> {
    message: &'a Message,
    shared: &'a HashSet<String>,
    structs: Vec<StructPlan>,
}

fn message_plan(message: &Message, versions: Versions, shared: &HashSet<String>) -> Result<MessagePlan> {
    let mut planner = Planner {
        message,
        shared,
        structs: Vec::new(),
    };
    planner.add(camel(&message.name), versions, &message.fields)?;
    for common in &message.common_structs {
        planner.add(
            planner.struct_name(&common.name),
            versions.and(common.versions),
            &common.fields,
        )?;
    }
    let structs = planner.structs;
    let flexible = message.flexible_versions;
    let is_request = message.kind == Kind::Request;
    Ok(MessagePlan {
        name: camel(&message.name),
        is_request,
        versions,
        flexible,
        structs,
    })
}

impl Planner<'_> {
    fn struct_name(&self, name: &str) -> String {
        match (self.shared.contains(name), self.message.kind) {
            (true, Kind::Request) => format!("Request{}", camel(name)),
            (true, _) => format!("Response{}", camel(name)),
            (false, _) => camel(name),
        }
    }

    fn add(&mut self, name: String, versions: Versions, fields: &[Field]) -> Result<()> {
        let at = self.structs.len();
        self.structs.push(StructPlan {
            name,
            versions,
            fields: Vec::new(),
        });
        let mut plans = Vec::new();
        for field in fields {
            let present = versions.and(field.versions);
            if present.is_empty() {
                continue;
            }
            plans.push(self.field(field, present).with_context(|| field.name.clone())?);
            if !field.fields.is_empty() {
                let inner = self.struct_name(field.type_name.trim_start_matches("[]"));
                self.add(inner, present, &field.fields)?;
            }
        }
        self.structs[at].fields = plans;
        Ok(())
    }

    fn field(&self, field: &Field, present: Versions) -> Result<FieldPlan> {
        let tagged = present.and(field.tagged_versions);
        ensure!(
            tagged.is_empty() || tagged == present,
            "the field is tagged in some versions only"
        );
        let flexible = self.message.flexible_versions;
        ensure!(
            tagged.is_empty() || flexible.covers(tagged),
            "the field is tagged in versions without tags"
        );
        let ty = self.ty(&field.type_name)?;
        let nullable = present.and(field.nullable_versions);
        let is_optional = !nullable.is_empty();
        if is_optional && tagged == present && !matches!(ty, Type::Str) {
            bail!("a tagged field of a nullable type other than a string");
        }
        let tag = if tagged.is_empty() {
            None
        } else {
            Some(field.tag.context("a tagged field without tag")?)
        };
        Ok(FieldPlan {
            name: snake(&field.name),
            ty,
            present,
            nullable,
            tag,
            default: field.default.clone(),
            ignorable: field.ignorable,
        })
    }

    fn ty(&self, name: &str) -> Result<Type> {
        Ok(match name {
            "bool" => Type::Bool,
            "int8" => Type::I8,
            "int16" => Type::I16,
            "uint16" => Type::U16,
            "int32" => Type::I32,
            "int64" => Type::I64,
            "float64" => Type::F64,
            "uuid" => Type::Uuid,
            "string" => Type::Str,
            "bytes" => Type::Bytes,
            // What a client sends is one slice of its frame; what is sent to it may be in pieces.
            "records" if self.message.kind == Kind::Request => Type::Bytes,
            "records" => Type::Records,
            _ => match name.strip_prefix("[]") {
                Some(element) => Type::Array(Box::new(self.ty(element)?)),
                None if name.starts_with(char::is_uppercase) => Type::Struct(self.struct_name(name)),
                None => bail!("type {name} is unknown"),
            },
        })
    }
}
