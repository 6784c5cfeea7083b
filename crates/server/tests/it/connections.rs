//! Connections of each protocol, as an operator sees and ends them.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{Folder, Running, connect, ended, serve};

/// Returns status and body of a request.
fn ask(address: SocketAddr, request: &str) -> (u16, Value) {
    let mut stream = connect(address);
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.get(9..12).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

/// Returns the only connection from an address, once it is in this state.
fn found(http: SocketAddr, client: &TcpStream, state: &str) -> Value {
    let path = format!("GET /v1/connections?peer={}", client.local_addr().unwrap());
    loop {
        let (status, list) = ask(http, &path);
        assert_eq!(status, 200, "{list}");
        if list["items"][0]["state"] == state {
            assert_eq!(list["matched"], 1);
            return list["items"][0].clone();
        }
    }
}

fn end(http: SocketAddr, connection: &Value) {
    let id = connection["id"].as_str().unwrap();
    for _ in 0..2 {
        let (status, answer) = ask(
            http,
            &format!("DELETE /v1/connections/{id}?reason=moving%20%C3%B6"),
        );
        // The second request may come after the end.
        assert!(
            status == 200 && answer["state"] == "closing" || status == 404,
            "{answer}"
        );
    }
}

fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    rest
}

/// Returns `ApiVersions` with an id and software, as a Kafka client sends it.
fn api_versions() -> Vec<u8> {
    let head = [&[0, 18, 0, 3, 0, 0, 0, 1, 0, 7][..], b"billing", &[0]].concat();
    let body = [&[11][..], b"librdkafka", &[4], b"2.3", &[0]].concat();
    let length = u32::try_from(head.len() + body.len()).unwrap().to_be_bytes();
    [&length[..], &head, &body].concat()
}

#[test]
fn connections_of_each_protocol_are_listed_and_end_in_its_words() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");

    let mut kafka = connect(running.address("kafka"));
    assert_eq!(found(http, &kafka, "handshake")["protocol"], Value::Null);
    kafka.write_all(&api_versions()).unwrap();
    let shown = loop {
        let shown = found(http, &kafka, "running");
        if shown["sent_bytes"] != 0 {
            break shown;
        }
    };
    let client = &shown["client"];
    assert_eq!(
        (&shown["protocol"], &shown["listener"]),
        (&"Kafka".into(), &"kafka".into())
    );
    assert_eq!(
        (&client["name"], &client["product"], &client["version"]),
        (&"billing".into(), &"librdkafka".into(), &"2.3".into())
    );
    assert_eq!(shown["received_bytes"], api_versions().len());
    end(http, &shown);
    assert_eq!(rest(kafka).len() as u64, shown["sent_bytes"].as_u64().unwrap());

    let mut idle = connect(http);
    write!(
        idle,
        "GET /health HTTP/1.1\r\nhost: {http}\r\nuser-agent: check/1.2 (x)\r\n\r\n"
    )
    .unwrap();
    let shown = found(http, &idle, "running");
    assert_eq!(
        (&shown["client"]["product"], &shown["protocol"]),
        (&"check".into(), &"HTTP".into())
    );
    end(http, &shown);
    assert!(String::from_utf8(rest(idle)).unwrap().contains("200 OK"));

    let mut live = connect(http);
    write!(
        live,
        "GET /live HTTP/1.1\r\nhost: {http}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: fGA/GZ304AGt/qlACNiItA==\r\n\r\n"
    )
    .unwrap();
    let text = "{\"command\":\"listen\",\"client_id\":\"ann\"}";
    let frame = [
        &[0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0],
        text.as_bytes(),
    ]
    .concat();
    live.write_all(&frame).unwrap();
    let shown = loop {
        let shown = found(http, &live, "running");
        if shown["client"]["name"] == "ann" {
            break shown;
        }
    };
    assert_eq!(shown["protocol"], "WebSocket");
    end(http, &shown);
    let mut close = vec![0x88, 2 + 9, 0x03, 0xf0];
    close.extend_from_slice("moving ö".as_bytes());
    let said = rest(live);
    assert!(said.ends_with(&close), "{said:?}");
}

#[test]
fn connections_that_are_not_there_and_wrong_queries_are_refused() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let (status, refused) = ask(http, "GET /v1/connections/none");
    assert_eq!((status, &refused["code"]), (404, &"no_such_connection".into()));
    let (status, refused) = ask(
        http,
        &format!("DELETE /v1/connections/1?reason={}", "x".repeat(1025)),
    );
    assert!(status == 400 || status == 404, "{refused}");
    for path in [
        "/v1/connections?after=x",
        "/v1/connections?sort=age",
        "/v1/channels?connection=7x",
    ] {
        assert!(matches!(ask(http, &format!("GET {path}")).0, 400 | 404), "{path}");
    }
    for sort in [
        "since",
        "-received_bytes",
        "sent_bytes",
        "-received_rate",
        "sent_rate",
        "channels",
        "-name",
    ] {
        let (status, listed) = ask(http, &format!("GET /v1/connections?sort={sort}"));
        assert_eq!(status, 200);
        // The connection that asks has sent something.
        let rate = &listed["items"][0]["received_rate"];
        assert!(rate.as_f64().is_some_and(|rate| rate > 0.0), "{listed}");
    }
}

#[test]
fn the_command_lists_shows_and_closes_connections() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let mut kafka = connect(running.address("kafka"));
    kafka.write_all(&api_versions()).unwrap();
    let shown = found(http, &kafka, "running");
    let id = shown["id"].as_str().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
        command.env_clear().stdin(Stdio::null());
        let http = http.to_string();
        let output = ended(command, &[arguments, &["--http", &http]].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = run(&["connection", "list", "--client", "billing", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(
        (&listed["id"], &listed["client"]["name"]),
        (&id.into(), &"billing".into())
    );
    assert!(run(&["connection", "list"]).contains("billing"));
    assert!(run(&["connection", "show", id]).contains("client.product"));
    assert_eq!(run(&["consumer", "list"]), "no consumers\n");
    let said = run(&["connection", "close", id, "--reason", "test", "--yes"]);
    assert!(said.ends_with("is ending\n"), "{said}");
    rest(kafka);
}
