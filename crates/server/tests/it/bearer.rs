//! Tokens of an authorization server, over HTTP and as passwords.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;

use crate::common::{Folder, Running, serve};
use crate::refusals::ask;

fn token(key: &EncodingKey, user: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({ "iss": "login", "aud": "stafett", "sub": user, "exp": now + 600 });
    encode(&Header::new(Algorithm::ES256), &claims, key).unwrap()
}

/// A key with a name.
struct Named {
    key: EncodingKey,
    public: Jwk,
    name: String,
}

impl Named {
    fn new(name: &str) -> Self {
        let pair = rcgen::KeyPair::generate().unwrap();
        let key = EncodingKey::from_ec_der(&pair.serialize_der());
        let mut public = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
        public.common.key_id = Some(name.to_owned());
        let name = name.to_owned();
        Self { key, public, name }
    }

    fn token(&self, user: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let claims = json!({ "iss": "login", "aud": "stafett", "sub": user, "exp": now + 600 });
        let header = Header {
            kid: Some(self.name.clone()),
            ..Header::new(Algorithm::ES256)
        };
        encode(&header, &claims, &self.key).unwrap()
    }
}

/// A server of keys: its answer, and the number of requests.
#[derive(Default)]
struct KeyServer {
    keys: Option<String>,
    asked: usize,
}

impl KeyServer {
    fn start() -> (SocketAddr, Arc<Mutex<Self>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<Self>>::default();
        let shared = Arc::clone(&state);
        // It ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines
                    .next()
                    .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
                {}
                let mut state = shared.lock().unwrap();
                state.asked += 1;
                let (status, body) = match &state.keys {
                    Some(keys) => ("200 OK", keys.clone()),
                    None => ("503 Service Unavailable", String::new()),
                };
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
                drop(stream.write_all(format!("{head}{body}").as_bytes()));
            }
        });
        (address, state)
    }
}

#[test]
fn keys_come_from_a_url_that_may_be_down_and_change() {
    let folder = Folder::new();
    let (address, server) = KeyServer::start();
    let mut command = serve(&folder);
    let setting = format!("oauth.keys=http://{address}/keys");
    command.args(["--set", &setting, "--set", "oauth.issuer=login"]);
    let running = Running::start(command);
    let http = running.address("http");
    let ask = |request: &str, login: &str, body: &str| {
        let (host, login) = (format!("host: {http}"), format!("authorization: {login}"));
        let headers = [&*host, "content-type: application/json", &login];
        ask(http, request, &headers, body)
    };
    let root = basic("root", "pw-root");
    for (user, login, body) in [
        (
            "root",
            "Bearer none",
            r#"{"password": "pw-root", "tags": ["superuser"]}"#,
        ),
        ("ann", &*root, r#"{"tags": ["monitoring"]}"#),
    ] {
        let (status, _, said) = ask(&format!("PUT /v1/users/{user}"), login, body);
        assert_eq!(status, 201, "{said}");
    }
    let whoami = |token: &str| ask("GET /v1/whoami", &format!("Bearer {token}"), "").0;
    let (first, second, unknown) = (Named::new("first"), Named::new("second"), Named::new("unknown"));
    assert_eq!(whoami(&first.token("ann")), 401, "there are no keys");
    let set = |key: &Named| server.lock().unwrap().keys = Some(json!({ "keys": [key.public] }).to_string());
    set(&first);
    assert_eq!(ask("POST /v1/node/reload", &root, "").0, 200);
    let until = Instant::now() + Duration::from_mins(1);
    while whoami(&first.token("ann")) != 200 {
        assert!(Instant::now() < until, "the keys are not fetched");
    }
    // The key changes: the first token that names the new one is good.
    set(&second);
    assert_eq!(whoami(&second.token("ann")), 200);
    assert_eq!(whoami(&first.token("ann")), 401);
    // Tokens of unknown keys do not have them fetched again and again.
    let asked = || server.lock().unwrap().asked;
    let before = asked();
    for _ in 0..5 {
        assert_eq!(whoami(&unknown.token("ann")), 401);
    }
    assert!(asked() <= before + 1, "{before} {}", asked());
    // Keys that cannot be used change nothing.
    server.lock().unwrap().keys = Some("{".to_owned());
    assert_eq!(ask("POST /v1/node/reload", &root, "").0, 200);
    while asked() <= before + 1 {
        assert!(Instant::now() < until, "the keys are not fetched again");
        std::thread::yield_now();
    }
    assert_eq!(whoami(&second.token("ann")), 200);
    let (_, _, metrics) = ask("GET /metrics", &root, "");
    assert!(metrics.contains("stafett_oauth_key_failures_total"), "{metrics}");
}

/// Returns a key, and the set with its public part.
fn keys() -> (EncodingKey, String) {
    let pair = rcgen::KeyPair::generate().unwrap();
    let key = EncodingKey::from_ec_der(&pair.serialize_der());
    let public = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
    (key, json!({ "keys": [public] }).to_string())
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

#[test]
fn a_token_is_a_login_and_a_changed_key_file_ends_that() {
    let folder = Folder::new();
    let file = folder.path().join("keys.json");
    let (key, public) = keys();
    fs::write(&file, public).unwrap();
    let mut command = serve(&folder);
    let setting = format!("oauth.keys={}", file.display());
    command.args(["--set", &setting, "--set", "oauth.issuer=login"]);
    let running = Running::start(command);
    let http = running.address("http");
    let ask = |request: &str, login: &str, body: &str| {
        let (host, login) = (format!("host: {http}"), format!("authorization: {login}"));
        let headers = [&host, "content-type: application/json", &login];
        ask(http, request, &headers, body)
    };
    for (user, body) in [
        ("root", r#"{"password": "pw-root", "tags": ["superuser"]}"#),
        ("ann", r#"{"tags": ["management", "monitoring"]}"#),
    ] {
        let login = if user == "root" {
            "Bearer none".to_owned()
        } else {
            basic("root", "pw-root")
        };
        let (status, _, said) = ask(&format!("PUT /v1/users/{user}"), &login, body);
        assert_eq!(status, 201, "{said}");
    }
    let root = basic("root", "pw-root");
    let of_ann = token(&key, "ann");
    let whoami = |token: &str| ask("GET /v1/whoami", &format!("Bearer {token}"), "");
    let (status, _, said) = whoami(&of_ann);
    assert!(status == 200 && said.contains(r#""name":"ann""#), "{said}");
    // As a password, of no user or the same.
    for (user, expected) in [("", 200), ("ann", 200), ("root", 401)] {
        let (status, _, said) = ask("GET /api/whoami", &basic(user, &of_ann), "");
        assert_eq!(status, expected, "{user}: {said}");
    }
    assert_eq!(whoami(&token(&key, "eve")).0, 401, "no such user");
    let (other, public) = keys();
    fs::write(&file, "{").unwrap();
    let (status, _, said) = ask("POST /v1/node/reload", &root, "");
    assert!(status == 200 && said.contains("oauth.keys"), "{said}");
    assert_eq!(whoami(&of_ann).0, 200, "the keys stay");
    fs::write(&file, public).unwrap();
    assert_eq!(ask("POST /v1/node/reload", &root, "").0, 200);
    assert_eq!(whoami(&of_ann).0, 401);
    assert_eq!(whoami(&token(&other, "ann")).0, 200);
}
