//! Ids and signatures of batches, as in Standard Webhooks.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::target::Part;

/// Bytes of an id before they are written in hex.
const ID_BYTES: usize = 16;

/// Returns the id of a batch: the same for the same records.
pub(super) fn id(sink: &str, part: &Part<'_>) -> String {
    use std::fmt::Write;
    let about = format!("{sink}\n{}\n{}\n{}", part.place, part.from, part.next);
    let hash = Sha256::digest(about.as_bytes());
    hash.iter()
        .take(ID_BYTES)
        .fold("msg_".to_owned(), |mut id, byte| {
            // Writing to a string does not fail.
            let _ = write!(id, "{byte:02x}");
            id
        })
}

/// Returns the key of a secret: `whsec_` and base64, or the text itself.
pub(super) fn key(secret: &str) -> Vec<u8> {
    let decoded = secret
        .strip_prefix("whsec_")
        .and_then(|text| STANDARD.decode(text).ok());
    decoded.unwrap_or_else(|| secret.as_bytes().to_vec())
}

/// Signs `ID.SECONDS.BODY`.
pub(super) fn signature(key: &[u8], id: &str, now_s: i64, body: &[u8]) -> String {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return String::new();
    };
    mac.update(format!("{id}.{now_s}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        // Made with Python's hmac over the same text.
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        assert_eq!(key.len(), 24);
        let made = signature(
            &key,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(made, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(super::key("plain"), b"plain");
    }
}
