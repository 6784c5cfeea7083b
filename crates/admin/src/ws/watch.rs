//! Watched states: lists and objects that are shown again and again.
//!
//! A state is the answer of its route. It is computed once for all that watch it, and kept for a second, or
//! longer if it took long: watched lists of very many objects cost a small share of a core. A watch never
//! gets a state from before it began, so one that begins behind a change shows it. A watch that is not read
//! gets the next state, not all that it missed. Before each state the right of the watcher is checked;
//! routes that check rights themselves are computed for each user.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use stafett_broker::Broker;
use stafett_http::{Problem, Slot};
use stafett_model::Lock;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::command::Fields;
use super::routed::{Routes, request_of};
use crate::access::rights::{self, Needs};
use crate::caller::Caller;
use crate::time::now;

/// Least and longest time until a state is computed again.
const KEPT: Duration = Duration::from_secs(1);
const KEPT_MAX: Duration = Duration::from_secs(15);
/// Times that a state is kept for as long as it took.
const REST: u32 = 50;
const EVERY_MIN: Duration = Duration::from_secs(1);
pub(super) const EVERY_MAX: Duration = Duration::from_mins(1);
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// Watches of one connection, and states of one watch.
const WATCHES_MAX: usize = 32;
const STATES_MAX: usize = 32;

/// Name of a watched state.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum What {
    /// A list, with the query of its route.
    List {
        list: String,
        #[serde(default)]
        query: String,
    },
    /// An object, by its path below `/v1`.
    Object { of: String },
}

/// States of a process, shared by all that watch.
#[derive(Debug, Clone)]
pub(super) struct Watches(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    broker: Slot<Broker>,
    /// Paths of routes that show a state, with names in braces.
    paths: Vec<&'static str>,
    states: Lock<HashMap<Key, Weak<State>>>,
    tasks: TaskTracker,
}

/// A request: its client, its URI, and its user and address if the answer depends on them.
type Key = (Option<String>, String, Option<(Option<String>, IpAddr)>);

/// A state that is watched.
#[derive(Debug)]
pub(super) struct State {
    key: Key,
    /// Caller of the requests.
    by: Arc<stafett_access::Caller>,
    latest: Lock<Option<Computed>>,
    /// Computed by one at a time.
    turn: Semaphore,
}

/// A state as it was computed last.
#[derive(Debug)]
struct Computed {
    /// Begin of the computation.
    from: Instant,
    /// End of the time for which it is kept.
    until: Instant,
    state: Bytes,
}

impl Watches {
    pub(super) fn new(broker: Slot<Broker>, paths: Vec<&'static str>, tasks: TaskTracker) -> Self {
        Self(Arc::new(Shared {
            broker,
            paths,
            states: Lock::default(),
            tasks,
        }))
    }

    /// Returns the state of a list or an object, for a caller that may see it.
    pub(super) fn state(
        &self,
        what: &What,
        caller: &Caller,
        by: &Arc<stafett_access::Caller>,
    ) -> Result<Watched, Problem> {
        let (path, query) = match what {
            What::List { list, query } => (list, query.as_str()),
            What::Object { of } => (of, ""),
        };
        // Rights are checked for the path and the query as they stand here.
        if path.contains(['?', '#']) || query.contains('#') {
            let why = "a list or an object is named by its path alone; ? and # are written as %3F and %23";
            return Err(Problem::bad_request(why));
        }
        // The owner of a cell would be asked by no user.
        if query
            .split('&')
            .any(|pair| pair.split('=').next() == Some("cell"))
        {
            return Err(Problem::bad_request("cell: not in a watch; name a namespace"));
        }
        let path = format!("/v1/{path}");
        let Some(template) = self.0.paths.iter().find(|known| is_of(known, &path)) else {
            let why = format!(
                "there is no {path:?} to watch; /v1/openapi.json has the routes of lists and objects"
            );
            return Err(Problem::bad_request(why));
        };
        self.check(by, template, &path, query)?;
        let is_own = rights::needs(&Method::GET, template) == Some(Needs::Login);
        let own = is_own.then(|| (by.name().map(str::to_owned), by.peer()));
        let key = (caller.0.clone(), format!("{path}?{query}"), own);
        // Refuses a malformed URI.
        request_of(Method::GET, &key.1, caller, String::new())?;
        let mut states = self.0.states.lock();
        let watched = |state| Watched {
            state,
            watches: self.clone(),
            template,
            by: Arc::clone(by),
        };
        if let Some(state) = states.get(&key).and_then(Weak::upgrade) {
            return Ok(watched(state));
        }
        states.retain(|_, state| state.strong_count() > 0);
        let state = Arc::new(State {
            by: if is_own {
                Arc::clone(by)
            } else {
                Arc::new(stafett_access::Caller::internal())
            },
            key: key.clone(),
            latest: Lock::default(),
            turn: Semaphore::new(1),
        });
        states.insert(key, Arc::downgrade(&state));
        Ok(watched(state))
    }

