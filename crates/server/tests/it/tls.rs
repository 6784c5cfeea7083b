//! TLS of the real binary: certificates that it makes, shows, and reads again.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{Folder, Running, connect, ended, serve};
use rustix::process::Signal;

fn stafett() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
    command.env_clear();
    command
}

/// Makes certificates in a folder below `folder`.
fn self_signed(folder: &Folder, name: &str, more: &[&str]) -> (PathBuf, Output) {
    let dir = folder.path().join(name);
    let arguments = ["tls", "self-signed", "--dir", dir.to_str().unwrap()];
    let output = ended(stafett(), &[&arguments, more].concat());
    (dir, output)
}

/// A broker with TLS on free ports and a file of settings.
pub(crate) struct Encrypted {
    pub(crate) running: Running,
    tls: PathBuf,
    folder: Folder,
}

impl Encrypted {
    pub(crate) fn start(more: &str) -> Self {
        let folder = Folder::new();
        let (tls, output) = self_signed(&folder, "tls", &[]);
        assert!(output.status.success(), "{output:?}");
        let file = folder.path().join("stafett.toml");
        let text = format!(
            "[tls]\ncertificate = '{0}/server.pem'\nkey = '{0}/server.key'\n{more}\n[kafka]\ntls_listen = '127.0.0.1:0'\n\
             [amqp]\ntls_listen = '127.0.0.1:0'\n[http]\ntls_listen = '127.0.0.1:0'\n",
            tls.display()
        );
        fs::write(&file, text).unwrap();
        let mut command = serve(&folder);
        command.arg("--config").arg(&file);
        let running = Running::start(command);
        Self { running, tls, folder }
    }

    /// Runs a command over the HTTP port with TLS.
    fn command(&self, arguments: &[&str], ca: &Path) -> Output {
        let http = format!("https://{}", self.running.address("http-tls"));
        let mut command = stafett();
        command.args(arguments).args(["--http", &http, "--ca"]).arg(ca);
        command.output().unwrap()
    }

    /// Returns the file of the authority that signed the certificates.
    pub(crate) fn ca(&self) -> PathBuf {
        self.tls.join("ca.pem")
    }

    /// Makes an authority of a stranger, and returns its file.
    pub(crate) fn authority(folder: &Folder) -> PathBuf {
        let (dir, output) = self_signed(folder, "stranger", &[]);
        assert!(output.status.success(), "{output:?}");
        dir.join("ca.pem")
    }

    /// Runs a command over the plain listeners.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let mut command = stafett();
        command.env("STAFETT_SERVER", self.running.address("kafka").to_string());
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn reload(&self) -> String {
        let ca = self.folder.path().join("trusted.pem");
        let output = self.command(&["node", "reload", "--json"], &ca);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Puts the certificates of another folder in place of those in force.
    fn replace(&self, from: &Path, files: &[&str]) {
        for file in files {
            fs::copy(from.join(file), self.tls.join(file)).unwrap();
        }
    }
}

#[test]
fn certificates_are_written_once_and_keys_are_for_their_owner() {
    let folder = Folder::new();
    let (dir, output) = self_signed(
        &folder,
        "tls",
        &["--name", "broker.example", "--name", "192.0.2.7"],
    );
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains(&format!("certificate = \"{}/server.pem\"", dir.display())),
        "{said}"
    );
    for name in ["ca", "server", "client"] {
        let mode = |file: String| fs::metadata(dir.join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(format!("{name}.key")), 0o600);
        assert_eq!(mode(format!("{name}.pem")), 0o644);
    }
    let before = fs::read(dir.join("ca.key")).unwrap();
    let (_, again) = self_signed(&folder, "tls", &[]);
    assert!(!again.status.success());
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(
        said.contains("ca.pem is there already, and is not replaced"),
        "{said}"
    );
    assert_eq!(fs::read(dir.join("ca.key")).unwrap(), before);
}

#[test]
fn the_commands_speak_https_and_trust_only_what_they_are_told() {
    let broker = Encrypted::start("");
    let output = broker.command(&["node", "status"], &broker.tls.join("ca.pem"));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("http-tls"), "{said}");
    let (other, _) = self_signed(&broker.folder, "other", &[]);
    let output = broker.command(&["node", "status"], &other.join("ca.pem"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("there is no TLS with 127.0.0.1:"), "{said}");
}

