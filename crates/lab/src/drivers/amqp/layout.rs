//! Queues and exchanges that stand for a set of destinations.
//!
//! ```text
//! shared by one audience           everything for each of several audiences
//!
//! default exchange                 exchange ─┬─ queue of audience a
//!        └─ queue(s)                         └─ queue of audience b
//! ```
//!
//! A topic's partitions are as many queues, which its sender fills in turn. Behind an exchange each audience
//! has one queue for each topic, whatever the partitions; or one queue for all of them (`one_queue`), with a
//! binding for each.

use stafett_amqp_wire::methods::{exchange, queue};
use stafett_amqp_wire::{ByteString, Method, Table, TableBuilder, Value};

use crate::drivers::{Destinations, Reads, Seat};
use crate::experiment::ExchangeKind;

/// Persistent and transient messages (AMQP 0-9-1, delivery-mode).
const PERSISTENT: u8 = 2;
const TRANSIENT: u8 = 1;

/// The destinations in AMQP's words.
#[derive(Debug)]
pub struct Layout<'a> {
    destinations: &'a Destinations,
    durable: bool,
    pub delivery_mode: u8,
    arguments: Table,
}

/// Exchange and routing key of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub exchange: String,
    pub routing_key: String,
}

impl<'a> Layout<'a> {
    /// Settings are AMQP's own: `durable`, `delivery_mode`, and arguments of queues (`x-…`); a later one
    /// counts.
    pub fn of(destinations: &'a Destinations) -> Self {
        let setting = |wanted: &str| {
            let mut found = destinations.settings.iter().rev();
            found.find_map(|(name, value)| (name == wanted).then_some(value.as_str()))
        };
        let mut arguments = TableBuilder::new();
        let mut named: Vec<&str> = Vec::new();
        for (name, _) in destinations
            .settings
            .iter()
            .filter(|(name, _)| name.starts_with("x-"))
        {
            if !named.contains(&name.as_str()) {
                named.push(name);
                arguments.push(name, &value(setting(name).unwrap_or_default()));
            }
        }
        let is_persistent = setting("delivery_mode") == Some("2");
        Self {
            destinations,
            durable: setting("durable") == Some("true"),
            delivery_mode: if is_persistent { PERSISTENT } else { TRANSIENT },
            arguments: arguments.finish(),
        }
    }

    /// Queues of one destination that a sender fills in turn.
    pub fn lanes(&self) -> u32 {
        if self.destinations.exchange.is_some() {
            1
        } else {
            self.destinations.partitions.max(1)
        }
    }

    pub fn address(&self, place: usize, lane: u32) -> Address {
        match self.exchange(place) {
            Some(exchange) => Address {
                exchange,
                routing_key: self.name(place).to_owned(),
            },
            None => Address {
                exchange: String::new(),
                routing_key: self.shared_queue(place, lane),
            },
        }
    }

    /// The queues of all destinations for which `is_wanted` says so, for an audience.
    pub fn queues(&self, audience: &str, mut is_wanted: impl FnMut(usize) -> bool) -> Vec<String> {
        let places = (0..self.destinations.names.len()).filter(|place| is_wanted(*place));
        if self.destinations.one_queue {
            return places.take(1).map(|_| self.own_queue(0, audience)).collect();
        }
        if self.destinations.exchange.is_some() {
            return places.map(|place| self.own_queue(place, audience)).collect();
        }
        let lanes = self.lanes();
        places
            .flat_map(|place| (0..lanes).map(move |lane| (place, lane)))
            .map(|(place, lane)| self.shared_queue(place, lane))
            .collect()
    }

