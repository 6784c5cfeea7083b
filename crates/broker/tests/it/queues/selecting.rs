//! Messages selected by header and priority, against a naive model.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_delivery::{LeaseId, SearchBounds, Settle};
use stafett_messaging::queues::{Acknowledge, Declare, Narrow, Queue, QueueSettings, Receive, SettleLeases};
use stafett_model::{Message, StoredMessage};
use tokio_util::task::TaskTracker;

use super::receiving::{ALL, bodies};
use super::support::{Listener, World, durable, message, settle_down, spec};

const SENDERS: [&str; 4] = ["ann", "bob", "cho", "dan"];

/// Pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A message of the model that is not settled.
#[derive(Debug, Clone)]
struct Known {
    number: usize,
    sender: &'static str,
    priority: u8,
    expires_s: Option<u64>,
    lease: Option<LeaseId>,
}

fn sent(number: usize, sender: &str, priority: u8, ttl_ms: Option<u64>) -> Message {
    let value = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
    let headers = [
        ("user-id".into(), value(sender)),
        ("correlation-id".into(), value(&number.to_string())),
    ];
    Message {
        headers: headers.into_iter().collect(),
        priority,
        ttl_ms,
        ..message(&number.to_string())
    }
}

fn has(message: &StoredMessage, header: &str, value: &str) -> bool {
    message.header(header.as_bytes()).flatten() == Some(value.as_bytes())
}

struct Run {
    world: World,
    queue: Arc<Queue>,
    known: Vec<Known>,
    count: usize,
    now_s: u64,
}

impl Run {
    async fn new() -> Self {
        let world = World::new().await;
        let settings = QueueSettings {
            priority_max: 3,
            ..QueueSettings::default()
        };
        let declare = Declare {
            settings,
            ..durable()
        };
        let queue = world.declare("q", declare).await;
        Self {
            world,
            queue,
            known: Vec::new(),
            count: 0,
            now_s: 0,
        }
    }

    async fn publish(&mut self, numbers: &mut Numbers, with_ttl: bool) {
        let mut batch = Vec::new();
        for _ in 0..=numbers.below(6) {
            let sender = SENDERS[usize::try_from(numbers.below(4)).unwrap()];
            let priority = u8::try_from(numbers.below(4)).unwrap();
            let expires = with_ttl && numbers.below(3) == 0;
            batch.push(sent(self.count, sender, priority, expires.then_some(2500)));
            self.known.push(Known {
                number: self.count,
                sender,
                priority,
                expires_s: expires.then_some(self.now_s + 3),
                lease: None,
            });
            self.count += 1;
        }
        self.world.publish(&self.queue, batch).await;
    }

    /// Receives the first message of a choice, in the model and in the queue.
    async fn receive(&mut self, numbers: &mut Numbers) {
        let sender = SENDERS[usize::try_from(numbers.below(4)).unwrap()];
        let context = numbers.below(self.count as u64 + 1).to_string();
        let priority = u8::try_from(numbers.below(4)).unwrap();
        let kind = numbers.below(5);
        let wants_known = |one: &Known| match kind {
            0 => one.sender == sender,
            1 => one.number.to_string() == context,
            2 => one.priority == priority,
            3 => one.sender == sender && one.priority >= priority,
            _ => true,
        };
        let wants = |message: &StoredMessage| match kind {
            0 => has(message, "user-id", sender),
            1 => has(message, "correlation-id", &context),
            2 => message.priority() == priority,
            3 => has(message, "user-id", sender) && message.priority() >= priority,
            _ => true,
        };
        let narrow = Narrow {
            priorities: match kind {
                2 => Some((priority, priority)),
                3 => Some((priority, u8::MAX)),
                _ => None,
            },
            header: match kind {
                0 | 3 => Some(("user-id", sender.as_bytes())),
                1 => Some(("correlation-id", context.as_bytes())),
                _ => None,
            },
        };
        let leases = numbers.below(2) == 0;
        let request = Receive {
            wanted: (kind < 4).then_some(&wants as _),
            narrow,
            bounds: SearchBounds::NONE,
            ack: if leases {
                Acknowledge::Lease { ms: 40_000_000 }
            } else {
                Acknowledge::Stored
            },
            ..ALL
        };
        let received = self.queue.receive(request).await.unwrap();
        let is_ready = |one: &Known| one.lease.is_none() && one.expires_s.is_none_or(|end| end > self.now_s);
        let chosen = self.known.iter().enumerate();
        let chosen = chosen.filter(|(_, one)| is_ready(one) && wants_known(one));
        let first = chosen.min_by_key(|(_, one)| (u8::MAX - one.priority, one.number));
        let expected: Vec<String> = first.iter().map(|(_, one)| one.number.to_string()).collect();
        let first = first.map(|(at, _)| at);
        assert_eq!(
            bodies(&received),
            expected,
            "{kind} {sender} {context} {priority}"
        );
        let Some(at) = first else { return };
        if leases {
            self.known[at].lease = received.messages[0].1;
        } else {
            self.known.remove(at);
        }
    }

