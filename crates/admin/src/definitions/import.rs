//! The plan of an import, and its execution.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stafett_access::Caller as By;
use stafett_http::{Code, Problem, body};
use tokio::task::JoinSet;

use super::item::Item;
use super::kinds::{KINDS, Kind};
use super::{Asked, FORM, export};
use crate::access;
use crate::caller::Caller;
use crate::operations::Progress;
use crate::ws::routed::request_of;

/// Requests under way at a time. Things of a kind do not depend on each other.
const AT_ONCE: usize = 256;
/// Things that an answer lists.
const LISTED_MAX: usize = 10_000;

/// A document as it comes.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "DefinitionsToImport")]
pub(super) struct Wanted {
    /// `stafett definitions 1`.
    form: String,
    /// A list per kind, as in the document that is shown.
    #[serde(flatten)]
    lists: Map<String, Value>,
}

/// Result of an import.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct Imported {
    /// True if nothing was made or changed, but only compared.
    dry_run: bool,
    made: u64,
    changed: u64,
    /// Things that are there as in the document.
    same: u64,
    /// Things that are there, differ, and stay as they are.
    differ: u64,
    refused: u64,
    /// All but those that are the same, 10,000 at most.
    items: Vec<Outcome>,
    /// True if there are more than are listed.
    more: bool,
}

/// A thing of a document, and its state behind the import.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ImportedDefinition")]
struct Outcome {
    /// Name of its list.
    kind: String,
    namespace: Option<String>,
    name: Option<String>,
    state: State,
    /// Fields that differ, or differed.
    differences: Vec<Difference>,
    /// Code of a refusal.
    code: Option<String>,
    /// Reason of a refusal, or of a thing that stays as it is.
    why: Option<String>,
}

/// A field whose value differs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DefinitionDifference")]
struct Difference {
    field: String,
    is: Value,
    wanted: Value,
}

/// State of a thing behind an import. A dry run shows the state that there would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ImportState")]
enum State {
    Made,
    Changed,
    /// It is there, differs, and stays as it is.
    Differs,
    Refused,
}

/// An import, before it is executed.
pub(super) struct Import {
    asked: Asked,
    changes: bool,
    dry_run: bool,
    /// Things by kind, and values that are none.
    items: Vec<(&'static Kind, Vec<Result<Item, Outcome>>)>,
    imported: Imported,
    total: u64,
}

/// One request of an import: method, path with query, body.
type Step = (Method, String, String);

impl Import {
    /// Reads a document.
    pub(super) fn of(json: &[u8], asked: Asked, changes: bool, dry_run: bool) -> Result<Self, Problem> {
        let fields: Map<String, Value> = body::parse(if json.is_empty() { b"{}" } else { json })?;
        if fields.contains_key("rabbit_version") || fields.contains_key("rabbitmq_version") {
            let why = "these are definitions of RabbitMQ: POST them to /api/definitions";
            return Err(Problem::bad_request(why));
        }
        let wanted: Wanted =
            serde_json::from_value(Value::Object(fields)).map_err(|why| body::refused("the body", &why))?;
        if wanted.form != FORM {
            let why = format!("form is {FORM:?}, not {:?}", wanted.form);
            return Err(Problem::bad_request(why).with("field", "form"));
        }
        // The first administrator of a document closes the broker for a caller without a login.
        let is_open = asked.by.is_unrestricted() && asked.by.name().is_none();
        let by = if is_open {
            Arc::new(By::internal())
        } else {
            asked.by
        };
        let mut import = Self {
            asked: Asked { by, ..asked },
            changes,
            dry_run,
            items: Vec::new(),
            imported: Imported {
                dry_run,
                ..Imported::default()
            },
            total: 0,
        };
        import.read(wanted.lists)?;
        Ok(import)
    }

    fn read(&mut self, mut lists: Map<String, Value>) -> Result<(), Problem> {
        let namespace = self.asked.namespace.clone().unwrap_or_default();
        lists.remove("left_out");
        for kind in KINDS {
            let list = match lists.remove(kind.name) {
                None | Some(Value::Null) => continue,
                Some(Value::Array(list)) => list,
                Some(_) => {
                    let why = format!("{} is a list", kind.name);
                    return Err(Problem::bad_request(why).with("field", kind.name));
                }
            };
            if !self.asked.kinds.iter().any(|chosen| chosen.name == kind.name) {
                continue;
            }
            let items: Vec<_> = list
                .into_iter()
                .map(|one| read(kind, one, namespace.as_str()))
                .collect();
            self.total += items.len() as u64;
            self.items.push((kind, items));
        }
        for (name, _) in lists {
            self.imported.refused += 1;
            self.imported.items.push(Outcome::refused(
                &name,
                None,
                &Problem::new(Code::UnknownField, "this version knows no such kind"),
            ));
        }
        Ok(())
    }

    /// Compares things with those that are there, and makes and changes them unless it is a dry run.
    pub(super) async fn run(self, progress: &Progress) -> Imported {
        let by = Arc::clone(&self.asked.by);
        access::scope(by, self.run_in_scope(progress)).await
    }

    async fn run_in_scope(mut self, progress: &Progress) -> Imported {
        let mut done = 0;
        for (kind, items) in std::mem::take(&mut self.items) {
            progress.set(done, self.total);
            if progress.stops() {
                break;
            }
            let there = match export::all(&self.asked, kind, &mut Vec::new()).await {
                Ok(there) => there.into_iter().map(|item| (item.id(), item)).collect(),
                // A caller that may not see all of them may still make some.
                Err(_) => HashMap::new(),
            };
            let mut steps = Steps::default();
            for item in items {
                done += 1;
                progress.set(done, self.total);
                match item {
                    Ok(item) => self.begin(item, &there, &mut steps).await,
                    Err(refused) => self.imported.note(refused),
                }
                if progress.stops() {
                    break;
                }
            }
            while let Some(outcome) = steps.next().await {
                self.imported.note(outcome);
            }
        }
        progress.set(done, self.total);
        self.imported
    }

