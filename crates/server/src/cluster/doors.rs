//! Doors: ways to the protocol of a listener for connections that were accepted elsewhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stafett_net::Handed;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// Connections that wait in a door.
const WAITING_MAX: usize = 64;
/// Time for a listener to take a connection.
const HAND_MAX: Duration = Duration::from_secs(5);

type Senders = HashMap<&'static str, mpsc::Sender<Handed>>;

/// The doors of all listeners. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Doors(Arc<watch::Sender<Senders>>);

impl Doors {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Senders::new())))
    }

    /// Opens the door of a listener, instead of one that it had.
    pub(crate) fn open(&self, listener: &'static str) -> mpsc::Receiver<Handed> {
        let (door, handed) = mpsc::channel(WAITING_MAX);
        self.0.send_modify(|doors| {
            doors.insert(listener, door);
        });
        handed
    }

    /// Returns true if a listener takes connections.
    pub(crate) fn is_open(&self, listener: &str) -> bool {
        let doors = self.0.borrow();
        doors.get(listener).is_some_and(|door| !door.is_closed())
    }

    /// Gives a connection to a listener. False if that takes none for a while: the connection is closed.
    pub(crate) async fn hand(&self, listener: &str, handed: Handed) -> bool {
        let given = timeout(HAND_MAX, async {
            let mut doors = self.0.subscribe();
            let open = |doors: &Senders| doors.get(listener).filter(|door| !door.is_closed()).cloned();
            let door = {
                let doors = doors.wait_for(|doors| open(doors).is_some()).await.ok()?;
                open(&doors)?
            };
            door.send(handed).await.ok()
        });
        matches!(given.await, Ok(Some(())))
    }
}
