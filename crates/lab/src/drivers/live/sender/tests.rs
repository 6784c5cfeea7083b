//! The sender against a server that takes a WebSocket and answers nothing.

use std::collections::BTreeMap;
use std::future::ready;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{advance, pause};

use super::*;
use crate::drivers::Reads;
use crate::drivers::live::spoken;
use crate::experiment::{LiveFormat, Source};
use crate::run::point::destinations;
use crate::workload::Recorder;
use crate::workload::recorder::Clock;

/// A sender of a role, and the server's end of its connection.
async fn sender(role: &str) -> (LiveSender, Reports, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut head).await.unwrap();
        }
        stream.write_all(b"HTTP/1.1 101 Yes\r\n\r\n").await.unwrap();
        stream
    };
    let (link, stream) = tokio::join!(
        Link::open(&address, 0, spoken(LiveFormat::Msgpack), LiveFormat::Msgpack),
        server
    );
    let source = Source::new(
        "test",
        format!(
            "question = \"?\"\nsystems = [\"stafett\"]\n[topics.main]\nkind = \"live\"\n[roles.p]\ndoes = \"produce\"\n{role}"
        ),
    );
    let plan = source.plan(1.0, &BTreeMap::new()).unwrap();
    let seat = Seat {
        role: Arc::new(plan.roles["p"].clone()),
        destinations: Arc::clone(&destinations(&plan, &[], "test")["main"]),
        onward: None,
        client: 0,
        clients: 1,
        reads: Reads::Share,
        contents: Contents::constant(),
        group: "p".to_owned(),
    };
    let recorder = Arc::new(Recorder::new(Instant::now(), Clock::Acknowledgements));
    let reports = Reports::new(&recorder);
    (
        LiveSender::new(link.unwrap(), &seat, reports.clone()),
        reports,
        stream,
    )
}

fn message(sequence: u64, size: u32) -> Message {
    Message {
        stream: 7,
        sequence,
        size,
        ..Message::default()
    }
}

#[tokio::test]
async fn messages_that_have_waited_long_enough_leave_where_there_is_always_more_to_be_sent() {
    let (mut sender, reports, _server) = sender("linger = \"20ms\"").await;
    pause();
    let all = [message(0, 100), message(1, 100), message(2, 100)];
    reports.sent(&all);
    sender.send(&all[..1]).await.unwrap();
    advance(Duration::from_millis(19)).await;
    sender.send(&all[1..2]).await.unwrap();
    assert_eq!((sender.entries.len(), sender.flights.len()), (2, 0), "they wait");
    advance(Duration::from_millis(1)).await;
    // Nobody asks for a tick.
    sender.send(&all[2..]).await.unwrap();
    assert_eq!((sender.entries.len(), sender.flights.len()), (0, 1));
    drop(sender);
    assert_eq!(reports.recorder().totals().failed, 3);
}

#[tokio::test]
async fn a_wait_for_the_socket_that_is_dropped_forgets_no_message() {
    let (mut sender, reports, _server) = sender("linger = \"0us\"\ndelivery = \"at-most-once\"").await;
    let mut is_full = false;
    for sequence in 0..1000 {
        let some = [message(sequence, 1 << 20)];
        reports.sent(&some);
        // It has its turn from its beginning on: the rest waits for the socket.
        yield_now().await;
        tokio::select! {
            biased;
            sent = sender.send(&some) => sent.unwrap(),
            () = ready(()) => {
                is_full = true;
                break;
            }
        }
    }
    assert!(is_full, "nobody reads what is sent");
    assert_eq!(sender.leaving.messages, 1);
    tokio::select! {
        biased;
        happened = sender.tick() => happened.unwrap(),
        () = ready(()) => {}
    }
    drop(sender);
    let totals = reports.recorder().totals();
    assert_eq!(totals.sent, totals.acknowledged + totals.failed);
    assert_eq!(reports.outstanding(), 0);
}
