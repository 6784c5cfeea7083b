//! Sinks over TLS: records of another broker, a queue and an exchange of it.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use rustix::process::Signal;

use crate::common::{Folder, Running};
use crate::sinks::{PATIENCE, Scene, printed};
use crate::tls::Encrypted;

/// A broker with TLS, and one that has the sinks.
struct Two {
    far: Encrypted,
    near: Scene,
    ca: PathBuf,
}

impl Two {
    fn start() -> Self {
        let far = Encrypted::start("");
        let ca = far.ca();
        let near = Scene::new();
        fs::create_dir(near.folder.path().join("out")).unwrap();
        Self { far, near, ca }
    }

    fn define(&self, fields: &str) {
        let ca = self.ca.display().to_string();
        let out = self.near.folder.path().join("out").display().to_string();
        let text = format!("[sink.events]\n{fields}\nflush = {{ every = \"50ms\" }}\n");
        fs::write(self.near.file(), text.replace("CA", &ca).replace("OUT", &out)).unwrap();
        printed(self.near.sink("apply", &[]).output().unwrap());
    }

    /// Runs the sink until its store is at a position.
    fn run(&self, records: u64) {
        let sink = Running::start(self.near.sink("run", &[]));
        let begun = Instant::now();
        while self.near.position() < records {
            assert!(begun.elapsed() < PATIENCE, "at {}", self.near.position());
        }
        sink.signal(Signal::TERM);
        assert!(sink.end().0.success());
    }
}

fn far(two: &Two, listener: &str) -> String {
    let port = two.far.running.address(listener).port();
    format!("localhost:{port}")
}

#[test]
fn records_come_over_tls_and_go_back() {
    let two = Two::start();
    let kafka = far(&two, "kafka-tls");
    two.far.done(&["topic", "create", "log", "-p", "1"]);
    two.far.done(&["topic", "create", "copy", "-p", "1"]);
    two.define(&format!(
        "from = \"log\"\nto = \"topic\"\ntopic = \"copy\"\nservers = [\"{kafka}\"]\nca = 'CA'"
    ));
    two.near.produce("k:{\"n\":1}\nk:{\"n\":2}\n");
    two.run(2);
    let copied = two
        .far
        .done(&["consume", "copy", "--from", "earliest", "--until", "latest"]);
    assert_eq!(copied.lines().count(), 2, "{copied}");
    two.define(&format!(
        "from = \"copy\"\nsource = {{ kafka = [\"{kafka}\"], tls = true, ca = 'CA' }}\nto = \"files\"\npath = 'OUT'"
    ));
    two.run(2);
}

#[test]
fn messages_come_over_tls_and_go_back() {
    let two = Two::start();
    let url = format!("amqps://{}/%2F", far(&two, "amqp-tls"));
    let http = two.far.running.address("http").to_string();
    two.far.done(&["queue", "create", "jobs", "--http", &http]);
    two.define(&format!(
        "from = \"log\"\nto = \"amqp\"\nurl = \"{url}\"\nca = 'CA'\nrouting_key = \"jobs\""
    ));
    two.near.produce("k:{\"n\":1}\nk:{\"n\":2}\n");
    two.run(2);
    two.define(&format!(
        "from = \"queue:jobs\"\nsource = {{ amqp = \"{url}\", ca = 'CA' }}\nto = \"files\"\npath = 'OUT'"
    ));
    two.run(2);
}

#[test]
fn a_certificate_of_a_stranger_is_refused() {
    let two = Two::start();
    let stranger = Folder::new();
    let ca = Encrypted::authority(&stranger);
    let kafka = far(&two, "kafka-tls");
    two.define(&format!(
        "from = \"log\"\nsource = {{ kafka = [\"{kafka}\"], tls = true, ca = '{}' }}\nto = \"files\"\npath = 'OUT'",
        ca.display()
    ));
    let mut sink = Running::start(two.near.sink("run", &[]));
    let said = sink.logged("the source is away").concat();
    assert!(said.contains("certificate"), "{said}");
}
