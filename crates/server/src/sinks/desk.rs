//! The desk of the API: definitions are read, states are told, and questions go to the runner.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use prometheus_client::registry::Registry;
use stafett_admin::node::Commanded;
use stafett_admin::sinks::{SinkDesk, SinkPosition, SinkReplay, SinkState, SinkTerms, mark_silence, measure};
use stafett_broker::Broker;
use stafett_http::{Code, Problem};
use stafett_model::Lock;
use stafett_sinks::Definition;
use stafett_sinks::broker::Servers;
use stafett_sinks::definition::{SourceSpec, TargetSpec};
use stafett_sinks::target::{Steps, Surroundings, promise_of, target_of};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::metrics::{self, Sample};
use super::words::Question;

/// Time for an answer of the runner. A replay waits for the flush that is under way.
const ANSWER_MAX: Duration = Duration::from_secs(40);
/// Silence of a runner that counts as gone.
const SILENCE: Duration = Duration::from_secs(10);
const QUESTIONS: usize = 16;
const NOBODY: &str = "no runner answers for the sink";

/// Result of a question: positions, or the words of the target.
pub(super) type Answer = Result<Vec<SinkPosition>, String>;

/// A question to the runner.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) sink: String,
    pub(super) question: Question,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// States of sinks, and the way to their runner.
#[derive(Debug)]
pub(crate) struct SinksHere {
    states: Lock<BTreeMap<String, SinkState>>,
    /// Time at which the runner told the states; `None` without a runner.
    told: Arc<Lock<Option<Instant>>>,
    broker: Lock<Weak<Broker>>,
    restarts: Lock<u64>,
    questions: mpsc::Sender<Asked>,
    received: Lock<Option<mpsc::Receiver<Asked>>>,
}

impl SinksHere {
    /// Makes the desk, and registers its metrics.
    pub(crate) fn new(registry: &mut Registry) -> Arc<Self> {
        let (questions, received) = mpsc::channel(QUESTIONS);
        let desk = Arc::new(Self {
            states: Lock::default(),
            told: Arc::default(),
            broker: Lock::new(Weak::new()),
            restarts: Lock::default(),
            questions,
            received: Lock::new(Some(received)),
        });
        metrics::register(registry, &desk);
        desk
    }

    /// Returns the questions, to the supervisor alone.
    pub(super) fn take_questions(&self) -> Option<mpsc::Receiver<Asked>> {
        self.received.lock().take()
    }

    /// Notes the broker whose topics are read, for the lag.
    pub(super) fn set_broker(&self, broker: &Arc<Broker>) {
        *self.broker.lock() = Arc::downgrade(broker);
    }

    pub(super) fn set_states(&self, states: BTreeMap<String, SinkState>) {
        *self.states.lock() = states;
        *self.told.lock() = Some(Instant::now());
    }

    /// Forgets the states of a runner that has ended.
    pub(super) fn forget_states(&self) {
        self.states.lock().clear();
        *self.told.lock() = None;
    }

    /// Returns the states with their lag as it is now.
    pub(super) fn measured(&self) -> BTreeMap<String, Sample> {
        let (mut states, silence) = (self.states(), self.silence());
        let mut samples = BTreeMap::new();
        let Some(broker) = self.broker.lock().upgrade() else {
            return samples;
        };
        for (name, sink) in broker.sinks().all() {
            if let Ok(terms) = self.read(&name, &sink.definition) {
                let name = name.into_string();
                let mut state = states.remove(&name).unwrap_or_else(|| SinkState {
                    state: "waiting".to_owned(),
                    ..SinkState::default()
                });
                measure(&broker, &terms, &mut state);
                mark_silence(&mut state, silence);
                samples.insert(name, Sample { to: terms.to, state });
            }
        }
        samples
    }

    pub(super) fn on_restart(&self) {
        *self.restarts.lock() += 1;
    }

    pub(super) fn restarts(&self) -> u64 {
        *self.restarts.lock()
    }

    fn ask(&self, sink: &str, question: Question) -> Commanded<Vec<SinkPosition>> {
        let (reply, answer) = oneshot::channel();
        let asked = Asked {
            sink: sink.to_owned(),
            question,
            reply,
        };
        let sent = self.questions.try_send(asked);
        let told = Arc::clone(&self.told);
        Box::pin(async move {
            let nobody = || Problem::new(Code::NoRunner, NOBODY);
            sent.map_err(|_| nobody())?;
            match timeout(ANSWER_MAX, answer).await {
                Ok(Ok(Ok(positions))) => Ok(positions),
                Ok(Ok(Err(why))) => Err(Problem::new(Code::TargetRefused, why)),
                Ok(Err(_)) => Err(nobody()),
                Err(_) => Err(unanswered(*told.lock())),
            }
        })
    }
}

impl SinkDesk for SinksHere {
    fn read(&self, name: &str, definition: &str) -> Result<SinkTerms, String> {
        let sink = Definition::from_json(name, definition).map_err(|why| why.to_string())?;
        let surroundings = Surroundings {
            steps: Steps::default(),
            wall: || 0,
            servers: Servers::default(),
            webhook_allow: Vec::new(),
            ledger: None,
        };
        let topic = match &sink.target {
            TargetSpec::Topic(spec) if spec.broker.is_none() => Some(spec.topic.clone()),
            TargetSpec::Topic(_)
            | TargetSpec::Amqp(_)
            | TargetSpec::Files(_)
            | TargetSpec::Postgres(_)
            | TargetSpec::Webhook(_)
            | TargetSpec::Ducklake(_)
            | TargetSpec::Delta(_)
            | TargetSpec::Mongodb(_)
            | TargetSpec::Clickhouse(_) => None,
        };
        Ok(SinkTerms {
            is_own: sink.source == SourceSpec::Own,
            to: sink.target.word(),
            topic,
            promise: promise_of(&sink, &*target_of(&sink, &surroundings)).to_string(),
            app: sink.app(),
            dead: sink.dead_topic(),
            has_positions: !sink.keeps_positions_in_app(),
            tables: sink.tables(),
            from: sink.from,
        })
    }

    fn states(&self) -> BTreeMap<String, SinkState> {
        self.states.lock().clone()
    }

    fn silence(&self) -> Option<Duration> {
        self.told.lock().map(|told| told.elapsed())
    }

    fn positions(&self, name: &str) -> Commanded<Vec<SinkPosition>> {
        self.ask(name, Question::Positions)
    }

    fn replay(&self, name: &str, replay: SinkReplay) -> Commanded<Vec<SinkPosition>> {
        self.ask(name, Question::Replay(replay))
    }

    fn accept_gap(&self, name: &str) -> Commanded<Vec<SinkPosition>> {
        self.ask(name, Question::AcceptGap)
    }
}

/// Refuses a question that has no answer in time. A runner that tells states is there, and waits itself.
fn unanswered(told: Option<Instant>) -> Problem {
    if told.is_some_and(|told| told.elapsed() < SILENCE) {
        let why = format!("the target has not answered within {} s", ANSWER_MAX.as_secs());
        return Problem::new(Code::TargetRefused, why);
    }
    Problem::new(Code::NoRunner, NOBODY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_hangs_is_told_from_a_runner_that_is_gone() {
        assert_eq!(unanswered(Some(Instant::now())).code, Code::TargetRefused);
        assert_eq!(unanswered(None).code, Code::NoRunner);
        let long_ago = Instant::now().checked_sub(SILENCE).unwrap();
        assert_eq!(unanswered(Some(long_ago)).code, Code::NoRunner);
    }
}
