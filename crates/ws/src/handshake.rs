//! The handshake that turns an HTTP connection into a WebSocket (RFC 6455, section 4.2).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use sha1::{Digest, Sha1};

/// From RFC 6455, section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Reasons why a request does not open a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The request does not ask for a WebSocket.
    #[error("this is a WebSocket: connect to it with ws://")]
    NotAsked,
    #[error("only version 13 of WebSocket is spoken here")]
    Version,
    #[error("Sec-WebSocket-Key is absent or not 16 bytes in base64")]
    Key,
}

/// Returns the value of `Sec-WebSocket-Accept` for a valid handshake request.
pub fn accept(method: &Method, headers: &HeaderMap) -> Result<HeaderValue, HandshakeError> {
    let is_asked = method == Method::GET
        && has_token(headers, &header::CONNECTION, "upgrade")
        && has_token(headers, &header::UPGRADE, "websocket");
    if !is_asked {
        return Err(HandshakeError::NotAsked);
    }
    let version = headers.get(header::SEC_WEBSOCKET_VERSION);
    if version.is_none_or(|version| version != "13") {
        return Err(HandshakeError::Version);
    }
    let key = headers
        .get(header::SEC_WEBSOCKET_KEY)
        .ok_or(HandshakeError::Key)?;
    if !STANDARD.decode(key).is_ok_and(|key| key.len() == 16) {
        return Err(HandshakeError::Key);
    }
    let mut hash = Sha1::new();
    hash.update(key.as_bytes());
    hash.update(GUID);
    HeaderValue::try_from(STANDARD.encode(hash.finalize())).map_err(|_| HandshakeError::Key)
}

/// Returns the first protocol offered by the client that is among `known`.
pub fn subprotocol(headers: &HeaderMap, known: &[&'static str]) -> Option<&'static str> {
    tokens(headers, &header::SEC_WEBSOCKET_PROTOCOL)
        .find_map(|wanted| known.iter().find(|known| **known == wanted))
        .copied()
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|given| given.eq_ignore_ascii_case(token))
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    const ASKS: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    #[test]
    fn the_example_of_the_specification_is_answered_as_it_says() {
        let accepted = accept(&Method::GET, &headers(&ASKS)).unwrap();
        assert_eq!(accepted, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn what_is_missing_is_named() {
        for (index, expected) in [
            (0, HandshakeError::NotAsked),
            (1, HandshakeError::NotAsked),
            (2, HandshakeError::Version),
            (3, HandshakeError::Key),
        ] {
            let mut pairs = ASKS.to_vec();
            pairs.remove(index);
            assert_eq!(accept(&Method::GET, &headers(&pairs)), Err(expected));
        }
        let odd = [&ASKS[..3], &[("sec-websocket-key", "short")]].concat();
        assert_eq!(accept(&Method::GET, &headers(&odd)), Err(HandshakeError::Key));
        assert_eq!(
            accept(&Method::POST, &headers(&ASKS)),
            Err(HandshakeError::NotAsked)
        );
    }

    #[test]
    fn the_first_protocol_that_is_known_is_chosen() {
        let asks = headers(&[("sec-websocket-protocol", "other, b, a")]);
        assert_eq!(subprotocol(&asks, &["a", "b"]), Some("b"));
        assert_eq!(subprotocol(&asks, &["c"]), None);
    }
}
