//! The message schemas as Kafka writes them: JSON with comments.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::{self, Deserializer};
use serde_json::Value;

/// Versions from `lo` to `hi`, both included; empty if `lo > hi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub lo: i16,
    pub hi: i16,
}

impl Versions {
    pub const NONE: Self = Self { lo: 0, hi: -1 };

    pub fn is_empty(self) -> bool {
        self.lo > self.hi
    }

    pub fn and(self, other: Self) -> Self {
        Self {
            lo: self.lo.max(other.lo),
            hi: self.hi.min(other.hi),
        }
    }

    pub fn covers(self, other: Self) -> bool {
        other.is_empty() || (self.lo <= other.lo && other.hi <= self.hi)
    }

    pub fn contains(self, version: i16) -> bool {
        self.lo <= version && version <= self.hi
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.lo, self.hi) {
            (lo, i16::MAX) => write!(f, "{lo} and up"),
            (lo, hi) if lo == hi => write!(f, "{lo}"),
            (lo, hi) => write!(f, "{lo} to {hi}"),
        }
    }
}

impl<'de> Deserialize<'de> for Versions {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let text = String::deserialize(source)?;
        parse_versions(&text).ok_or_else(|| de::Error::custom(format!("versions {text:?}")))
    }
}

fn parse_versions(text: &str) -> Option<Versions> {
    if text == "none" {
        return Some(Versions::NONE);
    }
    if let Some(lo) = text.strip_suffix('+') {
        return Some(Versions {
            lo: lo.parse().ok()?,
            hi: i16::MAX,
        });
    }
    let (lo, hi) = text.split_once('-').unwrap_or((text, text));
    Some(Versions {
        lo: lo.parse().ok()?,
        hi: hi.parse().ok()?,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Request,
    Response,
    Header,
    Data,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Message {
    pub api_key: Option<i16>,
    #[serde(rename = "type")]
    pub kind: Kind,
    #[serde(default)]
    pub listeners: Vec<String>,
    pub name: String,
    pub valid_versions: Versions,
    #[serde(default = "no_versions")]
    pub flexible_versions: Versions,
    #[serde(default)]
    pub latest_version_unstable: bool,
    #[serde(default)]
    pub fields: Vec<Field>,
    #[serde(default)]
    pub common_structs: Vec<Common>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Common {
    pub name: String,
    pub versions: Versions,
    pub fields: Vec<Field>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Field {
    pub name: String,
    #[serde(rename = "type")]
    pub type_name: String,
    pub versions: Versions,
    #[serde(default = "no_versions")]
    pub nullable_versions: Versions,
    #[serde(default = "no_versions")]
    pub tagged_versions: Versions,
    pub tag: Option<u32>,
    #[serde(default, deserialize_with = "literal")]
    pub default: Option<String>,
    #[serde(default)]
    pub ignorable: bool,
    #[serde(default)]
    pub fields: Vec<Field>,
    /// Only headers have it, and they are not generated.
    #[serde(rename = "flexibleVersions")]
    _flexible_versions: Option<Versions>,
    #[serde(rename = "about")]
    _about: Option<String>,
    #[serde(rename = "entityType")]
    _entity_type: Option<String>,
    #[serde(rename = "mapKey", default)]
    _map_key: bool,
    #[serde(rename = "zeroCopy", default)]
    _zero_copy: bool,
}

fn no_versions() -> Versions {
    Versions::NONE
}

/// Defaults are written as strings, numbers or booleans.
fn literal<'de, D: Deserializer<'de>>(source: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(source)? {
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
}

/// All schemas in the library.
pub fn read_all(jar: &Path) -> Result<Vec<Message>> {
    let mut jar = zip::ZipArchive::new(File::open(jar)?)?;
    let mut messages = Vec::new();
    for at in 0..jar.len() {
        let mut entry = jar.by_index(at)?;
        let name = entry.name()?.into_owned();
        if !name.starts_with("common/message/") || !name.ends_with(".json") {
            continue;
        }
        let mut text = String::new();
        entry.read_to_string(&mut text)?;
        let message = serde_json::from_str(&without_comments(&text)).with_context(|| name.clone())?;
        messages.push(message);
    }
    if messages.is_empty() {
        bail!("the library holds no schemas");
    }
    Ok(messages)
}

/// Comments are whole lines in all schemas, so strings that hold slashes need no care.
fn without_comments(text: &str) -> String {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}