    /// Begins the request that a thing takes, if any.
    async fn begin(&mut self, item: Item, there: &HashMap<String, Item>, steps: &mut Steps) {
        let (state, differences, step) = match there.get(&item.id()) {
            None => (State::Made, Vec::new(), Some(item.making())),
            Some(there) => {
                let differences = item.differences(there);
                if differences.is_empty() {
                    self.imported.same += 1;
                    return;
                }
                let names: Vec<_> = differences.iter().map(|(name, ..)| name.clone()).collect();
                match item.changing(&names) {
                    Some(step) if self.changes => (State::Changed, differences, Some(step)),
                    Some(_) | None => (State::Differs, differences, None),
                }
            }
        };
        let mut outcome = Outcome::of(&item, state);
        let difference = |(field, is, wanted)| Difference { field, is, wanted };
        outcome.differences = differences.into_iter().map(difference).collect();
        if state == State::Differs {
            let why = if self.changes {
                "it cannot change in these fields"
            } else {
                "change=true changes it, if it can"
            };
            outcome.why = Some(why.to_owned());
        }
        if state == State::Made && self.shuts_all_out(&item) {
            let why = "an administrator without a password closes the broker for all: make it by hand";
            outcome.refuse(&Problem::new(Code::LastAdministrator, why));
            self.imported.note(outcome);
            return;
        }
        match step.filter(|_| !self.dry_run) {
            None => self.imported.note(outcome),
            Some(step) => {
                if let Some(ended) = steps.begin(&self.asked, step, outcome).await {
                    self.imported.note(ended);
                }
            }
        }
    }

    /// Returns true for an administrator without a password, while there is none.
    fn shuts_all_out(&self, item: &Item) -> bool {
        let tags = item
            .fields
            .get("tags")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let is_administrator = |tag: &Value| {
            matches!(
                tag.as_str(),
                Some(stafett_access::SUPERUSER | stafett_access::ADMINISTRATOR)
            )
        };
        let directory = self.asked.broker.access().directory();
        item.kind.name == "users"
            && !item.fields.contains_key("verifiers")
            && directory.is_open()
            && tags.into_iter().any(is_administrator)
    }
}

/// Reads one thing of a list.
fn read(kind: &'static Kind, value: Value, namespace: &str) -> Result<Item, Outcome> {
    let refused = |name: Option<String>, problem: &Problem| Outcome::refused(kind.name, name, problem);
    let Value::Object(mut fields) = value else {
        return Err(refused(None, &Problem::bad_request("expected an object")));
    };
    fields.retain(|_, value| !value.is_null());
    if kind.is_namespaced && !fields.contains_key("namespace") {
        fields.insert("namespace".to_owned(), Value::from(namespace));
    }
    let item = Item { kind, fields };
    let is_known = |name: &&String| kind.fields.contains(&name.as_str()) || kind.id.contains(&name.as_str());
    if let Some(unknown) = item.fields.keys().find(|name| !is_known(name)) {
        let problem = Problem::unknown_field(unknown, kind.fields);
        return Err(refused(item.name(), &problem));
    }
    let of_path = ["namespace", "name"]
        .into_iter()
        .filter(|name| kind.has_path_of(name));
    for name in of_path {
        let is_text = item
            .fields
            .get(name)
            .is_some_and(|value| value.as_str().is_some_and(|text| !text.is_empty()));
        if !is_text {
            let problem = Problem::bad_request(format!("{name} is a text, and not empty"));
            return Err(refused(item.name(), &problem));
        }
    }
    Ok(item)
}

/// Requests under way.
#[derive(Default)]
struct Steps(JoinSet<Outcome>);

impl Steps {
    /// Begins a request, and returns the outcome of an earlier one if enough are under way.
    async fn begin(
        &mut self,
        asked: &Asked,
        (method, target, body): Step,
        mut outcome: Outcome,
    ) -> Option<Outcome> {
        let ended = if self.0.len() < AT_ONCE {
            None
        } else {
            self.next().await
        };
        let request = match request_of(method, &target, &Caller(None), body) {
            Ok(request) => request,
            Err(problem) => {
                outcome.refuse(&problem);
                self.0.spawn(std::future::ready(outcome));
                return ended;
            }
        };
        let asking = asked.routes.clone().ask(request, Arc::clone(&asked.by));
        self.0.spawn(async move {
            if let Err(refused) = asking.await {
                outcome.refuse(&export::refusal(&refused));
            }
            outcome
        });
        ended
    }

    async fn next(&mut self) -> Option<Outcome> {
        loop {
            match self.0.join_next().await? {
                Ok(outcome) => return Some(outcome),
                Err(error) => tracing::error!(%error, "an import lost a request"),
            }
        }
    }
}

impl Imported {
    fn note(&mut self, outcome: Outcome) {
        let count = match outcome.state {
            State::Made => &mut self.made,
            State::Changed => &mut self.changed,
            State::Differs => &mut self.differ,
            State::Refused => &mut self.refused,
        };
        *count += 1;
        if self.items.len() < LISTED_MAX {
            self.items.push(outcome);
        } else {
            self.more = true;
        }
    }
}

impl Outcome {
    fn of(item: &Item, state: State) -> Self {
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

    fn refused(kind: &str, name: Option<String>, problem: &Problem) -> Self {
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

    fn refuse(&mut self, problem: &Problem) {
        self.state = State::Refused;
        self.code = Some(problem.code.word().to_owned());
        self.why = Some(problem.detail.to_string());
    }
}
