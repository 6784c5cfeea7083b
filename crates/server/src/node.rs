//! This process as the node behind the HTTP API: its state, and the commands that it takes.

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stafett_admin::cluster::{Cluster, ClusterObjects, no_cluster};
use stafett_admin::node::{
    Commanded, Listener, LogLevel, Node, ProcessMemory, Reloaded, Setting, Thread, Usage,
};
use stafett_amqp::{ManagedNode, NodeFacts};
use stafett_http::{Code, Health, Problem, State, slot};
use stafett_journal::disk::Clock;
use stafett_model::Lock;
use stafett_net::{ByteBudget, Connections, NetMetrics};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::cluster::{Member, compare};
use crate::config::SettingsInForce;
use crate::threads;
use crate::usage;

/// Time limit for a command.
const COMMAND_MAX: Duration = Duration::from_secs(30);

/// Command to change settings of the running process.
#[derive(Debug)]
pub(crate) enum Command {
    Reload(oneshot::Sender<Result<Reloaded, Problem>>),
    LogLevel {
        level: String,
        /// Time after which the setting is in force again.
        time: Option<Duration>,
        reply: oneshot::Sender<Result<LogLevel, Problem>>,
    },
}

/// Senders of commands, which outlive a restart of the process's parts.
#[derive(Debug, Clone)]
pub(crate) struct Commands {
    pub(crate) settings: mpsc::Sender<Command>,
    /// Requests to stop, with the time for connections to finish.
    pub(crate) stop: mpsc::Sender<Option<Duration>>,
}

/// Receivers of commands.
#[derive(Debug)]
pub(crate) struct ReceivedCommands {
    pub(crate) settings: mpsc::Receiver<Command>,
    pub(crate) stop: mpsc::Receiver<Option<Duration>>,
}

/// Returns the two ends of commands.
pub(crate) fn commands() -> (Commands, ReceivedCommands) {
    let (settings, received_settings) = mpsc::channel(1);
    let (stop, received_stop) = mpsc::channel(1);
    let received = ReceivedCommands {
        settings: received_settings,
        stop: received_stop,
    };
    (Commands { settings, stop }, received)
}

/// A listener of this process.
#[derive(Debug)]
pub(crate) struct ListenerFacts {
    pub(crate) name: &'static str,
    /// Address that clients are told.
    pub(crate) told: String,
    pub(crate) address: SocketAddr,
    /// Behaviour under overload, as in the settings.
    pub(crate) overload: &'static str,
}

/// This process.
#[derive(Debug)]
pub(crate) struct ThisNode {
    pub(crate) started_at: i64,
    pub(crate) health: Health,
    pub(crate) net: Arc<NetMetrics>,
    /// All open connections.
    pub(crate) registry: Arc<Connections>,
    pub(crate) budget: Arc<ByteBudget>,
    pub(crate) request_bytes_max: u64,
    pub(crate) settings: SettingsInForce,
    pub(crate) commands: Commands,
    pub(crate) listeners: Lock<Vec<ListenerFacts>>,
    pub(crate) data_dir: PathBuf,
    pub(crate) disk_free_bytes_min: u64,
    /// Limit on open files and sockets.
    pub(crate) descriptors_max: u64,
    /// Latest reading of the machine.
    pub(crate) usage: Lock<Usage>,
    /// Time since which a listener refuses work, in ms since 1970.
    pub(crate) overloaded_since: Lock<Option<i64>>,
    /// This node in a cluster.
    pub(crate) member: Option<Arc<Member>>,
}

impl ThisNode {
    /// Returns the open connections of each listener, and those that it accepted since the start.
    pub(crate) fn connections(&self) -> Vec<(i64, u64)> {
        let listeners = self.listeners.lock();
        let of = |facts: &ListenerFacts| {
            let listener = self.net.listener(facts.name);
            (listener.open.get(), listener.accepted.get())
        };
        listeners.iter().map(of).collect()
    }

    /// Returns the addresses that clients are told, by the names of listeners.
    pub(crate) fn addresses(&self) -> Vec<(&'static str, String)> {
        let listeners = self.listeners.lock();
        listeners
            .iter()
            .map(|facts| (facts.name, facts.told.clone()))
            .collect()
    }

    pub(crate) fn add_listener(&self, listener: ListenerFacts) {
        self.listeners.lock().push(listener);
    }
}

