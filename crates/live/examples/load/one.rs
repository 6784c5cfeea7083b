//! Loads of one client with many topics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Options;
use crate::client::{Reader, Writer, connect};

pub(crate) const WRITE_BYTES: usize = 64 << 10;
/// Topics of one `subscribe`.
pub(crate) const LIST: usize = 1000;
/// Maximum messages in flight between publisher and receiver: far below the bound of the outbox.
pub(crate) const AHEAD: usize = 50_000;

fn list(command: &str, from: usize, to: usize) -> String {
    let topics: Vec<String> = (from..to).map(|topic| format!("\"topic {topic}\"")).collect();
    format!(
        r#"{{"command":"{command}","client_id":1,"topic":[{}]}}"#,
        topics.join(",")
    )
}

/// Subscribes or unsubscribes with lists sent ahead; returns the number of lists.
async fn change(command: &str, topics: usize, writer: &mut Writer) -> usize {
    let mut lists = 0;
    for from in (0..topics).step_by(LIST) {
        writer.put(&list(command, from, topics.min(from + LIST)));
        lists += 1;
        if writer.waiting() > WRITE_BYTES {
            writer.flush().await;
        }
    }
    writer.flush().await;
    lists
}

async fn listen(reader: &mut Reader, writer: &mut Writer) {
    writer.put(r#"{"command":"listen","client_id":1,"outbox_bytes":67108864}"#);
    writer.flush().await;
    reader.answers(1).await;
}

/// Counts received messages, and notifies the publisher.
pub(crate) fn receive(mut reader: Reader) -> (Arc<AtomicUsize>, Arc<Notify>) {
    let (received, moved) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (count, ring) = (Arc::clone(&received), Arc::clone(&moved));
    tokio::spawn(async move {
        let mut on_message = |message: &[u8]| {
            if message.starts_with(b"{\"key\"") {
                count.fetch_add(1, Ordering::Relaxed);
            } else if !message.starts_with(b"{\"result\"") {
                panic!("{}", String::from_utf8_lossy(message));
            }
        };
        while reader.read(&mut on_message).await {
            ring.notify_one();
        }
    });
    (received, moved)
}

pub(crate) async fn topics(address: &str, options: &Options) {
    let topics = options.count("topics", 1000);
    let messages = options.count("messages", topics.max(1_000_000));
    let (mut reader, mut writer) = connect(address, 0).await;
    let begun = Instant::now();
    let lists = {
        let answers = topics.div_ceil(LIST);
        let (lists, ()) = tokio::join!(change("subscribe", topics, &mut writer), reader.answers(answers));
        lists
    };
    println!(
        "subscribed to {topics} topics with {lists} lists in {:.3} s",
        begun.elapsed().as_secs_f64()
    );
    listen(&mut reader, &mut writer).await;
    let (received, moved) = receive(reader);
    let (_reader, mut publisher) = connect(address, 0).await;
    let begun = Instant::now();
    for message in 0..messages {
        publisher.put(&format!(
            r#"{{"command":"publish","client_id":2,"topic":"topic {}","payload":"a payload of forty bytes, more or less..","timestamp":1431104020907}}"#,
            message % topics
        ));
        if publisher.waiting() > WRITE_BYTES {
            publisher.flush().await;
            while message > received.load(Ordering::Relaxed) + AHEAD {
                moved.notified().await;
            }
        }
    }
    publisher.flush().await;
    let sent = begun.elapsed();
    while received.load(Ordering::Relaxed) < messages {
        moved.notified().await;
    }
    let all = begun.elapsed();
    println!(
        "published {messages} in {:.3} s ({:.0}/s), delivered in {:.3} s ({:.0}/s)",
        sent.as_secs_f64(),
        messages as f64 / sent.as_secs_f64(),
        all.as_secs_f64(),
        messages as f64 / all.as_secs_f64()
    );
}

pub(crate) async fn churn(address: &str, options: &Options) {
    let topics = options.count("topics", 100_000);
    let seconds = Duration::from_secs_f64(options.number("seconds", 5.0));
    let (mut reader, mut writer) = connect(address, 0).await;
    change("subscribe", 1000, &mut writer).await;
    reader.answers(1).await;
    listen(&mut reader, &mut writer).await;
    let (received, moved) = receive(reader);
    for is_churning in [false, true] {
        let over = Arc::new(AtomicBool::new(!is_churning));
        let changes = tokio::spawn(churn_until(address.to_owned(), topics, Arc::clone(&over)));
        let (_reader, mut publisher) = connect(address, 0).await;
        let (begun, before) = (Instant::now(), received.load(Ordering::Relaxed));
        let mut sent = 0;
        while begun.elapsed() < seconds {
            while publisher.waiting() < WRITE_BYTES {
                let topic = sent % 1000;
                publisher.put(&format!(
                    r#"{{"command":"publish","client_id":2,"topic":"topic {topic}","payload":"a payload of forty bytes, more or less.."}}"#
                ));
                sent += 1;
            }
            publisher.flush().await;
            while sent + before > received.load(Ordering::Relaxed) + AHEAD {
                moved.notified().await;
            }
        }
        while received.load(Ordering::Relaxed) < before + sent {
            moved.notified().await;
        }
        let took = begun.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        let count = changes.await.unwrap();
        println!(
            "delivered {:.0}/s, with {:.0} changes of subscriptions/s",
            sent as f64 / took,
            count as f64 / took
        );
    }
}

/// Subscribes and unsubscribes another client, a list at a time; returns the number of changes.
async fn churn_until(address: String, topics: usize, over: Arc<AtomicBool>) -> usize {
    let (mut reader, mut writer) = connect(&address, 0).await;
    let mut changed = 0;
    while !over.load(Ordering::Relaxed) {
        for command in ["subscribe", "unsubscribe"] {
            let lists = (0..topics.min(10_000))
                .step_by(100)
                .map(|from| list(command, from, from + 100));
            let mut count = 0;
            for list in lists {
                writer.put(&list.replace("\"client_id\":1", "\"client_id\":3"));
                count += 1;
            }
            tokio::join!(writer.flush(), reader.answers(count));
            changed += count * 100;
        }
        // About 50,000 changes per second, as the measurement requires.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    changed
}
