//! Figures of a roll-up: the part of each record, and the totals.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::cells::{scaled, string};
use crate::columns::Kind;
use crate::document::cited;

/// Bytes of the text of an attribute, at most: it is part of a key.
const ATTRIBUTE_BYTES_MAX: usize = 200;
/// Digits of a sum.
pub(crate) const SUM_DIGITS: u16 = 38;
/// Digits of a summed value before its point. With nine decimals, 10^14 of them fit into a sum.
pub(super) const VALUE_DIGITS: u16 = 15;

/// Bytes of the hash of a distinct value.
pub(crate) const MEMBER_BYTES: usize = 16;
/// Memory of a distinct value in a group, about.
pub(super) const MEMBER_COST: usize = 48;

/// A figure of the records of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Figure {
    Count,
    Sum {
        path: Vec<String>,
        scale: u16,
    },
    /// Number of records that have the field.
    CountOf {
        path: Vec<String>,
    },
    Min {
        path: Vec<String>,
        scale: u16,
    },
    Max {
        path: Vec<String>,
        scale: u16,
    },
    /// Number of distinct values, exactly.
    Distinct {
        path: Vec<String>,
    },
}

/// Hash of a distinct value.
pub(super) type Member = [u8; MEMBER_BYTES];

/// A record's part of a figure.
#[derive(Debug, Clone, Copy)]
pub(super) enum Share {
    None,
    Number(i128),
    Member(Member),
}

/// A figure of a group, so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Total {
    Number(Option<i128>),
    Members(BTreeSet<Member>),
}

impl Figure {
    pub(super) fn path(&self) -> Option<&[String]> {
        match self {
            Self::Count => None,
            Self::Distinct { path }
            | Self::CountOf { path }
            | Self::Sum { path, .. }
            | Self::Min { path, .. }
            | Self::Max { path, .. } => Some(path),
        }
    }

    /// Returns the decimals of a figure of numbers.
    pub(super) fn scale(&self) -> Option<u16> {
        match self {
            Self::Count | Self::Distinct { .. } => None,
            Self::CountOf { .. } => Some(VALUE_DIGITS),
            Self::Sum { scale, .. } | Self::Min { scale, .. } | Self::Max { scale, .. } => Some(*scale),
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Count | Self::CountOf { .. } | Self::Distinct { .. } => Kind::Bigint,
            Self::Sum { scale, .. } | Self::Min { scale, .. } | Self::Max { scale, .. } => Kind::Numeric {
                precision: SUM_DIGITS,
                scale: *scale,
            },
        }
    }
}

/// Returns the text of an attribute.
pub(super) fn attribute(name: &str, json: Option<&str>) -> Result<String, String> {
    let text = match json {
        None | Some("null") => String::new(),
        Some(json) if json.starts_with(['{', '[']) => {
            return Err(format!("{name}: {} is no text", cited(json)));
        }
        Some(json) => string(json).map_or_else(|| json.to_owned(), std::borrow::Cow::into_owned),
    };
    if text.len() > ATTRIBUTE_BYTES_MAX || text.contains('\0') {
        let why = format!("{name}: an attribute has at most {ATTRIBUTE_BYTES_MAX} bytes, none of them 0");
        return Err(why);
    }
    Ok(text)
}

/// Returns the part of a record in a figure, by the value of its field.
pub(super) fn share(name: &str, figure: &Figure, json: Option<&str>) -> Result<Share, String> {
    let json = json.filter(|json| *json != "null");
    match (figure, figure.scale(), json) {
        (Figure::Count, ..) => Ok(Share::Number(1)),
        (_, _, None) => Ok(Share::None),
        (_, None, Some(json)) if json.starts_with(['{', '[']) => {
            Err(format!("{name}: {} is no text", cited(json)))
        }
        (_, None, Some(json)) => Ok(Share::Member(member(string(json).as_deref().unwrap_or(json)))),
        (_, Some(scale), Some(json)) => {
            let value = scaled(json, VALUE_DIGITS, scale).ok_or_else(|| {
                format!(
                    "{name}: {} is no number with at most {scale} decimals",
                    cited(json)
                )
            })?;
            let is_count = matches!(figure, Figure::CountOf { .. });
            Ok(Share::Number(if is_count { 1 } else { value }))
        }
    }
}

/// Returns the hash of a distinct value: the same in each process.
fn member(text: &str) -> Member {
    let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let first = hash.first_chunk::<MEMBER_BYTES>();
    first.copied().unwrap_or_default()
}

/// Returns the figure of a first record.
pub(super) fn first(figure: &Figure, share: Share) -> Total {
    match (figure, share) {
        (Figure::Distinct { .. }, Share::Member(member)) => Total::Members([member].into()),
        (Figure::Distinct { .. }, _) => Total::Members(BTreeSet::new()),
        (_, Share::Number(number)) => Total::Number(Some(number)),
        (Figure::Min { .. } | Figure::Max { .. }, _) => Total::Number(None),
        (Figure::Count | Figure::Sum { .. } | Figure::CountOf { .. }, _) => Total::Number(Some(0)),
    }
}

/// Adds a record's part. Returns the memory that this takes; `None` if the figure has no room.
pub(super) fn join(figure: &Figure, total: &mut Total, share: Share) -> Option<usize> {
    match (total, share) {
        (Total::Members(members), Share::Member(member)) => {
            return Some(usize::from(members.insert(member)) * MEMBER_COST);
        }
        (Total::Number(there), Share::Number(number)) => {
            let sum = match (figure, *there) {
                (_, None) => number,
                (Figure::Min { .. }, Some(there)) => there.min(number),
                (Figure::Max { .. }, Some(there)) => there.max(number),
                (_, Some(there)) => there.checked_add(number)?,
            };
            *there = Some(sum);
        }
        (Total::Members(_) | Total::Number(_), _) => {}
    }
    Some(0)
}
