//! This node in the table: a thread registers it, raises its beat, and tells of all nodes.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use stafett_model::{Lock, WakeUp};

use super::{Directory, NodeFacts, Sightings, View};
use crate::database::DatabaseError;
use crate::ownership::{interval, uptime};

/// Leases without a beat after which a node is held for dead.
const SILENT_LEASES: u32 = 2;
/// Time between attempts to register a node whose name another one has.
const TAKEN_PAUSE: Duration = Duration::from_secs(10);

/// This node's place in the table of nodes.
#[derive(Debug)]
pub struct Registry {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

struct State {
    directory: Arc<dyn Directory>,
    lease: Duration,
    orders: Lock<Orders>,
    wake: WakeUp,
    on_view: Box<dyn Fn(View) + Send + Sync>,
}

#[derive(Debug, Default)]
struct Orders {
    has_ended: bool,
    /// The next look is due at once.
    is_due: bool,
    /// Number and facts, once the node is registered.
    joined: Option<(u32, NodeFacts)>,
    /// Another node has taken the name. It keeps it while it beats.
    is_taken: bool,
    /// Addresses of listeners that were opened after the node was registered.
    more: Vec<(String, String)>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("orders", &self.orders)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// Registers a node as soon as the database answers. `on_view` is told of all nodes, with each beat.
    pub fn join(
        directory: Arc<dyn Directory>,
        facts: NodeFacts,
        lease: Duration,
        on_view: impl Fn(View) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let state = Arc::new(State {
            directory,
            lease,
            orders: Lock::default(),
            wake: WakeUp::default(),
            on_view: Box::new(on_view),
        });
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("cluster-nodes".into())
            .spawn(move || shared.run(&facts))?;
        Ok(Self {
            state,
            thread: Some(thread),
        })
    }

    /// Lists further addresses of the node.
    pub fn add(&self, addresses: impl IntoIterator<Item = (String, String)>) {
        let mut orders = self.state.orders.lock();
        for address in addresses {
            if !orders.more.contains(&address) {
                orders.more.push(address);
            }
        }
        drop(orders);
        self.look();
    }

    /// Has the next look taken at once.
    pub fn look(&self) {
        self.state.orders.lock().is_due = true;
        self.state.wake.notify_all();
    }

    /// Notes in the table that the node has ended.
    pub fn leave(mut self) {
        self.end();
        let joined = self.state.orders.lock().joined.take();
        if let Some((number, facts)) = joined
            && let Err(error) = self.state.directory.leave(number, facts.incarnation)
        {
            tracing::warn!(%error, "this node stays in the list of nodes for a while");
        }
    }

    fn end(&mut self) {
        self.state.orders.lock().has_ended = true;
        self.state.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    fn run(&self, facts: &NodeFacts) {
        let mut sightings = Sightings::new(self.lease * SILENT_LEASES);
        let mut last = String::new();
        loop {
            let mut pause = interval(self.lease);
            let looked = self.look(facts, &mut sightings);
            let said = match looked {
                Ok(true) => String::new(),
                Ok(false) => {
                    let mut orders = self.orders.lock();
                    (orders.joined, orders.is_taken) = (None, true);
                    drop(orders);
                    pause = TAKEN_PAUSE;
                    "another node has this node's name or address".to_owned()
                }
                Err(error) => {
                    sightings.miss(uptime().unwrap_or_default());
                    error.to_string()
                }
            };
            if said != last {
                if !said.is_empty() {
                    tracing::warn!(reason = %said, "this node is not in the list of nodes");
                }
                last = said;
            }
            if self.pause(pause) {
                return;
            }
        }
    }

    /// Registers the node where that is not done, and looks at all nodes. False if another has its name.
    fn look(&self, facts: &NodeFacts, sightings: &mut Sightings) -> Result<bool, DatabaseError> {
        let orders = self.orders.lock();
        let (joined, is_taken) = (orders.joined.clone(), orders.is_taken);
        let more = orders.more.clone();
        drop(orders);
        let is_listed = |facts: &NodeFacts| more.iter().all(|(name, _)| facts.address(name).is_some());
        let listed = joined.as_ref().filter(|(_, facts)| is_listed(facts));
        let (number, facts) = if let Some(listed) = listed {
            listed.clone()
        } else {
            let mut facts = joined.map_or_else(|| facts.clone(), |(_, facts)| facts);
            for (name, address) in more {
                if facts.address(&name).is_none() {
                    facts.addresses.push((name, address));
                }
            }
            let silence = is_taken.then_some(self.lease * SILENT_LEASES);
            let Some(number) = self.directory.join(&mut facts, silence)? else {
                return Ok(false);
            };
            self.orders.lock().joined = Some((number, facts.clone()));
            (number, facts)
        };
        let roll = self.directory.roll(number, facts.incarnation)?;
        let is_registered = roll.is_registered;
        let view = sightings.view(number, roll, uptime().unwrap_or_default());
        (self.on_view)(view);
        Ok(is_registered)
    }

    /// Waits until the next look is due. True at the end.
    fn pause(&self, pause: Duration) -> bool {
        let orders = self.orders.lock();
        let waits = |orders: &mut Orders| !orders.has_ended && !orders.is_due;
        let mut orders = self.wake.wait_timeout_while(orders, pause, waits);
        orders.is_due = false;
        orders.has_ended
    }
}