    async fn settle(&mut self, numbers: &mut Numbers) {
        let leased = self.known.iter().position(|one| one.lease.is_some());
        let Some(at) = leased else { return };
        let done = numbers.below(2) == 0;
        let what = if done { Settle::Complete } else { Settle::Requeue };
        let request = SettleLeases {
            leases: vec![(self.known[at].lease.unwrap(), what)],
            stored: true,
        };
        assert_eq!(self.queue.settle_leases(request).await.unwrap(), [true]);
        if done {
            self.known.remove(at);
        } else {
            self.known[at].lease = None;
        }
    }

    async fn restart(mut self, crashes: bool) -> Self {
        drop(self.queue);
        self.world = if crashes {
            self.world.crash().await
        } else {
            self.world.restart().await
        };
        self.queue = self.world.get("q").unwrap();
        for one in &mut self.known {
            one.lease = None;
        }
        self
    }
}

#[tokio::test(start_paused = true)]
async fn selected_messages_are_those_of_a_naive_model() {
    for seed in 1..=12_u64 {
        let with_ttl = seed % 2 == 0;
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut run = Run::new().await;
        for _ in 0..250 {
            match numbers.below(20) {
                0..=5 => run.publish(&mut numbers, with_ttl).await,
                6..=15 => run.receive(&mut numbers).await,
                16..=17 => run.settle(&mut numbers).await,
                18 if with_ttl => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    run.now_s += 1;
                }
                18 => {
                    let crashes = numbers.below(2) == 0;
                    run = run.restart(crashes).await;
                }
                _ if numbers.below(4) == 0 => {
                    run.queue.purge();
                    // It is stored soon.
                    settle_down().await;
                    run.known.retain(|one| one.lease.is_some());
                }
                _ => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn two_hundred_requests_with_different_selectors_each_get_theirs() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world
        .publish(&queue, (0..2000).map(|number| sent(number, "ann", 0, None)))
        .await;
    let tasks = TaskTracker::new();
    let mut waiting = Vec::new();
    for number in 5000..5200_usize {
        let queue = Arc::clone(&queue);
        waiting.push(tasks.spawn(async move {
            let text = number.to_string();
            let wants = |message: &StoredMessage| has(message, "correlation-id", &text);
            let received = queue.receive(Receive {
                wanted: Some(&wants),
                narrow: Narrow {
                    header: Some(("correlation-id", text.as_bytes())),
                    ..Narrow::default()
                },
                wait: Duration::from_mins(1),
                ..ALL
            });
            bodies(&received.await.unwrap())
        }));
    }
    settle_down().await;
    // A consumer takes others meanwhile.
    let mut listener = Listener::new(&queue, spec());
    let got = listener.next(1000).await;
    listener.settle(&got, Settle::Complete);
    let rest = listener.rest().await;
    listener.settle(&rest, Settle::Requeue);
    drop(listener);
    for number in (5000..5200).rev() {
        world.publish(&queue, [sent(number, "bob", 0, None)]).await;
    }
    for (number, waiting) in (5000..5200).zip(waiting) {
        assert_eq!(waiting.await.unwrap(), [number.to_string()]);
    }
    settle_down().await;
    assert_eq!(world.ready("q"), 1000);
}

/// A search with a selector looks at hits alone, also with values and names of any size, and more headers
/// than there are indexes.
#[tokio::test(start_paused = true)]
async fn selectors_of_any_size_and_number_find_what_is_there() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let large = "x".repeat(1 << 20);
    let value = Bytes::copy_from_slice(large.as_bytes());
    let mut last = message("last");
    last.headers = [("large".into(), Some(value.clone()))].into_iter().collect();
    world
        .publish(&queue, (0..300).map(|number| sent(number, "ann", 0, None)))
        .await;
    world.publish(&queue, [last]).await;
    let names = ["large", "user-id", "correlation-id", "a", "b", &large, "large"];
    for name in names {
        let wants = |message: &StoredMessage| has(message, name, &large);
        let received = queue.receive(Receive {
            wanted: Some(&wants),
            narrow: Narrow {
                header: Some((name, &value)),
                ..Narrow::default()
            },
            ack: Acknowledge::Lease { ms: 1000 },
            ..ALL
        });
        let received = received.await.unwrap();
        let expected = if name == "large" {
            vec!["last".to_owned()]
        } else {
            Vec::new()
        };
        assert_eq!(bodies(&received), expected);
        if name == "large" {
            assert_eq!(received.looked_at, 1, "the others are passed over");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
