//! One connection that sends requests and reports each answer as a line.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use stafett_kafka_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use stafett_kafka_wire::messages::metadata::MetadataRequestTopic;
use stafett_kafka_wire::messages::{
    ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, FindCoordinatorRequest, ListOffsetsRequest,
    MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest,
};
use stafett_kafka_wire::{ApiKey, DecodeLimits, Message, Request, Str, Uuid, frame};

use crate::broker::is_stafett;

/// Time after which Kafka's silence counts as its answer.
const PEER_LIMIT: Duration = Duration::from_secs(3);
/// Guard against a hanging test, not an expectation.
const LIMIT: Duration = Duration::from_mins(4);
/// Time after which a missing coordinator counts as the answer.
const COORDINATOR_LIMIT: Duration = Duration::from_secs(20);
/// Error codes of a coordinator that is missing, loading or elsewhere.
const COORDINATOR_CODES: [&str; 3] = ["14", "15", "16"];
const CORRELATION: i32 = 77;

pub(super) const CLOSED: &str = "closed";

/// Outcome of a request without an answer.
#[derive(Debug)]
pub(super) enum Ended {
    Closed,
    /// Kafka does not answer if a request makes its handler fail.
    Silent,
}

impl Ended {
    pub(super) fn name(self) -> String {
        let name = match self {
            Self::Closed => CLOSED,
            Self::Silent => "silent",
        };
        name.to_owned()
    }
}

#[derive(Debug)]
pub(super) struct Asker {
    address: String,
    stream: TcpStream,
}

