//! Tokens of an authorization server as passwords, at their end.

use bytes::Bytes;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;
use stafett_access::{Change, SUPERUSER, User, Verifiers};
use stafett_amqp_wire::methods::{Connection, connection};
use stafett_amqp_wire::{Method, frame};
use stafett_broker::BearerSettings;
use stafett_store::wall_ms;
use tokio::io::AsyncReadExt;

use crate::support::{Client, Server};

/// Adds a user and an authorization server; returns the response with a token that has ended by its own time, and
/// is good for less than a second within the difference of clocks that is tolerated.
fn ending_login(server: &Server) -> Bytes {
    let access = server.broker.access();
    let verifiers = Verifiers::of_password(b"secret", b"a salt of 16 byt");
    let ann = User::new("ann", verifiers, &[SUPERUSER]).unwrap();
    access.directory().apply([Change::PutUser(ann)]);
    let pair = rcgen::KeyPair::generate().unwrap();
    let key = EncodingKey::from_ec_der(&pair.serialize_der());
    let public = Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap();
    let settings = BearerSettings {
        keys: json!({ "keys": [public] }).to_string().into_bytes(),
        issuer: "login".to_owned(),
        audience: "stafett".to_owned(),
        user_claim: "sub".to_owned(),
    };
    access.set_bearer(Some(&settings)).unwrap();
    let claims = json!({"iss": "login", "aud": "stafett", "sub": "ann", "exp": wall_ms() / 1000 - 29});
    let token = encode(&Header::new(Algorithm::ES256), &claims, &key).unwrap();
    format!("\0ann\0{token}").into()
}

#[tokio::test]
async fn a_connection_without_heartbeats_is_closed_at_the_end_of_its_token() {
    let server = Server::start().await;
    let login = ending_login(&server);
    let (mut client, opened) = Client::log_in(server.address, false, "/", 0, login).await;
    assert!(
        matches!(opened, Method::Connection(Connection::OpenOk(_))),
        "{opened:?}"
    );
    // Its looks at the connection come at once, and go on until the second is over.
    tokio::time::pause();
    let closed = loop {
        if let Some(frame) = frame::split(&mut client.buffer, 0).unwrap() {
            break Method::decode(frame.payload).unwrap();
        }
        assert!(client.stream.read_buf(&mut client.buffer).await.unwrap() > 0);
    };
    let Method::Connection(Connection::Close(connection::Close {
        reply_code,
        reply_text,
        ..
    })) = closed
    else {
        panic!("{closed:?}");
    };
    assert_eq!(reply_code, 320, "{reply_text}");
    assert!(reply_text.contains("has expired"), "{reply_text}");
}
