//! Clients, by name and by number.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use stafett_routing::live::{IdSet, Pattern};

/// Name chosen by a client. The number 1 and the text `1` are two clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClientName {
    Number(i64),
    Text(Box<str>),
}

/// Bound on the bytes of a text name.
pub const CLIENT_NAME_BYTES_MAX: usize = 256;

/// Number of a client, valid while the client has subscriptions or listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNumber(pub u32);

#[derive(Debug, Default)]
pub(crate) struct Clients {
    by_name: HashTable<u32>,
    by_number: Vec<Option<Client>>,
    free: Vec<u32>,
    hash: RandomState,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) name: ClientName,
    /// Subscribed topics, by [`super::topics::TopicId`].
    pub(crate) topics: IdSet,
    pub(crate) patterns: Vec<Pattern>,
    /// Lower bound on the bytes of its subscriptions in rows.
    pub(crate) live_bytes: u64,
    pub(crate) rows: Rows,
    /// Number of changes in progress, plus one while it listens. A pinned client keeps its number.
    pub(crate) pins: u32,
}

/// Stored rows of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    /// True if the journal has the client.
    pub(crate) is_stored: bool,
    pub(crate) generation: u32,
    /// Number of rows of this generation.
    pub(crate) count: u32,
    /// Bytes of these rows.
    pub(crate) bytes: u64,
}

impl Rows {
    /// Returns the state after deleting all rows; the next generation is another one.
    #[must_use]
    pub(crate) fn cleared(self) -> Self {
        Self {
            generation: self.generation + 1,
            ..Self::default()
        }
    }
}

impl Client {
    pub(crate) fn subscriptions(&self) -> usize {
        self.topics.len() + self.patterns.len()
    }
}

impl Clients {
    pub(crate) fn find(&self, name: &ClientName) -> Option<ClientNumber> {
        let is_it = |number: &u32| {
            self.get(ClientNumber(*number))
                .is_some_and(|client| client.name == *name)
        };
        self.by_name
            .find(self.hash.hash_one(name), is_it)
            .copied()
            .map(ClientNumber)
    }

    /// Returns the number of a client, which is added if it is unknown.
    pub(crate) fn find_or_add(&mut self, name: &ClientName) -> ClientNumber {
        if let Some(number) = self.find(name) {
            return number;
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None => u32::try_from(self.by_number.len()).expect("there are fewer clients than numbers"),
        };
        self.put(ClientNumber(number), name.clone(), Rows::default());
        ClientNumber(number)
    }

    /// Adds a client under a free number.
    pub(crate) fn put(&mut self, number: ClientNumber, name: ClientName, rows: Rows) {
        let hash = self.hash.hash_one(&name);
        let place = position(number);
        if self.by_number.len() <= place {
            self.by_number.resize_with(place + 1, || None);
        }
        if let Some(slot) = self.by_number.get_mut(place) {
            *slot = Some(Client {
                name,
                topics: IdSet::default(),
                patterns: Vec::new(),
                live_bytes: 0,
                rows,
                pins: 0,
            });
        }
        let (clients, hasher) = (&self.by_number, &self.hash);
        self.by_name.insert_unique(hash, number.0, |number| {
            let client = clients.get(position(ClientNumber(*number)));
            client
                .and_then(Option::as_ref)
                .map_or(0, |client| hasher.hash_one(&client.name))
        });
    }

    /// Collects the free numbers. Must be called once all stored clients are loaded.
    pub(crate) fn find_free(&mut self) {
        self.free = (0..)
            .zip(&self.by_number)
            .filter(|(_, client)| client.is_none())
            .map(|(number, _)| number)
            .collect();
    }

    pub(crate) fn get(&self, number: ClientNumber) -> Option<&Client> {
        self.by_number.get(position(number)).and_then(Option::as_ref)
    }

    pub(crate) fn get_mut(&mut self, number: ClientNumber) -> Option<&mut Client> {
        self.by_number.get_mut(position(number)).and_then(Option::as_mut)
    }

    pub(crate) fn pin(&mut self, number: ClientNumber) {
        if let Some(client) = self.get_mut(number) {
            client.pins += 1;
        }
    }

    /// Removes a pin; a client with nothing left is removed.
    pub(crate) fn unpin(&mut self, number: ClientNumber) {
        let place = position(number);
        let Some(client) = self.by_number.get_mut(place).and_then(Option::as_mut) else {
            return;
        };
        client.pins -= 1;
        if client.pins > 0 || client.subscriptions() > 0 || client.rows.is_stored {
            return;
        }
        let hash = self.hash.hash_one(&client.name);
        if let Ok(entry) = self.by_name.find_entry(hash, |known| *known == number.0) {
            entry.remove();
        }
        if let Some(slot) = self.by_number.get_mut(place) {
            *slot = None;
        }
        self.free.push(number.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns the bytes on the heap, approximately: those of names are left out.
    pub(crate) fn heap_bytes(&self) -> usize {
        let of =
            |client: &Client| client.topics.heap_bytes() + client.patterns.capacity() * size_of::<Pattern>();
        self.by_number.capacity() * size_of::<Option<Client>>()
            + self.by_name.capacity() * size_of::<u32>()
            + self.by_number.iter().flatten().map(of).sum::<usize>()
    }

    /// Returns the clients among `count` numbers from `first` on, and the number behind those if there are
    /// more.
    pub(crate) fn numbers_from(
        &self,
        first: u32,
        count: usize,
    ) -> (impl Iterator<Item = ClientNumber> + '_, Option<u32>) {
        let behind = self
            .by_number
            .get(position(ClientNumber(first))..)
            .unwrap_or_default();
        let end = u32::try_from(count)
            .ok()
            .and_then(|count| first.checked_add(count));
        let clients = (first..)
            .zip(behind)
            .take(count)
            .filter(|(_, client)| client.is_some())
            .map(|(number, _)| ClientNumber(number));
        (clients, end.filter(|_| behind.len() > count))
    }
}

pub(crate) fn position(number: ClientNumber) -> usize {
    usize::try_from(number.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_one_and_the_text_one_are_two_clients() {
        let mut clients = Clients::default();
        let number = clients.find_or_add(&ClientName::Number(1));
        let text = clients.find_or_add(&ClientName::Text("1".into()));
        assert_ne!(number, text);
        assert_eq!(clients.find(&ClientName::Number(1)), Some(number));
    }

    #[test]
    fn a_number_is_free_again_once_nothing_of_its_client_is_left() {
        let mut clients = Clients::default();
        let first = clients.find_or_add(&ClientName::Number(1));
        clients.pin(first);
        clients.pin(first);
        clients.unpin(first);
        assert_eq!(clients.find(&ClientName::Number(1)), Some(first));
        clients.unpin(first);
        assert_eq!((clients.find(&ClientName::Number(1)), clients.len()), (None, 0));
        assert_eq!(clients.find_or_add(&ClientName::Number(2)), first);
    }
}