    /// Checks the right of a route for one of its paths.
    fn check(
        &self,
        by: &stafett_access::Caller,
        template: &str,
        path: &str,
        query: &str,
    ) -> Result<(), Problem> {
        if by.is_unrestricted() {
            return Ok(());
        }
        rights::check_path(by, &Method::GET, template, path, Some(query))?;
        rights::check_shown_queue(&*self.0.broker.get()?, by, &Method::GET, template, path)
    }
}

/// Returns true if a path is one of a route.
fn is_of(route: &str, path: &str) -> bool {
    let (mut names, mut given) = (route.split('/'), path.split('/'));
    loop {
        match (names.next(), given.next()) {
            (None, None) => return true,
            (Some(name), Some(text)) if name == text || name.starts_with('{') && !text.is_empty() => {}
            _ => return false,
        }
    }
}

impl Watched {
    /// Returns the state as JSON, as it was computed last, but not before `since`; the refusal if it may not
    /// be seen any more.
    pub(super) async fn get(&self, routes: &Routes, since: Instant) -> Bytes {
        if let Err(why) = self.check() {
            return why.to_value().to_string().into();
        }
        self.state.get(routes, since).await
    }

    fn check(&self) -> Result<(), Problem> {
        let uri = &self.state.key.1;
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        self.watches.check(&self.by, self.template, path, query)
    }
}

impl State {
    async fn get(&self, routes: &Routes, since: Instant) -> Bytes {
        if let Some(known) = self.known(since) {
            return known;
        }
        // Never closed.
        let _turn = self.turn.acquire().await;
        if let Some(known) = self.known(since) {
            return known;
        }
        let (client, uri, _) = &self.key;
        let from = Instant::now();
        let state = match request_of(Method::GET, uri, &Caller(client.clone()), String::new()) {
            Ok(request) => {
                let (Ok(body) | Err(body)) = routes.clone().ask(request, Arc::clone(&self.by)).await;
                body.slice_ref(body.trim_ascii_end())
            }
            Err(why) => why.to_value().to_string().into(),
        };
        let kept = (from.elapsed() * REST).clamp(KEPT, KEPT_MAX);
        *self.latest.lock() = Some(Computed {
            from,
            until: Instant::now() + kept,
            state: state.clone(),
        });
        state
    }

    fn known(&self, since: Instant) -> Option<Bytes> {
        let latest = self.latest.lock();
        let known = latest.as_ref()?;
        (known.from >= since && Instant::now() < known.until).then(|| known.state.clone())
    }
}

/// A state with a caller that may see it.
#[derive(Debug)]
pub(super) struct Watched {
    watches: Watches,
    state: Arc<State>,
    template: &'static str,
    by: Arc<stafett_access::Caller>,
}

/// Watches of one connection.
#[derive(Debug)]
pub(super) struct Watching {
    watches: Watches,
    mailbox: Arc<Mailbox>,
    /// Each ends with its guard.
    running: HashMap<u64, DropGuard>,
    last: u64,
}

/// The latest unread state of each watch.
#[derive(Debug)]
struct Mailbox {
    states: Lock<BTreeMap<u64, Vec<u8>>>,
    wake: Arc<Notify>,
}

