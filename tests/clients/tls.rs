//! Clients of each language over TLS. The broker asks for client certificates, and each client shows one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;

use crate::broker::{Broker, binary, is_stafett};
use crate::peer;

/// Certificates of a broker, and its addresses with TLS.
pub(crate) struct Tls {
    /// Folder with `ca.pem`, `server` and `client` with their keys, and `token`: that of the user `client`, by an
    /// authorization server whose keys are in `keys.json`.
    pub(crate) folder: PathBuf,
    pub(crate) kafka: String,
    pub(crate) amqp: String,
    pub(crate) http: String,
}

impl Tls {
    /// Makes certificates in a folder.
    pub(crate) fn make(folder: &Path) -> Self {
        let folder = folder.join("tls");
        peer::run(
            Command::new(binary())
                .args(["tls", "self-signed", "--dir"])
                .arg(&folder),
        );
        authorize(&folder);
        let free = || "127.0.0.1:0".to_owned();
        Self {
            folder,
            kafka: free(),
            amqp: free(),
            http: free(),
        }
    }

    /// Returns settings, each `KEY=VALUE`.
    pub(crate) fn settings(&self) -> Vec<String> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        vec![
            format!("tls.certificate={}", file("server.pem")),
            format!("tls.key={}", file("server.key")),
            format!("tls.client_ca={}", file("ca.pem")),
            "tls.clients=required".to_owned(),
            format!("oauth.keys={}", file("keys.json")),
            "oauth.issuer=login".to_owned(),
            "oauth.audience=stafett".to_owned(),
            format!("kafka.tls_listen={}", self.kafka),
            format!("amqp.tls_listen={}", self.amqp),
            format!("http.tls_listen={}", self.http),
        ]
    }

    /// Notes an address that the broker says.
    pub(crate) fn hear(&mut self, line: &str) {
        for (name, address) in [
            ("kafka-tls", &mut self.kafka),
            ("amqp-tls", &mut self.amqp),
            ("http-tls", &mut self.http),
        ] {
            let said = line
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(" listening on "));
            if let Some(said) = said {
                said.clone_into(address);
            }
        }
    }
}

/// Writes a token, and the keys that it is checked with.
fn authorize(folder: &Path) {
    let pair = rcgen::KeyPair::generate().unwrap();
    let key = EncodingKey::from_ec_der(&pair.serialize_der());
    let public = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({ "iss": "login", "aud": "stafett", "sub": "client", "exp": now + 3600 });
    let token = encode(&Header::new(Algorithm::ES256), &claims, &key).unwrap();
    fs::write(folder.join("token"), token).unwrap();
    fs::write(folder.join("keys.json"), json!({ "keys": [public] }).to_string()).unwrap();
}

/// Runs a program that says `done` at its end.
fn passes(command: Option<Command>, args: impl FnOnce(&Tls) -> Vec<String>) {
    if !is_stafett() {
        return;
    }
    let Some(mut command) = command else { return };
    let broker = Broker::start_with_tls();
    let said = peer::run_text(command.args(args(broker.tls())));
    assert!(said.ends_with("done\n"), "{said}");
}

fn amqp(tls: &Tls) -> Vec<String> {
    vec![tls.amqp.clone(), tls.folder.display().to_string()]
}

#[test]
fn pika_librdkafka_and_websockets_speak_tls() {
    let python = || {
        peer::python_with_amqp()?;
        let mut command = peer::command(&peer::python()?);
        command.arg(crate::broker::root().join("tests/clients/python/tls.py"));
        Some(command)
    };
    passes(python(), |tls| {
        let folder = tls.folder.display().to_string();
        vec![tls.kafka.clone(), tls.amqp.clone(), tls.http.clone(), folder]
    });
}

#[test]
fn amqplib_speaks_tls() {
    passes(peer::amqplib_with_tls(), amqp);
}

#[test]
fn amqp091_go_speaks_tls() {
    passes(peer::amqp091_go_with_tls(), amqp);
}

#[test]
fn kafkas_tools_speak_tls_with_pem_files() {
    let (Some(mut producer), Some(mut consumer)) = (
        crate::java::tool("ProducerPerformance"),
        crate::java::tool("org.apache.kafka.tools.consumer.ConsoleConsumer"),
    ) else {
        return;
    };
    if !is_stafett() {
        return;
    }
    let broker = Broker::start_with_tls();
    let tls = broker.tls();
    let read = |name: &str| fs::read_to_string(tls.folder.join(name)).unwrap();
    let own = tls.folder.join("client-with-key.pem");
    fs::write(&own, read("client.key") + &read("client.pem")).unwrap();
    let properties = tls.folder.join("client.properties");
    let text = format!(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={}\nssl.keystore.type=PEM\n\
         ssl.keystore.location={}\n",
        tls.folder.join("ca.pem").display(),
        own.display(),
    );
    fs::write(&properties, text).unwrap();
    let report = peer::run_text(
        producer
            .args([
                "--topic",
                "tls",
                "--num-records",
                "20000",
                "--record-size",
                "1000",
            ])
            .args(["--throughput", "-1", "--bootstrap-server", &tls.kafka])
            .arg("--command-config")
            .arg(&properties),
    );
    assert!(report.contains("20000 records sent"), "{report}");
    let lines = peer::run_text(
        consumer
            .args(["--topic", "tls", "--from-beginning", "--max-messages", "20000"])
            .args(["--bootstrap-server", &tls.kafka, "--timeout-ms", "60000"])
            .arg("--command-config")
            .arg(&properties),
    );
    assert_eq!(lines.lines().count(), 20_000);
}

