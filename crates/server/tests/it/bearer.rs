//! Tokens of an authorization server, over HTTP and as passwords.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

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
