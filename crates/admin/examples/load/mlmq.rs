//! Clients of a message queue with priorities, as a published experiment has them: one-way clients send to one
//! another, paired clients ask and answer, producers fill a queue, and consumers empty it.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at};

use crate::http::Connection;
use crate::print_times;

/// Actions of each client in a second, where it does not act as fast as it is answered.
const ACTIONS: u64 = 20;
const BODY: usize = 100;

#[derive(Clone, Copy)]
enum Kind {
    OneWay,
    Paired,
    Producer,
    Consumer,
}

#[derive(Default)]
struct Result {
    times: Vec<Duration>,
    failed: u64,
}

struct Client {
    connection: Connection,
    name: String,
    result: Result,
    random: u64,
}

pub(crate) async fn run(address: &str, time: Duration, which: &str) {
    let mut connection = Connection::open(address).await;
    connection
        .ask("PUT /v1/queues/public", "", r#"{"priority_max": 10}"#)
        .await;
    let kinds: Vec<(Kind, usize)> = match which {
        "one" => return one(address, time).await,
        "mix" => vec![
            (Kind::OneWay, 30),
            (Kind::Paired, 16),
            (Kind::Consumer, 10),
            (Kind::Producer, 5),
        ],
        _ => vec![(Kind::OneWay, which.parse().expect("one, mix or a number"))],
    };
    let clients: Vec<(Kind, usize)> = kinds
        .iter()
        .flat_map(|(kind, count)| (0..*count).map(|_| *kind))
        .enumerate()
        .map(|(at, kind)| (kind, at))
        .collect();
    for (_, at) in &clients {
        assert!(connection.ask(&format!("PUT /v1/clients/c{at}"), "", "").await.0 < 300);
    }
    let begun = Instant::now();
    let count = clients.len();
    let mut tasks = JoinSet::new();
    for (kind, at) in clients {
        let address = address.to_owned();
        tasks.spawn(async move {
            let mut client = Client::new(&address, at).await;
            let period = Duration::from_millis(1000 / ACTIONS);
            let start = tokio::time::Instant::now() + period.mul_f64(at as f64 / count as f64);
            let mut ticks = interval_at(start, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            while begun.elapsed() < time {
                ticks.tick().await;
                client.act(kind, at, count).await;
            }
            client.result
        });
    }
    let mut all = Result::default();
    while let Some(result) = tasks.join_next().await {
        let Result { times, failed } = result.unwrap();
        all.times.extend(times);
        all.failed += failed;
    }
    let rate = all.times.len() as f64 / begun.elapsed().as_secs_f64();
    println!("{count} clients: {rate:.0} requests/s, {} refused", all.failed);
    print_times("answers", all.times);
}

/// One client, as fast as it is answered: it sends to itself and takes its messages.
async fn one(address: &str, time: Duration) {
    let mut connection = Connection::open(address).await;
    assert!(connection.ask("PUT /v1/clients/c0", "", "").await.0 < 300);
    let mut client = Client::new(address, 0).await;
    let begun = Instant::now();
    while begun.elapsed() < time {
        client.send("clients", "c0", 5, "").await;
        client.receive("client.c0", "order=oldest").await;
    }
    let rate = client.result.times.len() as f64 / begun.elapsed().as_secs_f64();
    println!(
        "one client: {rate:.0} requests/s, {} refused",
        client.result.failed
    );
    print_times("answers", client.result.times);
}

impl Client {
    async fn new(address: &str, at: usize) -> Self {
        Self {
            connection: Connection::open(address).await,
            name: format!("c{at}"),
            result: Result::default(),
            random: at as u64 + 1,
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % below
    }

    async fn act(&mut self, kind: Kind, at: usize, count: usize) {
        let priority = self.random(10) + 1;
        let own = format!("client.{}", self.name);
        match kind {
            Kind::OneWay if self.random(2) == 0 => {
                let to = format!("c{}", self.random(count));
                self.send("clients", &to, priority, "").await;
            }
            Kind::OneWay => drop(self.receive(&own, "order=oldest").await),
            Kind::Paired => {
                // Pairs are neighbours: the one with the even number asks.
                let partner = format!("c{}", at ^ 1);
                if at.is_multiple_of(2) {
                    self.send("clients", &partner, priority, r#","request":true"#)
                        .await;
                }
                let received = self.receive(&own, "order=priority").await;
                let context = received
                    .split("\"context\":")
                    .nth(1)
                    .and_then(|rest| rest.split(',').next());
                if let Some(context) = context.filter(|context| at % 2 == 1 && *context != "null") {
                    let context = format!(r#","context":{context}"#);
                    self.send("clients", &partner, priority, &context).await;
                }
            }
            Kind::Producer => self.send("queues", "public", priority, "").await,
            Kind::Consumer => drop(self.receive("public", "order=priority").await),
        }
    }

    async fn send(&mut self, to: &str, name: &str, priority: usize, more: &str) {
        let content = "x".repeat(BODY);
        let body =
            format!(r#"{{"to":{{"{to}":["{name}"]}},"content":"{content}","priority":{priority}{more}}}"#);
        self.ask("POST /v1/messages", &body).await;
    }

    async fn receive(&mut self, queue: &str, query: &str) -> String {
        self.ask(
            &format!("POST /v1/queues/{queue}/receive?settled=stored&{query}"),
            "",
        )
        .await
    }

    async fn ask(&mut self, request: &str, body: &str) -> String {
        let asked = Instant::now();
        let (status, answer) = self.connection.ask(request, &self.name, body).await;
        self.result.times.push(asked.elapsed());
        self.result.failed += u64::from(status >= 300);
        answer
    }
}
