//! Requests without a socket: frames go in, operations come out and get any outcome, responses come out.
//!
//! Handlers need no runtime: it is only used to start the broker, and for topics that are there before.

mod cell_transactions;
mod cells;
mod fetch;
mod group_cells;
mod groups;
mod produce;
mod topics;

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use prometheus_client::registry::Registry;
use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::MemoryJournal;
use stafett_kafka_wire::{DecodeLimits, Request, frame};
use stafett_model::{BatchBuilder, Codec, Lock, Record};
use stafett_net::{BudgetSettings, ByteBudget, ConnectionEntry, Frame};
use stafett_topics::{NewTopic, Topic, TopicSettings};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::authority::Identity;
use crate::call::ResponseResult;
use crate::context::{KafkaContext, RequestContext};
use crate::metrics::Metrics;
use crate::operation::{Operation, Then};
use crate::response_queue::{NextResponse, ResponseQueue};
use crate::session::Input;
use crate::settings::KafkaSettings;
use crate::{api, session};

/// The requests of one connection.
pub(crate) struct Bench {
    pub(crate) context: RequestContext,
    /// Requests that are not executed yet.
    held: VecDeque<Frame>,
    responses: ResponseQueue,
    runtime: Runtime,
}

/// Takes the next operation, which must be of the given kind.
macro_rules! operation {
    ($bench:expr, $pattern:pat => $parts:expr) => {{
        let Some($pattern) = $bench.responses.next_operation() else {
            panic!("another operation, or none");
        };
        $parts
    }};
}
use operation;

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(KafkaSettings::default())
    }

    fn with(kafka: KafkaSettings) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let mut settings = BrokerSettings::default();
        crate::add_hooks(&mut settings.hooks);
        let broker = runtime.block_on(Broker::start(Arc::new(MemoryJournal::new()), settings));
        let metrics = Metrics::register(api::served(), &mut Registry::default());
        let shared = KafkaContext::new(Arc::new(broker.unwrap()), kafka, metrics);
        let entry = ConnectionEntry::of(1, Arc::default());
        let context = RequestContext {
            identity: Identity::new(&shared.broker, &entry),
            shared: Arc::new(shared),
            entry,
            is_tls: false,
            upstream: OnceLock::new(),
            drain: CancellationToken::new(),
            budget: ByteBudget::new(BudgetSettings { bytes: 1 << 30 }),
            is_patient: AtomicBool::new(false),
            is_introduced: AtomicBool::new(false),
            opened_sessions: Lock::default(),
            shedding: None,
            trace: None,
            throttle: crate::throttle::Throttle::default(),
            has_refused: AtomicBool::new(false),
        };
        Self {
            context,
            held: VecDeque::new(),
            responses: ResponseQueue::default(),
            runtime,
        }
    }

    fn run<T>(&mut self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Creates a topic with one partition.
    fn with_topic(name: &str) -> (Self, Arc<Topic>) {
        let bench = Self::new();
        let new = NewTopic {
            name: name.into(),
            partitions: Some(1),
            settings: TopicSettings::default(),
        };
        let created = bench.context.shared.broker.catalog().create(vec![new]);
        let topic = bench.runtime.block_on(created).remove(0).unwrap();
        (bench, topic)
    }

    /// Adds a request to those of the next read.
    fn add<R: Request>(&mut self, version: i16, request: &R) {
        self.add_from(version, 0, None, request);
    }

    /// Adds a request with a correlation id and the id of its client.
    fn add_from<R: Request>(&mut self, version: i16, id: i32, client: Option<&'static str>, request: &R) {
        let request = frame::write_request(version, id, client.map(Into::into), request);
        self.add_bytes(&request.unwrap().into_bytes()[4..]);
    }

    /// Adds a frame.
    fn add_bytes(&mut self, payload: &[u8]) {
        let payload = Bytes::copy_from_slice(payload);
        let permit = self.context.budget.try_reserve(payload.len()).unwrap();
        self.held.push_back(Frame { payload, permit });
    }

    fn execute(&mut self) {
        session::on_input(
            &self.context,
            &mut self.held,
            &mut self.responses,
            Input::default(),
        );
    }

    /// Executes requests that waited too long.
    fn refuse(&mut self) {
        let input = Input {
            refuses: true,
            ..Input::default()
        };
        session::on_input(&self.context, &mut self.held, &mut self.responses, input);
    }

    fn send<R: Request>(&mut self, version: i16, request: &R) {
        self.add(version, request);
        self.execute();
    }

    /// Ends the operation of the first request with an outcome.
    fn done<T>(&mut self, then: Then<T>, outcome: T) {
        let step = then.on_done(&self.context, outcome);
        self.responses.on_done(step);
    }

    /// Begins a request that runs in its turn.
    fn turn(&mut self) {
        let then = operation!(self, Operation::Turn(then) => then);
        self.done(then, ());
    }

    fn next(&mut self) -> Option<ResponseResult> {
        let mut context = Context::from_waker(Waker::noop());
        match self.responses.poll_next(&self.context.shared, &mut context) {
            Poll::Ready(NextResponse { result, .. }) => Some(result),
            Poll::Pending => None,
        }
    }

    /// Returns the next response.
    fn response<R: Request>(&mut self, version: i16) -> R::Response {
        let response = self.next().expect("a response").unwrap();
        let frame = response.encoded.expect("an answer").into_bytes();
        let read = frame::read_response::<R>(frame.slice(4..), version, DecodeLimits::default());
        read.unwrap().1
    }
}

/// A batch of records.
fn batch(values: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    for value in values {
        let record = Record {
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
            timestamp: 1000,
        };
        builder.push(&record).unwrap();
    }
    builder.finish().unwrap()
}