    /// Returns the methods that create all of them, exchanges first.
    pub(super) fn definitions(&self) -> impl Iterator<Item = Method> + '_ {
        let exchanges = self
            .exchanges()
            .into_iter()
            .map(move |name| self.declare_exchange(name));
        let places = 0..self.destinations.names.len();
        exchanges.chain(places.flat_map(move |place| self.definitions_of(place)))
    }

    /// Returns the methods that delete all of them.
    pub(super) fn deletions(&self) -> impl Iterator<Item = Method> + '_ {
        let exchanges = self.exchanges().into_iter().map(|name| {
            let delete = exchange::Delete {
                exchange: name.into(),
                no_wait: true,
                ..exchange::Delete::default()
            };
            delete.into()
        });
        let places = 0..self.destinations.names.len();
        let queues = places.filter(move |place| self.has_queues(*place));
        let queues = queues.flat_map(move |place| self.queues_of(place)).map(|name| {
            let delete = queue::Delete {
                queue: name.into(),
                no_wait: true,
                ..queue::Delete::default()
            };
            delete.into()
        });
        queues.chain(exchanges)
    }

    /// Returns the methods that take back the bindings of an audience's queues.
    pub(super) fn unbindings(&self, audience: &str) -> Vec<Method> {
        let places = 0..self.destinations.names.len();
        let unbind = |place: usize| {
            let of = if self.has_queues(place) { place } else { 0 };
            let unbind = queue::Unbind {
                queue: self.own_queue(of, audience).into(),
                exchange: self.exchange(place)?.into(),
                routing_key: self.name(place).into(),
                ..queue::Unbind::default()
            };
            Some(unbind.into())
        };
        places.filter_map(unbind).collect()
    }

    fn name(&self, place: usize) -> &str {
        self.destinations.names.get(place).map_or("", String::as_str)
    }

    fn shared_queue(&self, place: usize, lane: u32) -> String {
        let name = self.name(place);
        if self.lanes() == 1 {
            name.to_owned()
        } else {
            format!("{name}-{lane}")
        }
    }

    fn own_queue(&self, place: usize, audience: &str) -> String {
        format!("{}-{audience}", self.name(place))
    }

    /// A fan-out exchange minds no key, so each destination has its own; the others tell destinations apart
    /// by it.
    fn exchange(&self, place: usize) -> Option<String> {
        match self.destinations.exchange? {
            ExchangeKind::Fanout => Some(self.name(place).to_owned()),
            ExchangeKind::Direct | ExchangeKind::Topic => Some(self.name(0).to_owned()),
        }
    }

    fn exchanges(&self) -> Vec<String> {
        let mut all: Vec<String> = (0..self.destinations.names.len())
            .filter_map(|place| self.exchange(place))
            .collect();
        all.dedup();
        all
    }

    /// True if the topic has queues of its own, and not those of the first one.
    fn has_queues(&self, place: usize) -> bool {
        place == 0 || !self.destinations.one_queue
    }

    fn queues_of(&self, place: usize) -> Vec<String> {
        if self.destinations.exchange.is_none() {
            return self.queues("", |other| other == place);
        }
        let audiences = self.destinations.audiences.iter();
        let of = if self.has_queues(place) { place } else { 0 };
        audiences.map(|audience| self.own_queue(of, audience)).collect()
    }

    fn definitions_of(&self, place: usize) -> Vec<Method> {
        let mut all = Vec::new();
        for name in self.queues_of(place) {
            let name = ByteString::from(name);
            let declare = queue::Declare {
                queue: name.clone(),
                durable: self.durable,
                no_wait: true,
                arguments: self.arguments.clone(),
                ..queue::Declare::default()
            };
            if self.has_queues(place) {
                all.push(declare.into());
            }
            if let Some(exchange) = self.exchange(place) {
                let bind = queue::Bind {
                    queue: name,
                    exchange: exchange.into(),
                    routing_key: self.name(place).into(),
                    no_wait: true,
                    ..queue::Bind::default()
                };
                all.push(bind.into());
            }
        }
        all
    }

    fn declare_exchange(&self, name: String) -> Method {
        let kind = self.destinations.exchange.map_or("", ExchangeKind::name);
        let declare = exchange::Declare {
            exchange: name.into(),
            kind: kind.into(),
            durable: self.durable,
            no_wait: true,
            ..exchange::Declare::default()
        };
        declare.into()
    }
}

/// The queues of a seat: all, its own, or its share.
pub fn queues(seat: &Seat) -> Vec<String> {
    let layout = Layout::of(&seat.destinations);
    match seat.reads {
        Reads::All => layout.queues(&seat.group, |_| true),
        Reads::One(one) => {
            let count = seat.destinations.names.len().max(1);
            let wanted = usize::try_from(one).unwrap_or(usize::MAX) % count;
            layout.queues(&seat.group, |place| place == wanted)
        }
        Reads::Share => {
            let all = layout.queues(&seat.group, |_| true);
            share(all, seat.client, seat.clients)
        }
    }
}

/// Queues are shared out by number; where there are fewer of them than clients, several clients share one.
fn share(all: Vec<String>, client: u32, clients: u32) -> Vec<String> {
    let client = usize::try_from(client).unwrap_or(0);
    let clients = usize::try_from(clients).unwrap_or(1).max(1);
    let count = all.len().max(1);
    let is_ours = |number: usize| {
        if count < clients {
            number == client % count
        } else {
            number % clients == client
        }
    };
    let numbered = all.into_iter().enumerate();
    numbered
        .filter_map(|(number, queue)| is_ours(number).then_some(queue))
        .collect()
}

