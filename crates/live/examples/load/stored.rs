//! Loads on topics with a log behind them, on the filter of duplicates, and on memory.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::Options;
use crate::client::{Reader, Writer, connect};
use crate::many::{get, metrics, resident};
use crate::one::{AHEAD, LIST, WRITE_BYTES, receive};

/// Publishes messages to `topics` in turn; the last one is acknowledged once all are stored.
async fn publish(reader: &mut Reader, writer: &mut Writer, prefix: &str, topics: usize, messages: usize) {
    for message in 0..messages {
        let ack = if message + 1 == messages {
            r#","ack":true"#
        } else {
            ""
        };
        writer.put(&format!(
            r#"{{"command":"publish","client_id":2,"topic":"{prefix} {}","payload":"a payload of forty bytes, more or less.."{ack}}}"#,
            message % topics
        ));
        if writer.waiting() > WRITE_BYTES {
            writer.flush().await;
        }
    }
    tokio::join!(writer.flush(), reader.answers(1));
}

/// Publishes first, then subscribes from the beginning and consumes, as in the paper.
pub(crate) async fn stored(address: &str, options: &Options) {
    let topics = options.count("topics", 1000);
    let messages = options.count("messages", topics.max(1_000_000));
    let (mut reader, mut writer) = connect(address, 0).await;
    let begun = Instant::now();
    publish(&mut reader, &mut writer, "topic", topics, messages).await;
    let took = begun.elapsed().as_secs_f64();
    println!(
        "published {messages} to {topics} topics, all stored in {took:.3} s ({:.0}/s)",
        messages as f64 / took
    );
    let (mut reader, mut writer) = connect(address, 0).await;
    writer.put(r#"{"command":"listen","client_id":1,"outbox_bytes":67108864}"#);
    writer.flush().await;
    reader.answers(1).await;
    let (received, moved) = receive(reader);
    let begun = Instant::now();
    for from in (0..topics).step_by(LIST) {
        let list: Vec<String> = (from..topics.min(from + LIST))
            .map(|topic| format!("\"topic {topic}\""))
            .collect();
        writer.put(&format!(
            r#"{{"command":"subscribe","client_id":1,"from":"earliest","topic":[{}]}}"#,
            list.join(",")
        ));
        if writer.waiting() > WRITE_BYTES {
            writer.flush().await;
        }
    }
    writer.flush().await;
    while received.load(Ordering::Relaxed) < messages {
        moved.notified().await;
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "subscribed from the beginning and received {messages} in {took:.3} s ({:.0}/s)",
        messages as f64 / took
    );
    println!("broker: {}", metrics(address).await);
}

/// Publishes every message twice: to topics without a rule for duplicates, then to topics with one.
pub(crate) async fn filter(address: &str, options: &Options) {
    let topics = options.count("topics", 1000);
    let messages = options.count("messages", 1_000_000);
    let (mut reader, mut writer) = connect(address, 0).await;
    writer.put(r#"{"command":"listen","client_id":1,"outbox_bytes":67108864}"#);
    for prefix in ["plain", "once"] {
        let list: Vec<String> = (0..topics).map(|topic| format!("\"{prefix} {topic}\"")).collect();
        writer.put(&format!(
            r#"{{"command":"subscribe","client_id":1,"topic":[{}]}}"#,
            list.join(",")
        ));
    }
    tokio::join!(writer.flush(), reader.answers(3));
    let (received, moved) = receive(reader);
    for (prefix, expected) in [("plain", messages), ("once", messages / 2)] {
        let (_reader, mut publisher) = connect(address, 0).await;
        let (begun, before) = (Instant::now(), received.load(Ordering::Relaxed));
        for message in 0..messages {
            let number = message / 2;
            publisher.put(&format!(
                r#"{{"command":"publish","client_id":2,"topic":"{prefix} {}","payload":"a payload of some forty bytes {number:010}"}}"#,
                number % topics
            ));
            if publisher.waiting() > WRITE_BYTES {
                publisher.flush().await;
                while message * expected / messages > received.load(Ordering::Relaxed) - before + AHEAD {
                    moved.notified().await;
                }
            }
        }
        publisher.flush().await;
        while received.load(Ordering::Relaxed) < before + expected {
            moved.notified().await;
        }
        let took = begun.elapsed().as_secs_f64();
        println!(
            "{prefix}: published {messages} in {took:.3} s ({:.0}/s), {expected} delivered",
            messages as f64 / took
        );
    }
    println!("broker: {}", metrics(address).await);
}

/// Gives every topic one subscription first and adds the rest later, to tell the memory of a topic from that
/// of a subscription.
pub(crate) async fn memory(address: &str, options: &Options) {
    let topics = options.count("topics", 1_000_000);
    let subscriptions = options.count("subscriptions", 10_000_000);
    let per_client = options.count("per_client", 1000);
    let (mut reader, mut writer) = connect(address, 0).await;
    let mut before = resident(address).await;
    println!("resident {before:.0} bytes");
    let begun = Instant::now();
    let mut done = 0;
    for until in [topics, subscriptions] {
        let lists = until.saturating_sub(done) / per_client;
        let first = done / per_client;
        let send = async {
            for client in first..first + lists {
                // The topics of one client are far apart in memory.
                let topic = |number: usize| (client * per_client + number) * 7919 % topics;
                let list: Vec<String> = (0..per_client)
                    .map(|number| format!("\"topic {}\"", topic(number)))
                    .collect();
                writer.put(&format!(
                    r#"{{"command":"subscribe","client_id":{client},"topic":[{}]}}"#,
                    list.join(",")
                ));
                if writer.waiting() > WRITE_BYTES {
                    writer.flush().await;
                }
            }
            writer.flush().await;
        };
        tokio::join!(send, reader.answers(lists));
        let added = lists * per_client;
        done += added;
        let after = resident(address).await;
        println!(
            "resident {after:.0} bytes with {done} subscriptions to {topics} topics after {:.1} s: {:.1} bytes for each that was added",
            begun.elapsed().as_secs_f64(),
            (after - before) / added as f64
        );
        before = after;
    }
}

/// Measures the time from the broker's start to its first answer; start both at the same time.
pub(crate) async fn restart(address: &str, options: &Options) {
    let begun = Instant::now();
    let topics = options.count("topics", 0);
    while !is_ready(address).await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (mut reader, mut writer) = connect(address, 0).await;
    writer.put(r#"{"command":"presence","client_id":0,"count":1}"#);
    writer.flush().await;
    let expected = format!("\"topics\":{topics},");
    let mut is_there = false;
    reader
        .read(|message| is_there = String::from_utf8_lossy(message).contains(&expected))
        .await;
    assert!(topics == 0 || is_there, "other than {topics} topics");
    println!(
        "answers {:.3} s after this began; broker: {}",
        begun.elapsed().as_secs_f64(),
        metrics(address).await
    );
}

async fn is_ready(address: &str) -> bool {
    let answer = get(address, "/health").await;
    answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}
