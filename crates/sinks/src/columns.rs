//! Columns: names, types, and where their values come from.

use std::fmt;

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Boolean,
    Bigint,
    Double,
    /// Digits in all, and behind the point.
    Numeric {
        precision: u16,
        scale: u16,
    },
    Timestamptz,
    /// Date and time without a zone.
    Timestamp,
    Date,
    Uuid,
    /// Base64 in the record.
    Bytea,
    Jsonb,
}

impl Kind {
    /// Reads a type's name. `numeric` without digits is `numeric(38,9)`.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "text" => Self::Text,
            "boolean" => Self::Boolean,
            "bigint" => Self::Bigint,
            "double" => Self::Double,
            "timestamptz" => Self::Timestamptz,
            "timestamp" => Self::Timestamp,
            "date" => Self::Date,
            "uuid" => Self::Uuid,
            "bytea" => Self::Bytea,
            "jsonb" => Self::Jsonb,
            _ => {
                let digits = text.strip_prefix("numeric(")?.strip_suffix(')')?;
                let (precision, scale) = digits.split_once(',')?;
                let (precision, scale) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
                let is_sound = (1..=1000).contains(&precision) && scale <= precision;
                return is_sound.then_some(Self::Numeric { precision, scale });
            }
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Boolean => "boolean",
            Self::Bigint => "bigint",
            Self::Double => "double",
            Self::Numeric { precision, scale } => return write!(f, "numeric({precision},{scale})"),
            Self::Timestamptz => "timestamptz",
            Self::Timestamp => "timestamp",
            Self::Date => "date",
            Self::Uuid => "uuid",
            Self::Bytea => "bytea",
            Self::Jsonb => "jsonb",
        })
    }
}

/// Source of a column's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A path in the record's value: field, and fields within.
    Path(Vec<String>),
    /// All fields of the value that no column takes, as one JSON object.
    Rest,
    /// The value as a whole, as JSON.
    Whole,
    /// The value as it is, whatever its form.
    Value,
    /// Key, headers and time of the record.
    Key,
    Headers,
    Timestamp,
    /// Topic, partition and offset of the record.
    Topic,
    Partition,
    Offset,
}

/// A column of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    pub origin: Origin,
    /// False: a record without a value is poison.
    pub nullable: bool,
    /// Value of a record that has none, as JSON.
    pub default: Option<String>,
}

impl Column {
    pub(crate) fn new(name: &str, kind: Kind, origin: Origin) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            origin,
            nullable: true,
            default: None,
        }
    }

    /// Columns of a record beside its value: key, headers and time. The key may be a field instead.
    pub(crate) fn carried(key: Option<Vec<String>>) -> Vec<Self> {
        let (kind, origin) = match key {
            Some(path) => (Kind::Text, Origin::Path(path)),
            None => (Kind::Bytea, Origin::Key),
        };
        vec![
            Self::new("record key", kind, origin),
            Self::new("record headers", Kind::Bytea, Origin::Headers),
            Self::new("record time", Kind::Bigint, Origin::Timestamp),
        ]
    }

    /// Columns of the record's place.
    pub(crate) fn of_place() -> [Self; 3] {
        [
            Self::new("_topic", Kind::Text, Origin::Topic),
            Self::new("_partition", Kind::Bigint, Origin::Partition),
            Self::new("_offset", Kind::Bigint, Origin::Offset),
        ]
    }
}
