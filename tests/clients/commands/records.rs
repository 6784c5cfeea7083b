//! `stafett produce` and `stafett consume`.

use std::fmt::Write as _;

use super::cli::Cli;

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// Lines of many lengths, some empty, some with a carriage return, some not UTF-8.
fn lines(count: u32) -> Vec<u8> {
    let mut text = Vec::new();
    let mut state = 0x9e37_79b9_u32;
    for number in 0..count {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        match state % 97 {
            0 => {}
            1 => text.extend_from_slice(b"ends with a return\r"),
            2 => text.extend_from_slice(&[0xff, 0, 0xc3, 0x28]),
            rest => {
                let width = usize::try_from(rest).unwrap();
                let mut line = String::new();
                write!(line, "{number} {state:x} {:.width$}", "relay ".repeat(20)).unwrap();
                text.extend_from_slice(line.as_bytes());
            }
        }
        text.push(b'\n');
    }
    text
}

pub(super) fn a_file_comes_back_byte_for_byte_with_every_codec(cli: &Cli) {
    let sent = lines(200_000);
    for codec in CODECS {
        let topic = format!("cli.bytes.{codec}");
        cli.text(&["topic", "create", &topic, "-p", "1"]);
        cli.produce(&[&topic, "-z", codec], &sent);
        let received = cli.bytes(&["consume", &topic]);
        assert!(
            received == sent,
            "{codec}: {} bytes sent, {} received",
            sent.len(),
            received.len()
        );
    }
    // All of it as one record: no byte is added.
    cli.text(&["topic", "create", "cli.bytes.raw", "-p", "1"]);
    let part = &sent[..100_001];
    cli.produce(&["cli.bytes.raw", "--format", "raw"], part);
    assert!(cli.bytes(&["consume", "cli.bytes.raw", "--format", "%v"]) == part);
    // Several partitions: every line is there, each once.
    let sorted = |bytes: &[u8]| {
        let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort();
        lines
    };
    for acks in ["1", "0"] {
        let topic = format!("cli.bytes.acks-{acks}");
        cli.text(&["topic", "create", &topic, "-p", "5"]);
        // Leaders that answer also take records. Without acks a leader that does not would go unnoticed.
        assert_eq!(cli.text(&["consume", &topic]), "");
        cli.produce(&[&topic, "--acks", acks], &sent);
        let received = cli.bytes(&["consume", &topic]);
        assert!(sorted(&received) == sorted(&sent), "acks {acks}");
    }
}

pub(super) fn keys_headers_and_nulls_come_back_as_json_and_go_in_again(cli: &Cli) {
    cli.text(&["topic", "create", "cli.json", "cli.json.copy", "-p", "4"]);
    cli.produce(
        &[
            "cli.json",
            "--key-separator",
            ":",
            "--headers-separator",
            "\\t",
            "--header",
            "app=x",
            "--null",
            "NULL",
        ],
        b"a=1,b=2\tabc:first\n\tabc:NULL\n\tother:\xff\xfe\n",
    );
    let printed = |topic: &str| {
        let format = "%p %o %k=%v (%K,%S) %h\\n";
        let mut lines: Vec<String> =
            String::from_utf8_lossy(&cli.bytes(&["consume", topic, "--format", format, "--null", "-"]))
                .lines()
                .map(str::to_owned)
                .collect();
        lines.sort();
        lines
    };
    let first = printed("cli.json");
    // Murmur hash of the key, as the Java client does it: abc is 479470107, of 4 partitions the last.
    assert!(
        first.contains(&"3 0 abc=first (3,5) a=1,b=2,app=x".to_owned()),
        "{first:?}"
    );
    assert!(first.contains(&"3 1 abc=- (3,-1) app=x".to_owned()), "{first:?}");
    let json = cli.bytes(&["consume", "cli.json", "--json"]);
    assert!(String::from_utf8_lossy(&json).contains("\"value_base64\":\"//4=\""));
    cli.produce(
        &["cli.json.copy", "--format", "json", "--compression", "lz4"],
        &json,
    );
    assert_eq!(printed("cli.json.copy"), first);
    let times = |topic: &str| {
        let rows = cli.json(&["consume", topic]);
        let mut times: Vec<_> = rows
            .iter()
            .map(|row| row["timestamp"].as_i64().unwrap())
            .collect();
        times.sort_unstable();
        times
    };
    assert_eq!(times("cli.json"), times("cli.json.copy"));
}

pub(super) fn reading_begins_and_stops_where_it_is_told_to(cli: &Cli) {
    cli.text(&["topic", "create", "cli.places", "-p", "2"]);
    let mut rows = String::new();
    for number in 0..10 {
        let time = 1000 + number;
        writeln!(
            rows,
            "{{\"value\":\"v{number}\",\"partition\":1,\"timestamp\":{time}}}"
        )
        .unwrap();
    }
    cli.produce(&["cli.places", "--format", "json"], rows.as_bytes());
    let read = |arguments: &[&str]| {
        cli.text(&[&["consume", "cli.places:1"], arguments].concat())
            .replace('\n', " ")
    };
    assert_eq!(read(&["--from", "7"]), "v7 v8 v9 ");
    assert_eq!(read(&["--from", "-2"]), "v8 v9 ");
    assert_eq!(read(&["--until", "2"]), "v0 v1 ");
    assert_eq!(read(&["--from", "3", "--until", "5"]), "v3 v4 ");
    assert_eq!(read(&["--from", "1970-01-01T00:00:01.008Z"]), "v8 v9 ");
    assert_eq!(read(&["--until", "1970-01-01T00:00:01.001Z"]), "v0 ");
    assert_eq!(read(&["--from", "latest"]), "");
    assert_eq!(read(&["--from", "1m ago"]), "");
    assert_eq!(read(&["--max", "3"]), "v0 v1 v2 ");
    assert_eq!(cli.text(&["consume", "cli.places:0"]), "");

    let follower = cli.start(&["consume", "cli.places", "--follow", "--from", "-1"]);
    assert_eq!(follower.lines.recv().unwrap(), "v9");
    cli.produce(&["cli.places", "-p", "0"], b"more");
    assert_eq!(follower.lines.recv().unwrap(), "more");
    follower.interrupt();
}

pub(super) fn lines_that_cannot_be_sent_are_named(cli: &Cli) {
    cli.text(&[
        "topic",
        "create",
        "cli.small",
        "-p",
        "1",
        "--set",
        "max.message.bytes=2KiB",
    ]);
    let long = "x".repeat(5000);
    let input = format!("a:1\nno separator\nb:2\nk:{long}\nc:3");
    let output = cli.feed(&["produce", "cli.small", "-K", ":"], input.as_bytes());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("line 2: there is no separator between key and value"),
        "{said}"
    );
    assert!(
        said.contains("line 4: it is larger than the topic's max.message.bytes"),
        "{said}"
    );
    assert!(said.contains("2 of 5 records were not stored"), "{said}");
    assert_eq!(cli.text(&["consume", "cli.small"]), "1\n2\n3\n");
}