/// Returns the address that clients of a listener are told.
pub(crate) fn told(advertised: Option<&(String, u16)>, address: SocketAddr) -> String {
    match advertised {
        Some((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
        Some((host, port)) => format!("{host}:{port}"),
        None => address.to_string(),
    }
}

impl Node for ThisNode {
    fn name(&self) -> String {
        let member = self.member.as_ref();
        let of_machine = || usage::host_name().unwrap_or_else(|| "stafett".to_owned());
        member.map_or_else(of_machine, |member| format!("node-{}", member.view().own))
    }

    fn overloaded_since(&self) -> Option<i64> {
        *self.overloaded_since.lock()
    }

    fn state(&self) -> &'static str {
        self.health.state().word()
    }

    fn started_at(&self) -> i64 {
        self.started_at
    }

    fn listeners(&self) -> Vec<Listener> {
        let listeners = self.listeners.lock();
        let listener = |facts: &ListenerFacts| Listener {
            protocol: facts.name,
            address: facts.told.clone(),
            connections: self.net.listener(facts.name).open.get(),
            overload: facts.overload,
        };
        listeners.iter().map(listener).collect()
    }

    fn settings(&self) -> Vec<Setting> {
        self.settings.list()
    }

    fn memory(&self) -> ProcessMemory {
        ProcessMemory {
            resident_bytes: usage::resident_bytes().and_then(|bytes| u64::try_from(bytes).ok()),
            requests: (self.budget.in_use() as u64, self.request_bytes_max),
            waiting: self.budget.waiting(),
        }
    }

    fn usage(&self) -> Usage {
        *self.usage.lock()
    }

    fn threads(&self) -> io::Result<Vec<Thread>> {
        threads::all()
    }

    fn shut_down(&self, drain: Option<Duration>) -> Result<(), Problem> {
        if self.health.state() == State::Draining {
            return Ok(());
        }
        // A full channel has a request that was not seen yet.
        match self.commands.stop.try_send(drain) {
            Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(slot::closed()),
        }
    }

    fn cluster(&self) -> Commanded<Cluster> {
        let member = self.member.clone();
        Box::pin(async move {
            match member {
                Some(member) => Ok(member.report().await),
                None => Err(no_cluster()),
            }
        })
    }

    fn cluster_objects(&self) -> Commanded<ClusterObjects> {
        let member = self.member.clone();
        Box::pin(async move { compare(member.ok_or_else(no_cluster)?).await })
    }

    fn move_cell(&self, cell: u32, to: Option<u32>) -> Commanded<u32> {
        let member = self.member.clone();
        Box::pin(async move { member.ok_or_else(no_cluster)?.move_any(cell, to).await })
    }

    fn reload(&self) -> Commanded<Reloaded> {
        self.command(Command::Reload)
    }

    fn set_log_level(&self, level: String, time: Option<Duration>) -> Commanded<LogLevel> {
        self.command(|reply| Command::LogLevel { level, time, reply })
    }
}

impl ThisNode {
    /// Gives a command to the part that has the settings, which takes commands while the broker serves.
    fn command<T: Send + 'static>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, Problem>>) -> Command,
    ) -> Commanded<T> {
        let (reply, replied) = oneshot::channel();
        let command = command(reply);
        let commands = self.commands.settings.clone();
        let is_serving = self.health.state() == State::Ready;
        Box::pin(async move {
            if !is_serving {
                return Err(slot::closed());
            }
            let done = async {
                commands.send(command).await.map_err(|_| slot::closed())?;
                replied.await.unwrap_or_else(|_| Err(slot::closed()))
            };
            let late = "the command is not done yet; it may be later";
            timeout(COMMAND_MAX, done)
                .await
                .unwrap_or_else(|_| Err(Problem::new(Code::NotServing, late)))
        })
    }
}

impl ManagedNode for ThisNode {
    fn facts(&self) -> NodeFacts {
        let listeners = self.listeners.lock();
        let amqp = ["amqp", "amqp-tls"].map(|name| self.net.listener(name));
        let (memory_bytes, descriptors) = (usage::resident_bytes(), usage::open_descriptors());
        NodeFacts {
            is_serving: self.health.state() == State::Ready,
            uptime_ms: Clock::system().now_ms() - self.started_at,
            listeners: listeners
                .iter()
                .map(|listener| match listener.name {
                    // RabbitMQ's words.
                    "management" => ("http", listener.address),
                    "management-tls" => ("https", listener.address),
                    "amqp-tls" => ("amqp/ssl", listener.address),
                    name => (name, listener.address),
                })
                .collect(),
            connections: amqp.iter().map(|listener| listener.open.get()).sum(),
            connections_accepted: amqp.iter().map(|listener| listener.accepted.get()).sum(),
            memory_bytes: memory_bytes
                .and_then(|bytes| u64::try_from(bytes).ok())
                .unwrap_or_default(),
            memory_bytes_max: usage::machine_bytes().unwrap_or_default(),
            descriptors: descriptors
                .and_then(|count| u64::try_from(count).ok())
                .unwrap_or_default(),
            descriptors_max: self.descriptors_max,
            disk_free_bytes: usage::disk_free_bytes(&self.data_dir).unwrap_or_default(),
            disk_free_bytes_min: self.disk_free_bytes_min,
            processors: std::thread::available_parallelism().map_or(1, NonZero::get),
            product_version: env!("CARGO_PKG_VERSION"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advertised_address_is_the_one_that_clients_are_told() {
        let bound: SocketAddr = "0.0.0.0:9092".parse().unwrap();
        for (advertised, expected) in [
            (None, "0.0.0.0:9092"),
            (Some(("broker.example".to_owned(), 9093)), "broker.example:9093"),
            (Some(("::1".to_owned(), 9093)), "[::1]:9093"),
        ] {
            assert_eq!(told(advertised.as_ref(), bound), expected);
        }
    }
}
