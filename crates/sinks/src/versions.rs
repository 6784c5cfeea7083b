//! Versions of records: those that are old are raised step by step, so that the steps and columns behind know
//! one form alone.

use stafett_expr::PlacedRecord;

use crate::document::{Document, cited};
use crate::transform::{Step, Verdict};

/// Version of a record without one.
const FIRST: u64 = 1;

/// Source of a record's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionOf {
    Field(String),
    Header(String),
}

/// Way of old records to the version that the steps behind know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    pub of: VersionOf,
    pub known: u64,
    /// True if records above `known` go on as they are. False: they are poison.
    pub newer_pass: bool,
    /// Steps from a version to the next, by the former.
    pub raises: Vec<(u64, Vec<Step>)>,
}

impl Versions {
    pub(crate) fn apply(
        &self,
        document: &mut Document<'_>,
        source: PlacedRecord<'_>,
    ) -> Result<Verdict, String> {
        let version = self.version(document, source)?;
        if version > self.known {
            return if self.newer_pass {
                Ok(Verdict::Keep)
            } else {
                Err(format!("version {version} is newer than {}", self.known))
            };
        }
        for at in version..self.known {
            let raise = self.raises.iter().find(|(from, _)| *from == at);
            let (_, steps) = raise.ok_or_else(|| format!("version {at} has no way to the next one"))?;
            for step in steps {
                let verdict = step.apply(document, source);
                match verdict.map_err(|why| format!("from version {at}: {why}"))? {
                    Verdict::Keep => {}
                    other @ (Verdict::Drop { .. } | Verdict::Wait) => return Ok(other),
                }
            }
        }
        if let VersionOf::Field(name) = &self.of
            && version < self.known
        {
            document.set(name, self.known.to_string());
        }
        Ok(Verdict::Keep)
    }

    fn version(&self, document: &Document<'_>, source: PlacedRecord<'_>) -> Result<u64, String> {
        let header;
        let text = match &self.of {
            VersionOf::Field(name) => document.get(name).filter(|json| *json != "null"),
            VersionOf::Header(name) => {
                header = source.record.headers.last(name.as_bytes()).flatten();
                let text = header.map(std::str::from_utf8).transpose();
                text.map_err(|_| format!("the header {name} is no version"))?
            }
        };
        let Some(text) = text else {
            return Ok(FIRST);
        };
        text.parse().map_err(|_| format!("{} is no version", cited(text)))
    }
}