#[test]
fn kcat_and_curl_speak_tls_and_are_refused_without_a_certificate() {
    let (Some(kcat), Some(curl)) = (peer::kcat(), peer::curl()) else {
        return;
    };
    if !is_stafett() {
        return;
    }
    let broker = Broker::start_with_tls();
    let tls = broker.tls();
    let file = |name: &str| tls.folder.join(name).display().to_string();
    let (authority, own, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let listed = peer::run_text(
        peer::command(&kcat)
            .args(["-L", "-b", &tls.kafka, "-X", "security.protocol=ssl"])
            .args(["-X", &format!("ssl.ca.location={authority}")])
            .args(["-X", &format!("ssl.certificate.location={own}")])
            .args(["-X", &format!("ssl.key.location={key}")]),
    );
    assert!(listed.contains(&tls.kafka), "{listed}");
    let get = |more: &[&str]| {
        let mut command = peer::command(&curl);
        let url = format!("https://{}/v1/connections", tls.http);
        command.args(["-s", "--cacert", &authority]).args(more).arg(url);
        command.output().unwrap()
    };
    let shown = String::from_utf8(get(&["--cert", &own, "--key", &key]).stdout).unwrap();
    assert!(shown.contains("\"client_subject\":\"CN=client\""), "{shown}");
    assert!(!get(&[]).status.success());
    let plain =
        peer::run_text(peer::command(&curl).args(["-s", &format!("http://{}/metrics", broker.http())]));
    let refused = "stafett_tls_handshake_failures_total{listener=\"http-tls\",reason=\"no_certificate\"} 1";
    assert!(plain.contains(refused), "{plain}");
}

#[test]
fn the_user_of_a_certificate_is_that_of_its_requests_and_its_cookie_stays_with_tls() {
    let Some(curl) = peer::curl() else { return };
    if !is_stafett() {
        return;
    }
    let broker = Broker::start_with_tls();
    let tls = broker.tls();
    let file = |name: &str| tls.folder.join(name).display().to_string();
    let (authority, own, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let json = ["-H", "Content-Type: application/json"];
    let secure = |arguments: &[&str], path: &str| {
        let mut command = peer::command(&curl);
        command.args(["-s", "--cacert", &authority, "--cert", &own, "--key", &key]);
        command.args(json).args(arguments);
        peer::run_text(command.arg(format!("https://{}{path}", tls.http)))
    };
    let plain = |arguments: &[&str], path: &str| {
        let mut command = peer::command(&curl);
        command.arg("-s").args(json).args(arguments);
        peer::run_text(command.arg(format!("http://{}{path}", broker.http())))
    };
    let root = [
        "-X",
        "PUT",
        "-d",
        r#"{"password": "pw-root", "tags": ["superuser"]}"#,
    ];
    plain(&root, "/v1/users/root");
    // The name alone makes no user: the certificate is a stranger's.
    let stranger = secure(&[], "/v1/whoami");
    assert!(stranger.contains("unauthenticated"), "{stranger}");
    plain(
        &["-u", "root:pw-root", "-X", "PUT", "-d", "{}"],
        "/v1/users/client",
    );
    let user = secure(&[], "/v1/whoami");
    assert!(user.contains(r#""name":"client""#), "{user}");
    // A login in the request goes before the certificate.
    let named = secure(&["-u", "root:pw-root"], "/v1/whoami");
    assert!(named.contains(r#""name":"root""#), "{named}");
    let login = ["-i", "-d", r#"{"user": "root", "password": "pw-root"}"#];
    let (by_tls, by_plain) = (secure(&login, "/v1/login"), plain(&login, "/v1/login"));
    let cookie = |answer: &str| {
        let mut lines = answer.lines();
        lines
            .find(|line| line.starts_with("set-cookie: "))
            .unwrap()
            .to_owned()
    };
    assert!(
        cookie(&by_tls).ends_with("; HttpOnly; SameSite=Strict; Secure"),
        "{by_tls}"
    );
    assert!(
        cookie(&by_plain).ends_with("; HttpOnly; SameSite=Strict"),
        "{by_plain}"
    );
    let session = cookie(&by_tls).split([' ', ';']).nth(1).unwrap().to_owned();
    let shown = secure(&["-b", &session], "/v1/whoami");
    assert!(shown.contains(r#""name":"root""#), "{shown}");
}
