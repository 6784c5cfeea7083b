//! Queues and namespaces over HTTP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::SocketAddr;

use rustix::process::Signal;

use crate::common::{Folder, Running, connect, get, serve};

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    write!(
        stream,
        "{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn namespaces_are_made_listed_and_deleted_over_http_and_stay_so() {
    let folder = Folder::new();
    let mut listed = "{\"namespaces\":[\"/\"]}";
    for (request, status, after) in [
        (
            "PUT /namespaces?namespace=shop",
            "201 Created",
            "{\"namespaces\":[\"/\",\"shop\"]}",
        ),
        (
            "DELETE /namespaces?namespace=shop",
            "200 OK",
            "{\"namespaces\":[\"/\"]}",
        ),
    ] {
        let running = Running::start(serve(&folder));
        let http = running.address("http");
        assert!(ask(http, "GET /namespaces").contains(listed));
        assert!(ask(http, request).contains(status), "{request}");
        listed = after;
        running.signal(Signal::TERM);
        assert_eq!(running.end().0.code(), Some(0));
    }
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    assert!(ask(http, "GET /namespaces").contains(listed));
    assert!(ask(http, "GET /queues").contains("{\"queues\":[]}"));
    assert!(ask(http, "POST /queues/purge?queue=q").contains("404 Not Found"));
    assert!(ask(http, "GET /queues/messages").contains("400 Bad Request"));
    let refused = get(http, "/queues");
    assert!(
        refused.contains("403 Forbidden"),
        "by a name of somebody else's: {refused}"
    );
}
