//! Web pages and foreign names against every router of the HTTP port, and the root path.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};

use crate::common::{Folder, Running, connect, serve};
use crate::refusals::{ask, refused};

/// Requests with the status that a program gets, a route of each router and a path of none.
const API: [(&str, u16); 8] = [
    ("GET /v1", 200),
    ("GET /v1/queues", 200),
    ("GET /v1/openapi.json", 200),
    ("GET /v1/problems/not_serving", 200),
    ("POST /v1/queues/q/purge", 404),
    ("GET /v1/node/settings", 200),
    ("POST /v1/journal/scrub", 200),
    ("PUT /v1/queues", 405),
];

#[test]
fn each_router_has_its_rules_for_pages_and_names() {
    let folder = Folder::new();
    let mut command = serve(&folder);
    command.args(["--set", "http.origins=https://console.example"]);
    command.args(["--set", "http.hosts=broker.example"]);
    let running = Running::start(command);
    let http = running.address("http");
    let own = format!("host: {http}");
    let own_origin = format!("origin: http://{http}");
    let listed = "origin: https://console.example";
    for (headers, code) in [
        (&[&*own][..], None),
        (&["host: broker.example:7070"], None),
        (&["host: localhost"], None),
        (&["host: elsewhere.example"], Some("bad_host")),
        (&["host: broker.example.evil"], Some("bad_host")),
        (&[&own, &own_origin, "sec-fetch-site: same-origin"], None),
        (&[&own, "sec-fetch-site: none"], None),
        (&[&own, listed, "sec-fetch-site: cross-site"], None),
        (&["host: elsewhere.example", listed], Some("bad_host")),
        (&[&own, "origin: null"], Some("cross_site")),
        (&[&own, "origin: https://elsewhere.example"], Some("cross_site")),
        (&[&own, "origin: http://localhost:1"], Some("cross_site")),
        (&[&own, "sec-fetch-site: same-site"], Some("cross_site")),
        (&[&own, "sec-fetch-site: cross-site"], Some("cross_site")),
        (
            &[&own, &own_origin, "sec-fetch-site: cross-site"],
            Some("cross_site"),
        ),
        (
            &["host: elsewhere.example", "origin: http://elsewhere.example"],
            Some("bad_host"),
        ),
    ] {
        for (request, status) in API {
            match code {
                None => assert_eq!(ask(http, request, headers, "").0, status, "{request} {headers:?}"),
                Some(code) => {
                    let found = refused(http, request, headers, "");
                    assert_eq!(found, (403, code.to_owned()), "{request} {headers:?}");
                }
            }
        }
        // Files and figures, no data: for everyone.
        for request in [
            "GET /",
            "GET /health",
            "GET /metrics",
            "GET /live/try",
            "GET /console/",
        ] {
            assert_eq!(ask(http, request, headers, "").0, 200, "{request} {headers:?}");
        }
        assert_eq!(ask(http, "GET /none", headers, "").0, 404, "{headers:?}");
    }
    let preflight = [&*own, listed, "access-control-request-method: POST"];
    let (status, head, _) = ask(http, "OPTIONS /v1/queues/q/purge", &preflight, "");
    assert_eq!(status, 204);
    assert!(
        head.contains("access-control-allow-origin: https://console.example"),
        "{head}"
    );
    assert!(head.contains("access-control-allow-methods: get, put"), "{head}");
    let (_, head, _) = ask(http, "GET /v1", &[&own, listed], "");
    assert!(
        head.contains("access-control-allow-origin: https://console.example"),
        "{head}"
    );
    let elsewhere = [&*own, "origin: https://elsewhere.example", preflight[2]];
    let found = refused(http, "OPTIONS /v1/queues/q/purge", &elsewhere, "");
    assert_eq!(found, (403, "cross_site".to_owned()));
}

