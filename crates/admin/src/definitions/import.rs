//! The plan of an import, and its execution.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use axum::http::Method;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use stafett_access::Caller as By;
use stafett_http::body::Body;
use stafett_http::{Code, Problem, body};
use stafett_model::Namespace;
use tokio::task::{Id, JoinSet};

use super::document::Wanted;
use super::export::{self, Scope};
use super::item::{Fields, Item, Step};
use super::kinds::{CHANGEABLE_OF_QUEUES, Kind};
use super::outcome::{Difference, Imported, Outcome, State};
use super::{Asked, FORM};
use crate::access;
use crate::caller::{Caller, OnlyIfAbsent};
use crate::operations::Progress;
use crate::ws::routed::{Routes, request_of};

/// Requests under way at a time. Things of a kind do not depend on each other.
const AT_ONCE: usize = 256;
/// Bound on the bytes of one thing.
const ITEM_BYTES_MAX: usize = 1 << 20;

/// An import, before it is executed.
pub(super) struct Import {
    asked: Asked,
    changes: bool,
    dry_run: bool,
    /// Things by kind: slices of the document, whose share of the memory for requests is held with it.
    items: Vec<(&'static Kind, Vec<Bytes>)>,
    _document: Body,
    imported: Imported,
    total: u64,
}

/// Things of a kind that are there, by their ids.
type There = HashMap<String, Item>;

impl Import {
    /// Reads a document.
    pub(super) fn of(document: Body, asked: Asked, changes: bool, dry_run: bool) -> Result<Self, Problem> {
        let bytes = document.bytes().clone();
        let wanted: Wanted<'_> = body::parse(if bytes.is_empty() { b"{}" } else { &bytes })?;
        if wanted.is_foreign {
            let why = "these are definitions of RabbitMQ: POST them to /api/definitions";
            return Err(Problem::bad_request(why));
        }
        if wanted.form != FORM {
            let why = format!("form is {:?}, not {FORM:?}", wanted.form);
            return Err(Problem::bad_request(why).with("field", "form"));
        }
        let mut imported = Imported::new(dry_run);
        for name in &wanted.unknown {
            let why = Problem::new(Code::UnknownField, "this version knows no such kind");
            imported.note(Outcome::refused(name, None, &why));
        }
        let slices = |list: Vec<&serde_json::value::RawValue>| {
            let slices = list
                .into_iter()
                .map(|thing| bytes.slice_ref(thing.get().as_bytes()));
            slices.collect::<Vec<_>>()
        };
        let mut lists: HashMap<_, _> = wanted
            .lists
            .into_iter()
            .map(|(kind, list)| (kind.name, list))
            .collect();
        // Things are made in the order of their kinds.
        let items: Vec<_> = asked
            .kinds
            .iter()
            .filter_map(|kind| Some((*kind, slices(lists.remove(kind.name)?))))
            .collect();
        Ok(Self {
            total: items.iter().map(|(_, list)| list.len() as u64).sum(),
            asked,
            changes,
            dry_run,
            items,
            imported,
            _document: document,
        })
    }

    /// Compares things with those that are there, and makes and changes them unless it is a dry run.
    pub(super) async fn run(mut self, progress: &Progress) -> Imported {
        let mut done = 0;
        for (kind, items) in std::mem::take(&mut self.items) {
            progress.set(done, self.total);
            if progress.stops() {
                break;
            }
            let there = self.there(kind, &items).await;
            let (mut steps, mut seen) = (Steps::default(), HashSet::new());
            for item in items {
                if progress.stops() {
                    break;
                }
                done += 1;
                progress.set(done, self.total);
                match self.read(kind, &item, &there, &mut seen) {
                    Ok((item, there)) => self.begin(item, there, &mut steps).await,
                    Err(refused) => self.imported.note(*refused),
                }
            }
            while let Some(outcome) = steps.next().await {
                self.imported.note(outcome);
            }
        }
        progress.set(done, self.total);
        self.imported.not_reached = self.total - done;
        self.imported.stopped = done < self.total;
        self.imported
    }

    /// Reads the things of a kind that are there, in all namespaces that the document names.
    async fn there(&self, kind: &'static Kind, items: &[Bytes]) -> Result<There, Problem> {
        let scope: Scope = kind.is_namespaced.then(|| {
            let own = self.asked.namespace.clone().unwrap_or_default();
            let names = items.iter().map(|item| namespace_of(item, &own));
            names.collect::<BTreeSet<_>>()
        });
        let by = Arc::clone(&self.asked.by);
        let mut left_out = Vec::new();
        let all = export::all(&self.asked, kind, &scope, &mut left_out);
        let all = access::scope(by, all).await?;
        Ok(all.into_iter().map(|item| (item.id(), item)).collect())
    }

