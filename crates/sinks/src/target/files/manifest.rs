//! The manifest of a flush, and the bounds that are stored before it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::target::{Place, Start};

/// Files of one flush of a partition. Other files do not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) sink: String,
    /// From 1, without gaps.
    pub(super) number: u64,
    pub(super) writer: String,
    /// Hash of the manifest before; empty in the first one.
    pub(super) previous: String,
    pub(super) written_at: String,
    pub(super) topic: String,
    /// `None` in manifests of earlier versions, and where a broker gives topics no ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) topic_id: Option<Uuid>,
    pub(super) partition: u32,
    pub(super) from: u64,
    pub(super) next: u64,
    /// Number of the first manifest that no longer counts, up to this one: its records are written again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replaces: Option<u64>,
    /// Number behind which all manifests up to this one are flushes, one behind the other. `None` in those of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<u64>,
    pub(super) files: Vec<FileEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileEntry {
    /// Relative to the folder.
    pub(super) path: String,
    pub(super) records: usize,
    pub(super) bytes: usize,
    pub(super) sha256: String,
}

/// Offsets of a batch that is being written, and the number that its manifest gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bounds {
    /// `None` in those of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) topic_id: Option<Uuid>,
    pub(super) from: u64,
    pub(super) next: u64,
}

impl Manifest {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|why| why.to_string())
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        line(self)
    }
}

impl Bounds {
    /// Returns `None` for bytes that are no bounds: the batch then begins anew.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes)
            .ok()
            .filter(|bounds: &Self| bounds.from < bounds.next)
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        line(&self)
    }

    /// True for the batch of the manifest of this number, of the same topic.
    pub(super) fn are_of(&self, number: u64, start: Start) -> bool {
        self.number.is_none_or(|own| own == number) && start.is_of(self.topic_id)
    }
}

/// Numbers and texts have no value that JSON lacks.
fn line(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

pub(super) fn time(wall_ms: i64) -> String {
    let at = Timestamp::from_millisecond(wall_ms).unwrap_or_default();
    at.to_string()
}

pub(super) fn hex_hash(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

pub(super) fn hash(bytes: &[u8]) -> String {
    format!("sha256:{}", hex_hash(bytes))
}

/// Highest number whose path lies behind those of lower ones in the order of a bucket.
pub(super) const ORDERED_MAX: u64 = 99_999_999;

pub(super) fn folder(place: &Place) -> String {
    format!("{}/{}", place.topic, place.partition)
}

pub(super) fn path(place: &Place, number: u64) -> String {
    format!("manifest/{}/{number:08}.json", folder(place))
}

pub(super) fn pending_path(place: &Place) -> String {
    format!("{}/pending.json", folder(place))
}

/// Returns the path of a file with these first and last offsets. The number of its manifest is part of the
/// name: a replay of the same offsets writes other files.
pub(super) fn file_path(place: &Place, number: u64, [first, last]: [u64; 2], extension: &str) -> String {
    format!("{}/{first:017}-{last:017}.{number:08}.{extension}", folder(place))
}
