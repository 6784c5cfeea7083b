//! Loads of many connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::sleep_until;

use crate::Options;
use crate::client::{Writer, connect};
use crate::latency::Latencies;

/// Connections being opened at the same time.
const OPENING: usize = 64;

/// Totals of all receivers.
struct Seen {
    begun: Instant,
    latencies: Latencies,
    dropped: AtomicU64,
}

/// Opens connections whose clients listen and subscribe to `topics`; each message carries the time at which
/// it was due.
async fn open(
    address: &str,
    connections: usize,
    users: usize,
    topics: impl Fn(usize) -> Vec<String>,
    seen: &Arc<Seen>,
) -> Vec<Writer> {
    let begun = Instant::now();
    let turns = Arc::new(Semaphore::new(OPENING));
    let mut opening = Vec::new();
    for connection in 0..connections {
        let turn = Arc::clone(&turns).acquire_owned().await.unwrap();
        let commands: Vec<String> = (connection * users..(connection + 1) * users)
            .flat_map(|user| {
                let listen = format!(r#"{{"command":"listen","client_id":{user}}}"#);
                let wanted = topics(user);
                let list = wanted
                    .iter()
                    .map(|topic| format!("\"{topic}\""))
                    .collect::<Vec<_>>()
                    .join(",");
                let subscribe = format!(r#"{{"command":"subscribe","client_id":{user},"topic":[{list}]}}"#);
                [Some(listen), (!wanted.is_empty()).then_some(subscribe)]
                    .into_iter()
                    .flatten()
            })
            .collect();
        let (address, seen) = (address.to_owned(), Arc::clone(seen));
        opening.push(tokio::spawn(async move {
            let (mut reader, mut writer) = connect(&address, connection).await;
            for command in &commands {
                writer.put(command);
            }
            writer.flush().await;
            reader.answers(commands.len()).await;
            drop(turn);
            tokio::spawn(async move { while reader.read(|message| seen.on_message(message)).await {} });
            writer
        }));
    }
    let mut writers = Vec::new();
    for opened in opening {
        writers.push(opened.await.unwrap());
    }
    println!(
        "{connections} connections with {users} clients each in {:.2} s",
        begun.elapsed().as_secs_f64()
    );
    writers
}

impl Seen {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            latencies: Latencies::default(),
            dropped: AtomicU64::new(0),
        })
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    fn on_message(&self, message: &[u8]) {
        if message.starts_with(b"{\"notice\":\"dropped\"") {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let text = std::str::from_utf8(message).unwrap();
        if let Some((_, due)) = text.rsplit_once("\"due\":") {
            let digits = due.trim_end_matches('}');
            let due: u64 = digits.parse().unwrap();
            self.latencies.add(self.now().saturating_sub(due));
        }
    }
}

/// Interval of each connection's signs of life: the broker closes connections that are silent for a minute.
const SIGN_OF_LIFE_S: f64 = 20.0;

/// Pseudorandom numbers, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

pub(crate) async fn songs(address: &str, options: &Options) {
    let (connections, users) = (options.count("connections", 10_000), options.count("users", 10));
    let all_users = connections * users;
    let stations = options.count("stations", all_users / 5);
    let listeners = options.count("listeners", all_users * 5 / stations);
    let songs = options.count("songs", (all_users / 10).max(1));
    let wishes = options.count("wishes", 100);
    let seconds = options.number("seconds", 30.0);
    let starts_per_second = stations as f64 / options.number("song_s", 240.0);
    // Users wish for the songs in turn, so that each song is on equally many lists.
    let per_user = (songs * wishes / all_users).max(1);
    let list_of = move |user: usize| {
        let wishes = user * per_user..(user + 1) * per_user;
        wishes.map(|wish| format!("song {}", wish % songs)).collect()
    };
    let seen = Seen::new();
    let mut writers = open(address, connections, users, list_of, &seen).await;
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let (begun, offset) = (Instant::now(), seen.now());
    let (mut starts, mut reports) = (0_u64, 0_u64);
    // Pings are not answered here: each connection sends signs of life in turn instead.
    let starts_per_round = (starts_per_second * SIGN_OF_LIFE_S).max(1.0);
    let signs_per_start =
        (1..=connections).find(|signs| *signs as f64 * starts_per_round >= connections as f64);
    let signs_per_start = signs_per_start.unwrap_or(connections);
    let mut silent = (0..connections).cycle();
    while begun.elapsed().as_secs_f64() < seconds {
        let due = Duration::from_secs_f64(starts as f64 / starts_per_second);
        sleep_until((begun + due).into()).await;
        let due = offset + due.as_nanos() as u64;
        let (song, station) = (chance.below(songs), chance.below(stations));
        for _ in 0..listeners {
            let writer = &mut writers[chance.below(connections)];
            writer.put(&format!(
                r#"{{"command":"publish","client_id":0,"topic":"song {song}","payload":{{"station":{station},"due":{due}}},"timestamp":1431104020907}}"#
            ));
            writer.flush().await;
            reports += 1;
        }
        for index in silent.by_ref().take(signs_per_start) {
            writers[index].put_pong();
            writers[index].flush().await;
        }
        starts += 1;
    }
    let took = begun.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!(
        "{:.0} reports/s in, {:.0} starts/s, {:.0} deliveries/s out for {took:.0} s; {}; {} told of drops",
        reports as f64 / took,
        starts as f64 / took,
        seen.latencies.count() as f64 / took,
        seen.latencies.say(),
        seen.dropped.load(Ordering::Relaxed)
    );
    println!("broker: {}", metrics(address).await);
}

pub(crate) async fn fan_out(address: &str, options: &Options) {
    let connections = options.count("connections", 10_000);
    let rounds = options.count("rounds", 10);
    let seen = Seen::new();
    let mut writers = open(address, connections, 1, |_| vec!["everyone".to_owned()], &seen).await;
    for round in 1..=rounds {
        let due = seen.now();
        writers[0].put(&format!(
            r#"{{"command":"publish","client_id":0,"topic":"everyone","payload":{{"due":{due}}}}}"#
        ));
        writers[0].flush().await;
        while seen.latencies.count() < (round * connections) as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let all = (seen.now() - due) as f64 / 1e6;
        println!("round {round}: all {connections} had it within {all:.1} ms");
    }
    println!("{}", seen.latencies.say());
}

pub(crate) async fn idle(address: &str, options: &Options) {
    let connections = options.count("connections", 10_000);
    let before = resident(address).await;
    let seen = Seen::new();
    let _writers = open(address, connections, 1, |_| Vec::new(), &seen).await;
    tokio::time::sleep(Duration::from_secs_f64(options.number("seconds", 3.0))).await;
    let after = resident(address).await;
    println!(
        "resident {before:.0} bytes before, {after:.0} with {connections}: {:.0} each",
        (after - before) / connections as f64
    );
}

pub(crate) async fn resident(address: &str) -> f64 {
    let metrics = metrics(address).await;
    let value = metrics.split("resident_memory_bytes ").nth(1).unwrap();
    value.split([' ', ',']).next().unwrap().parse().unwrap()
}

/// Returns the response to a request, with its head.
pub(crate) async fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: load\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// Returns the broker's own metrics in one line.
pub(crate) async fn metrics(address: &str) -> String {
    let text = get(address, "/metrics").await.unwrap();
    let wanted = [
        "stafett_live_published_total",
        "stafett_live_delivered_total",
        "stafett_live_duplicates_total",
        "stafett_live_dropped_total",
        "stafett_live_caught_up_bytes_total",
        "stafett_process_cpu_seconds_total",
        "stafett_process_resident_memory_bytes",
    ];
    let lines = text
        .lines()
        .filter(|line| wanted.iter().any(|name| line.starts_with(name)));
    lines
        .map(|line| line.trim_start_matches("stafett_"))
        .collect::<Vec<_>>()
        .join(", ")
}