impl Watching {
    pub(super) fn new(watches: Watches, wake: Arc<Notify>) -> Self {
        let states = Lock::default();
        Self {
            watches,
            mailbox: Arc::new(Mailbox { states, wake }),
            running: HashMap::new(),
            last: 0,
        }
    }

    /// Executes a `watch` command.
    pub(super) fn watch(
        &mut self,
        fields: &Fields<'_>,
        caller: &Caller,
        by: &Arc<stafett_access::Caller>,
        routes: &Routes,
    ) -> Result<Vec<u8>, Problem> {
        if let Some(name) = fields
            .keys()
            .find(|name| !matches!(&***name, "what" | "every_ms"))
        {
            return Err(Problem::unknown_field(name, &["what", "every_ms"]));
        }
        if self.running.len() == WATCHES_MAX {
            let why = format!("a connection has {WATCHES_MAX} watches at most");
            return Err(Problem::bad_request(why));
        }
        let read = fields
            .get("what")
            .map(|what| serde_json::from_str::<Vec<What>>(what.get()));
        let what = match read {
            Some(Ok(what)) if (1..=STATES_MAX).contains(&what.len()) => what,
            _ => {
                let why = format!(
                    "what is a list of 1 to {STATES_MAX} states, such as {{\"list\": \"queues\", \"query\": \"sort=-ready\"}} \
                     or {{\"of\": \"queues/orders\"}}"
                );
                return Err(Problem::bad_request(why));
            }
        };
        let every = match fields
            .get("every_ms")
            .map(|every| every.get().parse().map(Duration::from_millis))
        {
            None => EVERY,
            Some(Ok(every)) => check_every(every)?,
            Some(Err(_)) => return Err(Problem::bad_request("every_ms is a number")),
        };
        let states = what.iter().map(|what| self.watches.state(what, caller, by));
        let states = states.collect::<Result<Vec<_>, Problem>>()?;
        self.last += 1;
        let number = self.last;
        let token = CancellationToken::new();
        let (mailbox, routes, stopped) = (Arc::clone(&self.mailbox), routes.clone(), token.clone());
        let since = Instant::now();
        let watching = async move {
            loop {
                let next = Instant::now() + every;
                let mut items = Vec::new();
                for state in &states {
                    items.push(state.get(&routes, since).await);
                }
                mailbox.put(number, &items);
                sleep_until(next).await;
            }
        };
        self.watches.0.tasks.spawn(async move {
            stopped.run_until_cancelled(watching).await;
        });
        self.running.insert(number, token.drop_guard());
        Ok(json!({ "watch": number }).to_string().into())
    }

    pub(super) fn unwatch(&mut self, number: u64) -> Result<(), Problem> {
        let known = self.running.remove(&number).map(drop);
        self.mailbox.states.lock().remove(&number);
        known.ok_or_else(|| Problem::bad_request(format!("this connection has no watch {number}")))
    }

    /// Hands the unread states to `put`.
    pub(super) fn take(&mut self, mut put: impl FnMut(&[u8])) {
        if self.running.is_empty() {
            return;
        }
        let states = std::mem::take(&mut *self.mailbox.states.lock());
        for (number, state) in states {
            // A state may have come behind the end of its watch.
            if self.running.contains_key(&number) {
                put(&state);
            }
        }
    }
}

impl Mailbox {
    fn put(&self, number: u64, items: &[Bytes]) {
        let mut state = format!("{{\"watch\":{number},\"at\":\"{}\",\"items\":[", now()).into_bytes();
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                state.push(b',');
            }
            state.extend_from_slice(item);
        }
        state.extend_from_slice(b"]}");
        self.states.lock().insert(number, state);
        self.wake.notify_one();
    }
}

pub(super) fn check_every(every: Duration) -> Result<Duration, Problem> {
    if (EVERY_MIN..=EVERY_MAX).contains(&every) {
        return Ok(every);
    }
    Err(Problem::bad_request(format!(
        "a state comes every {EVERY_MIN:?} to {EVERY_MAX:?}, not {every:?}"
    )))
}