impl Asker {
    pub(super) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let limit = if is_stafett() { LIMIT } else { PEER_LIMIT };
        stream.set_read_timeout(Some(limit)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            address: address.to_owned(),
            stream,
        }
    }

    /// Another connection to the same broker.
    pub(super) fn another(&self) -> Self {
        Self::connect(&self.address)
    }

    /// Logs in with the mechanism PLAIN.
    pub(super) fn log_in(&mut self, user: &str, password: &str) {
        let handshake = SaslHandshakeRequest {
            mechanism: text("PLAIN"),
        };
        assert_eq!(self.codes(1, &handshake), "0");
        let proof = SaslAuthenticateRequest {
            auth_bytes: format!("\0{user}\0{password}").into_bytes().into(),
        };
        assert_eq!(self.codes(2, &proof), "0", "{user}");
    }

    /// Returns the names of the APIs that the broker lists.
    pub(super) fn served(&mut self) -> BTreeSet<String> {
        let answer = self.ask(3, &named()).unwrap();
        let name = |code| ApiKey::try_from(code).map(|api: ApiKey| format!("{api:?}"));
        answer
            .api_keys
            .iter()
            .filter_map(|api| name(api.api_key).ok())
            .collect()
    }

    pub(super) fn ask<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, Ended> {
        let bytes = encoded(version, request);
        self.send(&bytes)?;
        let frame = self.frame()?;
        let (id, response) = frame::read_response::<R>(frame, version, DecodeLimits::default())
            .unwrap_or_else(|error| panic!("{} {version}: {error}", R::NAME));
        assert_eq!(id, CORRELATION);
        Ok(response)
    }

    /// The error codes of the answer, in a line.
    pub(super) fn codes<R: Request>(&mut self, version: i16, request: &R) -> String {
        match self.ask(version, request) {
            Ok(response) => codes_of(&response),
            Err(ended) => ended.name(),
        }
    }

    /// Waits until groups have a coordinator: Kafka creates its own at the first lookup.
    pub(super) fn await_coordinator(&mut self) {
        let request = FindCoordinatorRequest {
            coordinator_keys: vec![text("odd")],
            ..FindCoordinatorRequest::default()
        };
        assert_eq!(self.codes_of_coordinator(4, &request), "0 0");
    }

    /// Like [`Self::ask`], repeated until there is a coordinator.
    pub(super) fn ask_coordinator<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Ended> {
        let since = Instant::now();
        loop {
            let response = self.ask(version, request)?;
            let codes = codes_of(&response);
            if since.elapsed() > COORDINATOR_LIMIT
                || !codes.split(' ').any(|code| COORDINATOR_CODES.contains(&code))
            {
                return Ok(response);
            }
        }
    }

    pub(super) fn codes_of_coordinator<R: Request>(&mut self, version: i16, request: &R) -> String {
        match self.ask_coordinator(version, request) {
            Ok(response) => codes_of(&response),
            Err(ended) => ended.name(),
        }
    }

    /// Sends bytes and ends the sending side; `answered` or `closed`.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> String {
        if self.send(bytes).is_err() {
            return CLOSED.to_owned();
        }
        drop(self.stream.shutdown(Shutdown::Write));
        self.frame().map_or_else(Ended::name, |_| "answered".to_owned())
    }

    /// Sends bytes that are to be answered as a request of `R` would be.
    pub(super) fn raw_codes<R: Request>(&mut self, version: i16, bytes: &[u8]) -> String {
        let answer = self.send(bytes).and_then(|()| self.frame());
        answer.map_or_else(Ended::name, |frame| {
            frame::read_response::<R>(frame, version, DecodeLimits::default()).map_or_else(
                |error| format!("unreadable: {error}"),
                |(_, response)| codes_of(&response),
            )
        })
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.stream.write_all(bytes).map_err(|_| Ended::Closed)
    }

    fn frame(&mut self) -> Result<Bytes, Ended> {
        let mut length = [0; 4];
        self.fill(&mut length)?;
        let mut payload = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        self.fill(&mut payload)?;
        Ok(payload.into())
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Ended> {
        self.stream.read_exact(bytes).map_err(|error| {
            let late = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
            if late { Ended::Silent } else { Ended::Closed }
        })
    }

    /// Makes a topic, and waits until it has leaders. Returns its id.
    pub(super) fn topic(&mut self, name: &str, partitions: i32) -> Uuid {
        self.topic_with(name, partitions, &[])
    }

    pub(super) fn topic_with(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Uuid {
        let configs = configs
            .iter()
            .map(|(name, value)| CreatableTopicConfig {
                name: text(name),
                value: Some(text(value)),
            })
            .collect();
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: text(name),
                num_partitions: partitions,
                replication_factor: 1,
                configs,
                ..CreatableTopic::default()
            }],
            timeout_ms: 30_000,
            validate_only: false,
        };
        assert_eq!(self.codes(7, &request), "0", "{name}");
        let question = MetadataRequest {
            topics: Some(vec![MetadataRequestTopic {
                topic_id: Uuid::ZERO,
                name: Some(text(name)),
            }]),
            ..MetadataRequest::default()
        };
        let since = Instant::now();
        loop {
            let answer = self.ask(12, &question).unwrap();
            let topic = &answer.topics[0];
            let known = topic.error_code == 0 && topic.partitions.iter().all(|p| p.error_code == 0);
            if known && self.is_led(name, partitions) {
                return topic.topic_id;
            }
            assert!(since.elapsed() < LIMIT, "{name} did not come into being");
        }
    }

    pub(super) fn delete_topic(&mut self, name: &str) {
        let request = DeleteTopicsRequest {
            topic_names: vec![text(name)],
            timeout_ms: 30_000,
            ..DeleteTopicsRequest::default()
        };
        assert_eq!(self.codes(5, &request), "0", "{name}");
    }

    /// True if the broker leads the partitions: Kafka's metadata says so slightly too early.
    fn is_led(&mut self, topic: &str, partitions: i32) -> bool {
        let place = |partition_index| ListOffsetsPartition {
            partition_index,
            current_leader_epoch: -1,
            timestamp: -1,
        };
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: text(topic),
                partitions: (0..partitions.max(1)).map(place).collect(),
            }],
            ..ListOffsetsRequest::default()
        };
        self.codes(7, &request).split(' ').all(|code| code == "0")
    }
}

/// Builds an `ApiVersions` request of a client that names its software.
fn named() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: text("odd"),
        client_software_version: text("1"),
    }
}

/// A whole request, its length in front.
pub(super) fn encoded<R: Request>(version: i16, request: &R) -> Vec<u8> {
    frame::write_request(version, CORRELATION, Some(text("odd")), request)
        .unwrap()
        .into_bytes()
        .to_vec()
}

/// The codes in a response, sorted, as its debugging output names them: Kafka answers in the order of its
/// hash tables.
pub(super) fn codes_of<M: Message>(response: &M) -> String {
    let shown = format!("{response:?}").replace(" partition_error_code: ", " error_code: ");
    let mut codes: Vec<&str> = shown
        .split(" error_code: ")
        .skip(1)
        .map(|rest| rest.split([',', ' ', '}']).next().unwrap_or_default())
        .collect();
    codes.sort_unstable();
    if codes.is_empty() {
        "none".to_owned()
    } else {
        codes.join(" ")
    }
}

pub(super) fn text(text: &str) -> Str {
    Str::copy_from(text)
}
