//! Messages between a controller and an agent.
//!
//! ```text
//! frame   u32 length of the rest, big-endian
//!         u8  kind: 0 a message in JSON, 1 bytes that are read and forgotten (to measure the network)
//!         …   content
//! ```
//!
//! The agent speaks first: [`Greeting`]; then [`Introduction`], [`IntroductionReply`]; then [`ToAgent`] and
//! [`FromAgent`] in any order. Readers bound the length before they take memory.

mod frames;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::frames::{ProtocolError, Reader, fill, send, send_within};
use crate::drivers::DriverError;
use crate::experiment::Plan;
use crate::workload::client_placement::Seating;
use crate::workload::load::{Loaded, Second};
use crate::workload::together::{HostSecond, Progress};

/// The version of this protocol. Both sides have the same.
pub const VERSION: u32 = 8;
/// Before the other side has proven itself.
pub const INTRODUCTION_BYTES_MAX: usize = 4 << 10;
/// Longest message to an agent.
pub const ORDER_BYTES_MAX: usize = 1 << 20;
/// Longest report: the last one accounts for every message, a bit each.
pub const REPORT_BYTES_MAX: usize = 256 << 20;
/// An agent's first words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    pub protocol: u32,
    pub version: String,
    pub needs_secret: bool,
    pub challenge: String,
}

/// Introduction of a controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    pub protocol: u32,
    pub version: String,
    pub proof: Option<String>,
    pub challenge: String,
}

/// Answer to an introduction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IntroductionReply {
    Welcome { proof: Option<String>, machine: Machine },
    Refused { reason: String },
}

/// Machine of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The same for all agents of one machine: they share its cores.
    pub id: String,
    pub cores: u32,
    pub memory_bytes: u64,
    pub cpu: String,
    pub kernel: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToAgent {
    /// Is answered at once. Also says that the controller is there.
    Ping(u64),
    /// For a number of milliseconds, sends bytes that are forgotten; then tells how many.
    Flood(u64),
    /// Asks which driver would send and receive.
    Describe(Box<Question>),
    Prepare(Box<Preparation>),
    Begin,
    /// The clients of a role have ended on all hosts.
    Over(String),
    /// New rate of all clients of a role together, on all hosts, in messages per second.
    Rate {
        role: String,
        rate: f64,
    },
    /// By role, how many messages its clients on this host may have sent since the load began.
    Allow {
        load: u64,
        made: BTreeMap<String, u64>,
    },
    /// There is nothing left to be sent.
    End,
    /// There is nothing left to be received.
    Stop,
    /// Ends a load that was prepared or begun; its results are still reported.
    Abandon,
}

/// Question about a driver, before there is a system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    pub plan: Plan,
    pub system: String,
}

/// A driver, as it stands beside its figures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Described {
    pub name: String,
    pub version: String,
    /// Part of the plan that it cannot do.
    pub lacks: Option<String>,
}

/// A host's share of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// Answers say which load they are about.
    pub load: u64,
    pub plan: Plan,
    pub seating: Seating,
    pub system: String,
    pub address: String,
    /// Name of the point in the names of topics, and the settings of these.
    pub tag: String,
    pub topic_settings: Vec<(String, String)>,
    /// It is the whole load.
    pub alone: Option<Alone>,
}

/// A load that one host runs alone, beside its system. It waits for no other host and ends by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alone {
    /// Processes of the system.
    pub brokers: Vec<u32>,
    /// Ends when all that was to be sent has come.
    pub ends_early: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    Pong(u64),
    Flooded(u64),
    Driver(Described),
    /// Of a load that was prepared.
    Load {
        load: u64,
        said: OfLoad,
    },
}

/// Report of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfLoad {
    /// Of one that the host runs alone.
    Second(Second),
    Progress(Progress),
    Seconds(HostSecond),
    /// The last that is said of it.
    Done(Box<Loaded>),
    /// Instead.
    Failed(DriverError),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn read(bytes: &[u8]) -> Result<ToAgent, ProtocolError> {
        Reader::new(bytes, 1000).next().await
    }

    #[tokio::test]
    async fn what_is_sent_is_read_whatever_stands_between() {
        let mut bytes = Vec::new();
        fill(&mut bytes, &[7; 500]).await.unwrap();
        send(&mut bytes, &ToAgent::Ping(5)).await.unwrap();
        send(&mut bytes, &ToAgent::Over("producers".to_owned()))
            .await
            .unwrap();
        let mut reader = Reader::new(bytes.as_slice(), 1000);
        assert_eq!(reader.next::<ToAgent>().await.unwrap(), ToAgent::Ping(5));
        assert_eq!(
            reader.next::<ToAgent>().await.unwrap(),
            ToAgent::Over("producers".to_owned())
        );
        assert!(matches!(
            reader.next::<ToAgent>().await,
            Err(ProtocolError::Ended)
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_message_to_a_slow_reader_is_sent_and_one_to_nobody_is_not() {
        let (mut here, there) = tokio::io::duplex(64 << 10);
        let long = ToAgent::Over("x".repeat(1 << 20));
        let slow = async {
            let mut reader = there;
            let mut bytes = vec![0; 100 << 10];
            for _ in 0..12 {
                // Slower as a whole than anybody waits for nothing.
                tokio::time::sleep(Duration::from_secs(9)).await;
                reader.read_exact(&mut bytes[..(1 << 20) / 12]).await.unwrap();
            }
            reader
        };
        let (sent, reader) = tokio::join!(send_within(Duration::from_secs(10), &mut here, &long), slow);
        sent.unwrap();
        let error = send_within(Duration::from_secs(10), &mut here, &long)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "it took nothing for 10 s");
        drop(reader);
    }

    #[tokio::test]
    async fn what_is_not_of_the_protocol_is_refused_before_it_takes_memory() {
        let long = [0xff, 0xff, 0xff, 0xff, 0];
        assert!(matches!(read(&long).await, Err(ProtocolError::TooLong { .. })));
        for (bytes, says) in [
            (&[0, 0, 0, 0][..], "an empty frame"),
            (&[0, 0, 0, 1, 9], "kind 9"),
            (&[0, 0, 0, 3, 0, b'{', b'}'], "not of this protocol"),
            (&[0, 0, 0, 2, 0, 0xff], "not of this protocol"),
            (b"GET / HTTP/1.1\r\n\r\n", "frame of"),
        ] {
            let error = read(bytes).await.unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(matches!(read(&[0, 0, 0, 9, 0]).await, Err(ProtocolError::Ended)));
    }
}
