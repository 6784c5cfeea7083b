//! Settings that are changed while the real binary runs.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::common::{Folder, Running, connect, serve};
use rustix::process::Signal;

/// Publishes a message and returns the answer.
fn publish(http: SocketAddr, topic: &str, payload: &str) -> String {
    let body = format!("{{\"topic\":\"{topic}\",\"payload\":{payload}}}");
    let mut stream = connect(http);
    let length = body.len();
    write!(
        stream,
        "POST /live/publish HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

struct Reloading {
    file: PathBuf,
    running: Running,
    http: SocketAddr,
    _folder: Folder,
}

impl Reloading {
    fn start(settings: &str) -> Self {
        let folder = Folder::new();
        let file = folder.path().join("stafett.toml");
        std::fs::write(&file, settings).unwrap();
        let mut command = serve(&folder);
        command.arg("--config").arg(&file);
        let running = Running::start(command);
        Self {
            http: running.address("http"),
            file,
            running,
            _folder: folder,
        }
    }

    /// Changes the file, triggers a reload, and returns the log up to a line with this text.
    fn reload(&mut self, settings: &str, until: &str) -> String {
        std::fs::write(&self.file, settings).unwrap();
        self.running.signal(Signal::HUP);
        self.running.logged(until).concat()
    }
}

#[test]
fn rules_of_live_topics_and_the_log_level_change_while_it_runs() {
    let mut broker = Reloading::start("[live]\nduplicates = 'news/=1h'\n");
    let http = broker.http;
    for expected in ["\"duplicates\":0", "\"duplicates\":0"] {
        assert!(publish(http, "songs/a", "1").contains(expected));
    }
    let logged = broker.reload(
        "[live]\nduplicates = 'songs/=1h'\nlogs = 'charts/=charts,2'\nclients_max = 7\n\
         [trace]\nshare = 0.5\nslow_ms = '10ms'\n[history]\nbytes_max = '1MiB'\n[log]\nlevel = 'warn'\n",
        "log.level",
    );
    assert!(
        logged.contains("setting needs a restart") && logged.contains("live.clients_max"),
        "{logged}"
    );
    let numbers = ["trace.share", "trace.slow_ms", "history.bytes_max"];
    for key in ["live.logs", "live.duplicates", "log.level"]
        .into_iter()
        .chain(numbers)
    {
        let is_said = |line: &str| line.contains("setting changed") && line.contains(key);
        assert!(logged.lines().any(is_said), "{key}: {logged}");
    }
    assert!(publish(http, "songs/a", "1").contains("\"duplicates\":0"));
    assert!(publish(http, "songs/a", "1").contains("\"duplicates\":1"));
    assert!(publish(http, "charts/a", "1").contains("\"stored\":1"));

    // An error changes nothing and names its place. Lines below the log level are not logged any more.
    let logged = broker.reload("[live]\nduplicates = 'songs/'\n", "not read again");
    assert!(logged.contains("stafett.toml:2"), "{logged}");
    assert!(!logged.contains(" INFO "), "{logged}");
    assert!(publish(http, "songs/a", "1").contains("\"duplicates\":1"));

    // A log that cannot be created leaves the rules unchanged.
    let logged = broker.reload(
        "[live]\nlogs = 'charts/=not/a/name'\n[log]\nlevel = 'warn'\n",
        "live.logs",
    );
    assert!(logged.contains("setting not changed"), "{logged}");
    assert!(publish(http, "charts/a", "1").contains("\"stored\":1"));

    broker.running.signal(Signal::TERM);
    assert_eq!(broker.running.end().0.code(), Some(0));
}

#[test]
fn without_a_file_to_read_again_a_hangup_ends_it() {
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    running.signal(Signal::HUP);
    let (status, _, logs) = running.end();
    assert_eq!(status.code(), Some(0));
    assert!(logs.contains("SIGHUP"), "{logs}");
}
