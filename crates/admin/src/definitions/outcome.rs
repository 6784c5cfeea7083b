//! Results of an import.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use stafett_http::Problem;

use super::item::Item;
use super::kinds::Kind;

/// Bounds on the things that an answer lists: they are kept for an hour.
const LISTED_MAX: usize = 10_000;
const LISTED_BYTES_MAX: usize = 1 << 20;
/// Bound on a value in a difference.
const VALUE_BYTES_MAX: usize = 1000;

/// Result of an import.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct Imported {
    /// True if nothing was made or changed, but only compared.
    dry_run: bool,
    made: u64,
    changed: u64,
    /// Things that are there as in the document.
    pub(super) same: u64,
    /// Things that are there, differ, and stay as they are.
    differ: u64,
    refused: u64,
    /// True if it was stopped before its end.
    pub(super) stopped: bool,
    /// Things that a stopped import has not come to.
    pub(super) not_reached: u64,
    /// All but those that are the same, 10,000 and one mebibyte at most.
    items: Vec<Outcome>,
    /// True if there are more than are listed.
    more: bool,
    #[serde(skip)]
    listed_bytes: usize,
}

/// A thing of a document, and its state behind the import.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ImportedDefinition")]
pub(super) struct Outcome {
    /// Name of its list.
    kind: String,
    namespace: Option<String>,
    name: Option<String>,
    pub(super) state: State,
    /// Fields that differ, or differed.
    pub(super) differences: Vec<Difference>,
    /// Code of a refusal.
    code: Option<String>,
    /// Reason of a refusal, or of a thing that stays as it is.
    pub(super) why: Option<String>,
}

/// A field whose value differs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DefinitionDifference")]
pub(super) struct Difference {
    pub(super) field: String,
    /// Value that is there. Null for verifiers of passwords, and for a value of more than 1,000 bytes.
    is: Value,
    /// Value of the document. Null as above.
    wanted: Value,
}

/// State of a thing behind an import. A dry run shows the state that there would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ImportState")]
pub(super) enum State {
    Made,
    Changed,
    /// It is there, differs, and stays as it is.
    Differs,
    Refused,
}

impl Imported {
    pub(super) fn new(dry_run: bool) -> Self {
        Self {
            dry_run,
            ..Self::default()
        }
    }

    pub(super) fn note(&mut self, outcome: Outcome) {
        let count = match outcome.state {
            State::Made => &mut self.made,
            State::Changed => &mut self.changed,
            State::Differs => &mut self.differ,
            State::Refused => &mut self.refused,
        };
        *count += 1;
        let bytes = serde_json::to_vec(&outcome).map_or(0, |json| json.len());
        if self.items.len() < LISTED_MAX && self.listed_bytes + bytes <= LISTED_BYTES_MAX {
            self.listed_bytes += bytes;
            self.items.push(outcome);
        } else {
            self.more = true;
        }
    }
}

impl Outcome {
    pub(super) fn of(item: &Item, state: State) -> Self {
        Self {
            kind: item.kind.name.to_owned(),
            namespace: item.namespace().map(str::to_owned),
            name: item.name(),
            state,
            differences: Vec::new(),
            code: None,
            why: None,
        }
    }

    pub(super) fn refused(kind: &str, name: Option<String>, problem: &Problem) -> Self {
        let mut refused = Self {
            kind: kind.to_owned(),
            namespace: None,
            name,
            state: State::Refused,
            differences: Vec::new(),
            code: None,
            why: None,
        };
        refused.refuse(problem);
        refused
    }

    pub(super) fn refuse(&mut self, problem: &Problem) {
        self.state = State::Refused;
        self.code = Some(problem.code.word().to_owned());
        self.why = Some(problem.detail.clone());
    }
}

impl Difference {
    /// Takes a difference of two things. Verifiers of passwords are secrets, and others than administrators
    /// read results.
    pub(super) fn of(kind: &Kind, (field, is, wanted): (String, Value, Value)) -> Self {
        let shown = |value: Value| {
            let is_secret = kind.name == "users" && field == "verifiers";
            if is_secret || value.to_string().len() > VALUE_BYTES_MAX {
                Value::Null
            } else {
                value
            }
        };
        let (is, wanted) = (shown(is), shown(wanted));
        Self { field, is, wanted }
    }
}
