//! kcat: a text file in, a restart, the same bytes out.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::broker::Broker;
use crate::peer;

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

fn kcat(broker: &Broker) -> Option<Command> {
    let mut command = peer::command(&peer::kcat()?);
    command.args(["-b", broker.kafka()]);
    Some(command)
}

/// Returns distinct, compressible lines of 1 to 120 characters.
fn lines(count: u32) -> String {
    let mut text = String::new();
    let mut state = 0x9e37_79b9_u32;
    for number in 0..count {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let width = usize::try_from(state % 110).unwrap();
        writeln!(text, "{number} {state:x} {:.width$}", "relay ".repeat(20)).unwrap();
    }
    text
}

#[test]
fn a_file_comes_back_byte_for_byte_after_a_restart_with_every_codec() {
    if peer::kcat().is_none() {
        return;
    }
    let mut broker = Broker::start();
    let file = broker.folder().join("lines.txt");
    let sent = lines(200_000);
    fs::write(&file, &sent).unwrap();
    for codec in CODECS {
        let topic = format!("kcat.{codec}");
        peer::run(
            kcat(&broker)
                .unwrap()
                .args(["-P", "-p", "0", "-z", codec, "-t", &topic, "-l"])
                .arg(&file),
        );
    }
    broker.restart();
    for codec in CODECS {
        let topic = format!("kcat.{codec}");
        let read = ["-C", "-q", "-e", "-o", "beginning", "-p", "0", "-t", &topic];
        let received = peer::run(kcat(&broker).unwrap().args(read));
        assert!(
            received == sent.as_bytes(),
            "{codec}: {} bytes sent, {} received",
            sent.len(),
            received.len()
        );
    }
}

#[test]
fn kcat_sees_the_metadata_and_the_end_of_a_topic() {
    if peer::kcat().is_none() {
        return;
    }
    let broker = Broker::start();
    let file = broker.folder().join("three.txt");
    fs::write(&file, "one\ntwo\nthree\n").unwrap();
    peer::run(
        kcat(&broker)
            .unwrap()
            .args(["-P", "-p", "0", "-t", "kcat.metadata", "-l"])
            .arg(&file),
    );
    let listing = peer::run_text(kcat(&broker).unwrap().args(["-L", "-t", "kcat.metadata"]));
    assert!(
        listing.contains("topic \"kcat.metadata\" with 1 partitions"),
        "{listing}"
    );
    assert!(listing.contains(broker.kafka()), "{listing}");
    let end = peer::run_text(kcat(&broker).unwrap().args(["-Q", "-t", "kcat.metadata:0:-1"]));
    assert!(end.contains("kcat.metadata [0] offset 3"), "{end}");
}
