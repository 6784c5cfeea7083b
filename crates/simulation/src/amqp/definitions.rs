//! Definitions that come and go: queues, exchanges and bindings, also at a broker whose journal has failed.
//! An answered definition is in force after the next start; one without an answer may be.

use std::collections::{BTreeMap, VecDeque};

use stafett_amqp_wire::Method;
use stafett_amqp_wire::methods::{exchange, queue};
use stafett_model::Namespace;

use super::client::Client;
use crate::random::Random;
use crate::server::Server;
use crate::world::{Broken, Finding, World};

/// Number of the client.
const NUMBER: u8 = u8::MAX - 2;
/// Number of queues, each with an exchange of its own.
const PAIRS: u8 = 3;

/// Step of the client that makes definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionStep {
    /// A queue and an exchange are declared and bound.
    Make {
        pair: u8,
    },
    DeleteQueue {
        pair: u8,
    },
    DeleteExchange {
        pair: u8,
    },
    Unbind {
        pair: u8,
    },
}

impl DefinitionStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let pair = small(PAIRS);
        match small(8) {
            0 => Self::DeleteQueue { pair },
            1 => Self::DeleteExchange { pair },
            2 => Self::Unbind { pair },
            _ => Self::Make { pair },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Queue(u8),
    Exchange(u8),
    Binding(u8),
}

/// Existence of a definition, as far as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    No,
    Yes,
    Perhaps,
}

/// Definitions as their client knows them.
#[derive(Debug, Clone)]
pub(super) struct Definitions {
    pub(super) client: Client,
    known: BTreeMap<Thing, Known>,
    /// Unanswered changes, each with the definitions that it adds or removes.
    waiting: VecDeque<Vec<(Thing, bool)>>,
}

impl Definitions {
    pub(super) fn new() -> Self {
        Self {
            client: Client::new(NUMBER),
            known: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    fn ask(&mut self, method: Method, changes: Vec<(Thing, bool)>) {
        for (thing, is_there) in &changes {
            let target = if *is_there { Known::Yes } else { Known::No };
            let known = self.known.entry(*thing).or_insert(Known::No);
            if *known != target {
                *known = Known::Perhaps;
            }
        }
        self.client.send(method);
        self.waiting.push_back(changes);
    }

    /// Takes the answers that came.
    pub(super) fn turn(&mut self) {
        for _ in 0..std::mem::take(&mut self.client.declared) {
            for (thing, is_there) in self.waiting.pop_front().unwrap_or_default() {
                let is_changing = self.waiting.iter().flatten().any(|(other, _)| *other == thing);
                let known = if is_there { Known::Yes } else { Known::No };
                if !is_changing {
                    self.known.insert(thing, known);
                }
            }
        }
        if !self.client.is_connected() {
            self.waiting.clear();
        }
    }

    /// Declares a queue and an exchange, and binds them.
    fn make(&mut self, pair: u8) {
        let [queue, exchange] = names(pair);
        let queue_declare = queue::Declare {
            queue: queue.clone().into(),
            durable: true,
            ..queue::Declare::default()
        };
        let exchange_declare = exchange::Declare {
            exchange: exchange.clone().into(),
            kind: "direct".into(),
            durable: true,
            ..exchange::Declare::default()
        };
        let mut declarations: [(Method, Thing); 2] = [
            (queue_declare.into(), Thing::Queue(pair)),
            (exchange_declare.into(), Thing::Exchange(pair)),
        ];
        // The first one that is refused ends the connection.
        if pair > 0 {
            declarations.reverse();
        }
        for (declare, thing) in declarations {
            self.ask(declare, vec![(thing, true)]);
        }
        let bind = queue::Bind {
            queue: queue.into(),
            exchange: exchange.into(),
            ..queue::Bind::default()
        };
        self.ask(bind.into(), vec![(Thing::Binding(pair), true)]);
    }
}

impl World {
    pub fn definition_step(&mut self, server: &mut Server, step: DefinitionStep) -> Result<(), Finding> {
        let it = &mut self.amqp.definitions;
        if it.client.is_closing() {
            return Ok(());
        }
        it.client.connect(server)?;
        match step {
            DefinitionStep::Make { pair } => it.make(pair),
            DefinitionStep::DeleteQueue { pair } => {
                let [queue, _] = names(pair);
                let delete = queue::Delete {
                    queue: queue.into(),
                    ..queue::Delete::default()
                };
                let changes = vec![(Thing::Queue(pair), false), (Thing::Binding(pair), false)];
                it.ask(delete.into(), changes);
            }
            DefinitionStep::DeleteExchange { pair } => {
                let [_, exchange] = names(pair);
                let delete = exchange::Delete {
                    exchange: exchange.into(),
                    ..exchange::Delete::default()
                };
                let changes = vec![(Thing::Exchange(pair), false), (Thing::Binding(pair), false)];
                it.ask(delete.into(), changes);
            }
            DefinitionStep::Unbind { pair } => {
                let is_known = |thing| it.known.get(&thing) == Some(&Known::Yes);
                // Without one of them the channel would end.
                if !is_known(Thing::Queue(pair)) || !is_known(Thing::Exchange(pair)) {
                    return Ok(());
                }
                let [queue, exchange] = names(pair);
                let unbind = queue::Unbind {
                    queue: queue.into(),
                    exchange: exchange.into(),
                    ..queue::Unbind::default()
                };
                it.ask(unbind.into(), vec![(Thing::Binding(pair), false)]);
            }
        }
        Ok(())
    }

    /// Checks after a start that definitions are there, or not, as was answered.
    pub fn check_definitions(&mut self, server: &Server) -> Result<(), Broken> {
        let (messaging, namespace) = (server.broker.messaging(), Namespace::default());
        let is_there = |thing: Thing| match thing {
            Thing::Queue(pair) => messaging.queues().get(&namespace, &names(pair)[0]).is_some(),
            Thing::Exchange(pair) => messaging.exchanges().get(&namespace, &names(pair)[1]).is_some(),
            Thing::Binding(pair) => {
                let bindings = messaging.exchanges().bindings_from(&namespace, &names(pair)[1]);
                !bindings.is_empty()
            }
        };
        for (thing, known) in &mut self.amqp.definitions.known {
            let found = if is_there(*thing) { Known::Yes } else { Known::No };
            if *known != Known::Perhaps && *known != found {
                return Err(
                    Finding(format!("{thing:?} is known as {known:?} and found as {found:?}")).into(),
                );
            }
            *known = found;
        }
        Ok(())
    }
}

fn names(pair: u8) -> [String; 2] {
    [format!("made{pair}"), format!("maker{pair}")]
}