#[test]
fn the_commands_of_topics_speak_tls_and_log_in() {
    let broker = Encrypted::start("");
    let ca = broker.tls.join("ca.pem");
    let password = broker.folder.path().join("password");
    fs::write(&password, "secret\n").unwrap();
    let file = password.to_str().unwrap();
    let added = broker.command(
        &[
            "user",
            "add",
            "root",
            "--tag",
            "superuser",
            "--password-file",
            file,
        ],
        &ca,
    );
    assert!(added.status.success(), "{added:?}");
    let server = format!("tls://{}", broker.running.address("kafka-tls"));
    let run = |arguments: &[&str], ca: &Path, input: &str| {
        let mut command = stafett();
        command
            .args(arguments)
            .args(["--server", &server, "--ca"])
            .arg(ca);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that is refused reads nothing.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        child.wait_with_output().unwrap()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let login = ["--user", "root", "--password-file", file];
    let created = run(&[&["topic", "create", "t"][..], &login].concat(), &ca, "");
    assert!(created.status.success(), "{}", text(&created.stderr));
    let produced = run(&[&["produce", "t"][..], &login].concat(), &ca, "one\ntwo\n");
    assert!(produced.status.success(), "{}", text(&produced.stderr));
    let consume = ["consume", "t"];
    let consumed = run(&[&consume[..], &login].concat(), &ca, "");
    assert_eq!(
        text(&consumed.stdout).lines().count(),
        2,
        "{}",
        text(&consumed.stderr)
    );
    let stranger = run(&["topic", "list"], &ca, "");
    assert!(!stranger.status.success(), "{}", text(&stranger.stdout));
    fs::write(&password, "wrong").unwrap();
    let refused = run(&[&["topic", "list"][..], &login].concat(), &ca, "");
    assert!(
        text(&refused.stderr).contains("the login of \"root\""),
        "{}",
        text(&refused.stderr)
    );
    let (other, _) = self_signed(&broker.folder, "other", &[]);
    let refused = run(
        &[&["topic", "list"][..], &login].concat(),
        &other.join("ca.pem"),
        "",
    );
    assert!(
        text(&refused.stderr).contains("cannot connect to"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn a_new_certificate_is_taken_and_a_bad_one_is_said_everywhere() {
    let mut broker = Encrypted::start("");
    fs::copy(
        broker.tls.join("ca.pem"),
        broker.folder.path().join("trusted.pem"),
    )
    .unwrap();
    let (other, _) = self_signed(&broker.folder, "other", &[]);

    // The key is still the one before.
    broker.replace(&other, &["server.pem"]);
    let answer = broker.reload();
    assert!(
        answer.contains("\"key\":\"tls.certificate\"") && answer.contains("do not belong together"),
        "{answer}"
    );
    broker
        .running
        .logged("the new certificate is not good: the one before stays");
    let metrics = {
        let ca = broker.tls.join("ca.pem");
        assert!(
            broker.command(&["node", "status"], &ca).status.success(),
            "the one before stays"
        );
        let mut stream = connect(broker.running.address("http"));
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        std::io::read_to_string(stream).unwrap()
    };
    assert!(
        metrics.contains("stafett_tls_certificate_failures_total{listener=\"http-tls\"} "),
        "{metrics}"
    );
    assert!(
        metrics.contains("stafett_tls_certificate_expiry_timestamp_seconds{listener=\"kafka-tls\"} "),
        "{metrics}"
    );

    // Without any word, by the change of the file.
    broker.replace(&other, &["server.key"]);
    let is_last = |lines: &[String]| lines.last().is_some_and(|line| line.contains("http-tls"));
    while !is_last(&broker.running.logged("the certificate has changed")) {}
    let ca = other.join("ca.pem");
    assert!(broker.command(&["node", "status"], &ca).status.success());
}

#[test]
fn settings_of_tls_change_by_sighup() {
    let mut broker = Encrypted::start("version_min = '1.2'");
    let file = broker.folder.path().join("stafett.toml");
    let text = fs::read_to_string(&file).unwrap().replace("'1.2'", "'1.3'");
    fs::write(&file, &text).unwrap();
    broker.running.signal(Signal::HUP);
    let logged = broker.running.logged("tls.version_min").concat();
    assert!(logged.contains("setting changed"), "{logged}");
    fs::write(&file, text.replace("[tls]", "[tls]\nclients = 'required'")).unwrap();
    broker.running.signal(Signal::HUP);
    broker
        .running
        .logged("tls.client_ca does not say which authorities are trusted");
}

#[test]
fn tls_on_a_plain_port_is_said_in_the_log() {
    let folder = Folder::new();
    let mut broker = Running::start(serve(&folder));
    for listener in ["kafka", "amqp", "http"] {
        let mut stream = connect(broker.address(listener));
        stream
            .write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 0])
            .unwrap();
        drop(std::io::read_to_string(stream));
        let logged = broker.logged("a client speaks TLS to a port without it").concat();
        assert!(logged.contains(&format!("listener=\"{listener}\"")), "{logged}");
    }
}

#[test]
fn settings_that_do_not_fit_are_refused_at_the_start() {
    for (settings, expected) in [
        (
            &["tls.certificate=a.pem"][..],
            "tls.certificate is set, and tls.key is not",
        ),
        (
            &["kafka.tls_key=a.key"],
            "kafka.tls_key is set, and kafka.tls_certificate is not",
        ),
        (
            &["amqp.listen_takes_tls=true"],
            "amqp.listen_takes_tls is true, and there is no certificate",
        ),
        (
            &["tls.certificate=/none/a.pem", "tls.key=/none/a.key"],
            "/none/a.pem cannot be read",
        ),
        (
            &["tls.version_min=1.1"],
            "tls.version_min cannot be \"1.1\": expected 1.2 or 1.3",
        ),
    ] {
        let folder = Folder::new();
        let mut command = serve(&folder);
        command.args(settings.iter().flat_map(|setting| ["--set", setting]));
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && said.contains(expected),
            "{said}"
        );
    }
}