    /// Reads one thing, and finds the one that is there.
    fn read<'a>(
        &self,
        kind: &'static Kind,
        json: &[u8],
        there: &'a Result<There, Problem>,
        seen: &mut HashSet<String>,
    ) -> Result<(Item, Option<&'a Item>), Box<Outcome>> {
        let namespace = self.asked.namespace.clone().unwrap_or_default();
        let item = read(kind, json, namespace.as_str())?;
        let refused = |problem: &Problem| Box::new(Outcome::refused(kind.name, item.name(), problem));
        // A thing that the caller cannot see would be replaced, not made.
        let there = there.as_ref().map_err(refused)?;
        let id = item.id();
        let found = there.get(&id);
        if !seen.insert(id) {
            let why = "it is in the document twice; the first one counts";
            return Err(refused(&Problem::bad_request(why)));
        }
        Ok((item, found))
    }

    /// Begins the requests that a thing takes, if any.
    async fn begin(&mut self, item: Item, there: Option<&Item>, steps: &mut Steps) {
        let (state, differences, requests) = match there {
            None => (State::Made, Vec::new(), Some(item.making())),
            Some(there) => {
                let differences = item.differences(there);
                if differences.is_empty() {
                    self.imported.same += 1;
                    return;
                }
                let names: Vec<_> = differences.iter().map(|(name, ..)| name.clone()).collect();
                match item.changing(&names, there) {
                    Some(requests) if self.changes => (State::Changed, differences, Some(requests)),
                    Some(_) | None => (State::Differs, differences, None),
                }
            }
        };
        let mut outcome = Outcome::of(&item, state);
        let differences = differences.into_iter();
        outcome.differences = differences
            .map(|difference| Difference::of(item.kind, difference))
            .collect();
        if state == State::Differs {
            let why = if self.changes {
                "it cannot change in these fields"
            } else {
                "change=true changes it, if it can"
            };
            outcome.why = Some(why.to_owned());
        }
        let closes = matches!(state, State::Made | State::Changed) && self.closes(&item, there);
        if closes && !has_password(&item, there) {
            let why = "an administrator without a password closes the broker for all: make it by hand";
            outcome.refuse(&Problem::new(Code::LastAdministrator, why));
            self.imported.note(outcome);
            return;
        }
        let Some(requests) = requests.filter(|_| !self.dry_run) else {
            self.imported.note(outcome);
            return;
        };
        if closes {
            return self.close(&item, requests, outcome, steps).await;
        }
        if let Some(ended) = steps.begin(&self.asked, requests, outcome).await {
            self.imported.note(ended);
        }
    }

    /// Returns true for a user that is an administrator behind the import, while there is none.
    fn closes(&self, item: &Item, there: Option<&Item>) -> bool {
        let tags = resulting(item, there, "tags").and_then(Value::as_array);
        let is_administrator = |tag: &Value| {
            let known = [stafett_access::SUPERUSER, stafett_access::ADMINISTRATOR];
            tag.as_str().is_some_and(|tag| known.contains(&tag))
        };
        item.kind.name == "users"
            && self.asked.broker.access().directory().is_open()
            && tags.into_iter().flatten().any(is_administrator)
    }

    /// Makes the first administrator, which closes the broker for a caller without a login. The import goes
    /// on behind its own one, but not behind another one that came to be meanwhile.
    async fn close(&mut self, item: &Item, requests: Vec<Step>, outcome: Outcome, steps: &mut Steps) {
        while let Some(outcome) = steps.next().await {
            self.imported.note(outcome);
        }
        // None is under way, so this one is begun.
        let _ = steps.begin(&self.asked, requests, outcome).await;
        let Some(outcome) = steps.next().await else { return };
        let is_made = outcome.state != State::Refused;
        self.imported.note(outcome);
        let users = self.asked.broker.access().directory().users();
        let mut administrators = users.iter().filter(|user| user.is_administrator());
        let is_own = is_made
            && administrators
                .next()
                .is_some_and(|first| Some(&*first.name) == item.name().as_deref())
            && administrators.next().is_none();
        if is_own && self.asked.by.name().is_none() {
            self.asked.by = Arc::new(By::internal().at(self.asked.by.peer()));
        }
    }
}

/// Returns the value that a field has behind an import.
fn resulting<'a>(item: &'a Item, there: Option<&'a Item>, field: &str) -> Option<&'a Value> {
    let own = item.fields.get(field).filter(|value| !value.is_null());
    own.or_else(|| there?.fields.get(field))
}

fn has_password(item: &Item, there: Option<&Item>) -> bool {
    let verifiers = resulting(item, there, "verifiers").and_then(Value::as_object);
    verifiers.is_some_and(|verifiers| verifiers.values().any(|verifier| !verifier.is_null()))
}