/// Arguments that are whole numbers are sent as such.
fn value(text: &str) -> Value {
    match text.parse() {
        Ok(number) => Value::I64(number),
        Err(_) => ByteString::from(text).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destinations() -> Destinations {
        Destinations {
            names: vec!["a".to_owned(), "b".to_owned()],
            partitions: 1,
            settings: vec![
                ("durable".to_owned(), "true".to_owned()),
                ("delivery_mode".to_owned(), "2".to_owned()),
                ("x-queue-type".to_owned(), "classic".to_owned()),
                ("x-max-length".to_owned(), "10".to_owned()),
                ("x-queue-type".to_owned(), "quorum".to_owned()),
            ],
            ..Destinations::default()
        }
    }

    fn told(methods: impl Iterator<Item = Method>) -> Vec<&'static str> {
        methods.map(|method| method.name()).collect()
    }

    #[test]
    fn settings_become_properties_and_arguments_and_the_last_one_counts() {
        let destinations = destinations();
        let layout = Layout::of(&destinations);
        assert!(layout.durable);
        assert_eq!(layout.delivery_mode, 2);
        let arguments = &layout.arguments;
        assert_eq!(arguments.get("x-queue-type").unwrap().text(), Some("quorum"));
        assert_eq!(arguments.get("x-max-length").unwrap().integer(), Some(10));
        assert_eq!(arguments.iter().count(), 2);
        let transient = Destinations::default();
        assert_eq!(Layout::of(&transient).delivery_mode, 1);
    }

    #[test]
    fn one_audience_shares_queues_behind_the_default_exchange() {
        let mut destinations = destinations();
        let layout = Layout::of(&destinations);
        assert_eq!(told(layout.definitions()), ["queue.declare", "queue.declare"]);
        assert_eq!(layout.queues("any", |_| true), ["a", "b"]);
        assert_eq!(layout.address(1, 0).routing_key, "b");
        destinations.partitions = 2;
        let layout = Layout::of(&destinations);
        assert_eq!(layout.queues("any", |place| place == 1), ["b-0", "b-1"]);
        assert_eq!(layout.address(0, 1).routing_key, "a-1");
        assert_eq!(told(layout.deletions()), ["queue.delete"; 4]);
    }

    #[test]
    fn several_audiences_have_a_queue_each_behind_an_exchange() {
        let mut destinations = destinations();
        destinations.audiences = vec!["x".to_owned(), "y".to_owned()];
        destinations.exchange = Some(ExchangeKind::Fanout);
        let layout = Layout::of(&destinations);
        let defined = told(layout.definitions());
        assert_eq!(defined.len(), 2 + 2 * 2 * 2);
        assert_eq!(defined.first(), Some(&"exchange.declare"));
        assert_eq!(layout.queues("y", |_| true), ["a-y", "b-y"]);
        assert_eq!(layout.address(1, 0).exchange, "b");
        assert_eq!(told(layout.deletions()).len(), 4 + 2);
        destinations.exchange = Some(ExchangeKind::Topic);
        let layout = Layout::of(&destinations);
        let address = layout.address(1, 0);
        assert_eq!(
            (address.exchange.as_str(), address.routing_key.as_str()),
            ("a", "b")
        );
        assert_eq!(layout.exchanges(), ["a"]);
    }

    #[test]
    fn one_queue_of_an_audience_has_a_binding_for_each_topic() {
        let mut destinations = destinations();
        destinations.audiences = vec!["x".to_owned()];
        destinations.exchange = Some(ExchangeKind::Direct);
        destinations.one_queue = true;
        let layout = Layout::of(&destinations);
        assert_eq!(
            told(layout.definitions()),
            ["exchange.declare", "queue.declare", "queue.bind", "queue.bind"]
        );
        assert_eq!(layout.queues("x", |_| true), ["a-x"]);
        assert_eq!(layout.address(1, 0).routing_key, "b");
        assert_eq!(told(layout.deletions()), ["queue.delete", "exchange.delete"]);
    }

    fn shares(queues: usize, clients: u32) -> Vec<Vec<String>> {
        let all: Vec<String> = (0..queues).map(|number| number.to_string()).collect();
        (0..clients)
            .map(|client| share(all.clone(), client, clients))
            .collect()
    }

    #[test]
    fn every_queue_has_a_client_and_every_client_a_queue() {
        assert_eq!(shares(3, 2), [vec!["0", "2"], vec!["1"]]);
        assert_eq!(shares(2, 3), [["0"], ["1"], ["0"]]);
        assert_eq!(shares(1, 1), [["0"]]);
    }
}