/// Opening handshake as a browser sent it in 2015 for a page from a file.
const HANDSHAKE: &str = "\
    GET ws://127.0.0.1:19001/ HTTP/1.1\r\n\
    Host: 127.0.0.1:19001\r\n\
    Connection: Upgrade\r\n\
    Pragma: no-cache\r\n\
    Cache-Control: no-cache\r\n\
    Upgrade: websocket\r\n\
    Origin: null\r\n\
    Sec-WebSocket-Version: 13\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/42.0.2311.90 \
    Safari/537.36\r\n\
    Accept-Encoding: gzip, deflate, sdch\r\n\
    Accept-Language: en-US,en;q=0.8,sv;q=0.6\r\n\
    Sec-WebSocket-Key: fGA/GZ304AGt/qlACNiItA==\r\n\
    Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\
    \r\n";

/// Returns a text as a client's frame of a WebSocket, whose mask is zero.
fn frame(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    assert!(length < 126);
    [&[0x81, 0x80 | length, 0, 0, 0, 0], text.as_bytes()].concat()
}

#[test]
fn the_root_path_takes_a_websocket_under_the_rules_of_live_topics() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let http = running.address("http");
    let mut stream = connect(http);
    stream.write_all(HANDSHAKE.as_bytes()).unwrap();
    stream
        .write_all(&frame("{\"command\":\"ping\",\"client_id\":1,\"id\":7}"))
        .unwrap();
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"}") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{answer:?}");
        answer.push(byte[0]);
    }
    let answer = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    for header in [
        "connection: upgrade\r\n",
        "upgrade: websocket\r\n",
        "sec-websocket-accept: h0lpb0mxl553xj/5zhpe30x3ay8=\r\n",
    ] {
        assert!(answer.contains(header), "{answer}");
    }
    assert!(
        answer.ends_with("\"result\":\"success\"}") && answer.contains("\"id\":7"),
        "{answer}"
    );

    let host = format!("host: {http}");
    let upgrade = [
        &*host,
        "connection: upgrade",
        "upgrade: WebSocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: fGA/GZ304AGt/qlACNiItA==",
    ];
    for header in ["origin: https://elsewhere.example", "sec-fetch-site: cross-site"] {
        let headers = [&upgrade[..], &[header]].concat();
        for request in ["GET /", "GET /live"] {
            let found = refused(http, request, &headers, "");
            assert_eq!(found, (403, "cross_site".to_owned()), "{request} {header}");
        }
    }
    let found = refused(http, "GET /", &upgrade[..4], "");
    assert_eq!(found, (426, "no_websocket".to_owned()), "without a key");
    let (status, head, _) = ask(http, "GET /", &[&host, "accept: text/html"], "");
    assert_eq!(status, 302);
    for header in [
        "location: /console/",
        "vary: accept, upgrade",
        "cache-control: no-store",
    ] {
        assert!(head.contains(header), "{head}");
    }
    let (_, _, text) = ask(http, "GET /", &[&host], "");
    assert!(!text.contains('<') && text.contains(": /metrics\n"), "{text}");
}

#[test]
fn pages_that_only_show_are_refused_what_programs_may() {
    let folder = Folder::new();
    let mut command = serve(&folder);
    command.args(["--set", "console.actions=none"]);
    command.args(["--set", "console.lab_url=http://lab.example:7072/lab/"]);
    let running = Running::start(command);
    let http = running.address("http");
    let host = format!("host: {http}");
    let page = [&*host, "sec-fetch-site: same-origin"];
    assert_eq!(ask(http, "PUT /v1/queues/q", &[&host], "{}").0, 201);
    let found = refused(http, "DELETE /v1/queues/q", &page, "");
    assert_eq!(found, (403, "forbidden".to_owned()));
    assert_eq!(ask(http, "GET /v1/queues/q", &page, "").0, 200);
    let (_, _, settings) = ask(http, "GET /console/settings.json", &page, "");
    assert!(
        settings.contains(r#""shows_only":true"#) && settings.contains("lab.example"),
        "{settings}"
    );
}

#[test]
fn a_console_that_is_switched_off_is_not_served() {
    let folder = Folder::new();
    let mut command = serve(&folder);
    command.args(["--set", "console.enabled=false"]);
    let running = Running::start(command);
    let http = running.address("http");
    let host = format!("host: {http}");
    let (status, _, said) = ask(http, "GET /console/queues", &[&host], "");
    assert_eq!(status, 404);
    assert!(said.contains("console.enabled"), "{said}");
    assert_eq!(ask(http, "GET /v1/queues", &[&host], "").0, 200);
}