/// Returns the namespace that a thing names.
fn namespace_of(json: &[u8], default: &Namespace) -> Namespace {
    #[derive(Deserialize)]
    struct Named {
        namespace: Option<String>,
    }
    let named = serde_json::from_slice::<Named>(json).ok();
    let name = named.and_then(|named| named.namespace);
    name.map_or_else(|| default.clone(), |name| Namespace::new(&name))
}

/// Reads one thing of a list.
fn read(kind: &'static Kind, json: &[u8], namespace: &str) -> Result<Item, Box<Outcome>> {
    let refused =
        |name: Option<String>, problem: &Problem| Box::new(Outcome::refused(kind.name, name, problem));
    if json.len() > ITEM_BYTES_MAX {
        let why = format!("it has more than {ITEM_BYTES_MAX} bytes");
        return Err(refused(None, &Problem::new(Code::TooLarge, why)));
    }
    let fields = body::parse::<Fields>(json);
    let mut fields = fields.map_err(|problem| refused(None, &problem))?;
    fields.retain(|name, value| !value.is_null() || kind.shows_null_of(name));
    if kind.is_namespaced && !fields.contains_key("namespace") {
        fields.insert("namespace".to_owned(), Value::from(namespace));
    }
    let item = Item { kind, fields };
    check(&item).map_err(|problem| refused(item.name(), &problem))?;
    Ok(item)
}

fn check(item: &Item) -> Result<(), Problem> {
    let kind = item.kind;
    let is_known = |name: &&String| kind.fields.contains(&name.as_str()) || kind.id.contains(&name.as_str());
    if let Some(unknown) = item.fields.keys().find(|name| !is_known(name)) {
        return Err(Problem::unknown_field(unknown, kind.fields));
    }
    for name in ["namespace", "name"]
        .into_iter()
        .filter(|name| kind.has_path_of(name))
    {
        let text = item.fields.get(name).and_then(Value::as_str);
        if text.is_none_or(str::is_empty) {
            return Err(Problem::bad_request(format!("{name} is a text, and not empty")));
        }
    }
    match item.fields.get("changed") {
        None => Ok(()),
        Some(Value::Object(changed)) => {
            let mut names = changed.keys();
            match names.find(|name| !CHANGEABLE_OF_QUEUES.contains(&name.as_str())) {
                Some(unknown) => Err(Problem::unknown_field(unknown, CHANGEABLE_OF_QUEUES)),
                None => Ok(()),
            }
        }
        Some(_) => Err(Problem::bad_request("changed is an object")),
    }
}

/// Requests under way, each of a thing.
#[derive(Default)]
struct Steps {
    tasks: JoinSet<Result<(), Problem>>,
    outcomes: HashMap<Id, Outcome>,
}

impl Steps {
    /// Begins the requests of a thing, and returns the outcome of an earlier one if enough are under way.
    async fn begin(&mut self, asked: &Asked, requests: Vec<Step>, outcome: Outcome) -> Option<Outcome> {
        let ended = if self.tasks.len() < AT_ONCE {
            None
        } else {
            self.next().await
        };
        let made = outcome.state == State::Made;
        let asking = ask(asked.routes.clone(), requests, Arc::clone(&asked.by), made);
        let task = self.tasks.spawn(asking);
        self.outcomes.insert(task.id(), outcome);
        ended
    }

    async fn next(&mut self) -> Option<Outcome> {
        let (id, problem) = match self.tasks.join_next_with_id().await? {
            Ok((id, result)) => (id, result.err()),
            Err(error) => {
                tracing::error!(%error, "an import lost a request");
                let why = "the request ended early: it may be there or not";
                (error.id(), Some(Problem::new(Code::OutcomeUnknown, why)))
            }
        };
        let mut outcome = self.outcomes.remove(&id)?;
        if let Some(problem) = problem {
            outcome.refuse(&problem);
        }
        Some(outcome)
    }
}

/// Makes requests one after another, until one is refused.
async fn ask(routes: Routes, requests: Vec<Step>, by: Arc<By>, makes: bool) -> Result<(), Problem> {
    for Step { method, target, body } in requests {
        let is_change = method == Method::PATCH;
        let mut request = request_of(method, &target, &Caller(None), body)?;
        if makes && !is_change {
            request.extensions_mut().insert(OnlyIfAbsent);
        }
        if let Err(refused) = routes.clone().ask(request, Arc::clone(&by)).await {
            let problem = export::refusal(&refused);
            return Err(if makes && is_change {
                let why = format!("it was made, but its changes were refused: {}", problem.detail);
                Problem::new(problem.code, why)
            } else {
                problem
            });
        }
    }
    Ok(())
}
