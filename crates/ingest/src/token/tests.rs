//! Tests of tokens.

use serde_json::json;

use super::*;

fn check() -> Check {
    Check {
        keys: vec![
            Key::secret("the second key, of today").unwrap(),
            Key::secret("the first key, of before").unwrap(),
        ],
        issuer: Some("apps".to_owned()),
        audience: None,
        age_s: Some(100),
    }
}

fn claims(value: &Value) -> Claims {
    value.as_object().unwrap().clone()
}

#[test]
fn tokens_count_as_long_as_they_hold() {
    let check = check();
    let fraction = json!({"iss": "apps", "iat": 999.5, "exp": 1050.25, "nbf": 990.75});
    let token = check.sign(&claims(&fraction)).unwrap();
    assert_eq!(check.verify(&token, 1000), Ok(claims(&fraction)));
    let sound = json!({"iss": "apps", "iat": 1000, "exp": 1050, "sub": "d-1"});
    let token = check.sign(&claims(&sound)).unwrap();
    assert_eq!(check.verify(&token, 1000), Ok(claims(&sound)));
    assert_eq!(check.verify(&token, 1111), Err(TokenError::Over));
    let old = Check {
        keys: vec![check.keys[1].clone()],
        ..check.clone()
    };
    let earlier = old.sign(&claims(&json!({"iss": "apps", "iat": 1000}))).unwrap();
    assert!(check.verify(&earlier, 1000).is_ok(), "the key of before");
    assert_eq!(old.verify(&token, 1000), Err(TokenError::Signature));
    for (other, why) in [
        (json!({"iss": "others", "iat": 1000}), TokenError::Other),
        (json!({"iat": 1000}), TokenError::Other),
        (json!({"iss": ["apps"], "iat": 1000}), TokenError::Other),
        (json!({"iss": "apps", "iat": 5000}), TokenError::Over),
        (json!({"iss": "apps"}), TokenError::Over),
        (json!({"iss": "apps", "iat": 1000, "nbf": 2000}), TokenError::Over),
        (
            json!({"iss": "apps", "iat": 1000, "exp": 100.5}),
            TokenError::Over,
        ),
        (
            json!({"iss": "apps", "iat": 1000, "nbf": 2000.5}),
            TokenError::Over,
        ),
        (
            json!({"iss": "apps", "iat": 1000, "exp": "2000"}),
            TokenError::Over,
        ),
        (json!({"iss": "apps", "iat": 1000, "exp": null}), TokenError::Over),
        (json!({"iss": "apps", "iat": 1000, "nbf": [1]}), TokenError::Over),
        (json!({"iss": "apps", "iat": "1000"}), TokenError::Over),
    ] {
        let token = check.sign(&claims(&other)).unwrap();
        assert_eq!(check.verify(&token, 1000), Err(why), "{other}");
    }
}

#[test]
fn nothing_of_a_forged_token_counts() {
    let check = check();
    let token = check.sign(&claims(&json!({"iss": "apps", "iat": 1000}))).unwrap();
    let (payload, signature) = token.split_once('.').unwrap();
    let forged = URL_SAFE_NO_PAD.encode("{\"iss\":\"apps\",\"iat\":1000,\"sub\":\"admin\"}");
    for (token, why) in [
        (String::new(), TokenError::Missing),
        (".".to_owned(), TokenError::Signature),
        (payload.to_owned(), TokenError::Signature),
        (format!("{payload}."), TokenError::Signature),
        (format!("{forged}.{signature}"), TokenError::Signature),
        (
            format!(
                "{}.{payload}.{signature}",
                URL_SAFE_NO_PAD.encode("{\"alg\":\"none\"}")
            ),
            TokenError::Signature,
        ),
        ("a".repeat(5000), TokenError::Signature),
    ] {
        assert_eq!(check.verify(&token, 1000), Err(why), "{token}");
    }
}

#[test]
fn a_jwt_of_another_program_is_read() {
    // The example of RFC 7515, A.1, has another algorithm's key; this one was made with Python's hmac.
    let check = Check {
        keys: vec![Key::secret("0123456789abcdef").unwrap()],
        issuer: None,
        audience: Some("tv".to_owned()),
        age_s: None,
    };
    let token = JWT;
    assert_eq!(check.verify(token, 0).unwrap()["sub"], "d-1");
}

const JWT: &str = "eyJhbGciOiAiSFMyNTYiLCAidHlwIjogIkpXVCJ9.eyJzdWIiOiAiZC0xIiwgImF1ZCI6IFsid2ViIiwgInR2Il19.q5cdkJerCRNOf2-NJkGA17c6M2VQ1lIkB0SjyAlQF0o";

/// Made with Python's cryptography, with the keys beside this file.
const ES256: &str = "eyJhbGciOiAiRVMyNTYiLCAidHlwIjogIkpXVCJ9.eyJzdWIiOiAiZC0xIiwgImlzcyI6ICJhcHBzIiwgImlhdCI6IDEwMDB9.4lGitoRFFNM4WiwhppRCKJr1M_SYfYmmOrlEJY9edpv3K_n7gmRwJcPRNKR6mZNkhPqb_UhLQJGWS1QAY1GX9A";
const EDDSA: &str = "eyJhbGciOiAiRWREU0EiLCAidHlwIjogIkpXVCJ9.eyJzdWIiOiAiZC0xIiwgImlzcyI6ICJhcHBzIiwgImlhdCI6IDEwMDB9.N-Tzqu9E6zhmGwaxa-VJsUOtt3_fHn1bOO1lq4e2YbxjYHR2gxI62tPRYpU4ybZ83NXHJnyXTjGR7UZRcRgwCw";
const CRITICAL: &str = "eyJhbGciOiAiRVMyNTYiLCAidHlwIjogIkpXVCIsICJjcml0IjogWyJ4Il0sICJ4IjogMX0.eyJzdWIiOiAiZC0xIiwgImlzcyI6ICJhcHBzIiwgImlhdCI6IDEwMDB9.BsfZC_Hmo_xCBKI9TXX2uAttUziNb1V4YV0Suk1L2wQz0AHOA-wIta9VYNFxfe6DfwjJ8JrdFoUfyiN90bTSXA";
/// Signed by the key of P-256; its header says `EdDSA`.
const MIXED: &str = "eyJhbGciOiAiRWREU0EiLCAidHlwIjogIkpXVCJ9.eyJzdWIiOiAiZC0xIiwgImlzcyI6ICJhcHBzIiwgImlhdCI6IDEwMDB9.PbzIStlh3nKGN1YKLRhWDydlXPUiCC6O44l9v8F1FNMg3FZ5qZOGfYz1eIHHwC_eeXY1SkQIGNhEN4P-Kola8A";

#[test]
fn a_public_key_checks_the_tokens_of_its_private_key_alone() {
    let p256 = include_str!("p256.pem");
    let ed25519 = include_str!("ed25519.pem");
    let with = |keys: &[&str]| Check {
        keys: keys.iter().map(|key| Key::public(key).unwrap()).collect(),
        ..check()
    };
    for (keys, token, is_good) in [
        (&[p256][..], ES256, true),
        (&[ed25519], EDDSA, true),
        (&[p256, ed25519], EDDSA, true),
        (&[p256], EDDSA, false),
        (&[ed25519], ES256, false),
        (&[p256, ed25519], CRITICAL, false),
        (&[p256, ed25519], MIXED, false),
    ] {
        let verified = with(keys).verify(token, 1000);
        assert_eq!(verified.is_ok(), is_good, "{token}: {verified:?}");
    }
    assert_eq!(with(&[p256]).verify(ES256, 2000), Err(TokenError::Over));
    // A public key is no secret: nothing that is signed with its text counts.
    assert!(Key::secret(p256).is_err());
    let (header, claims) = ("{\"alg\":\"HS256\"}", "{\"iss\":\"apps\",\"iat\":1000}");
    let encoded = |text| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", encoded(header), encoded(claims));
    let text = Key::Secret(p256.as_bytes().to_vec());
    let forged = format!("{signed}.{}", text.sign(&signed).unwrap());
    assert_eq!(with(&[p256]).verify(&forged, 1000), Err(TokenError::Signature));
    let secret = Check {
        keys: vec![text],
        ..check()
    };
    assert!(secret.verify(&forged, 1000).is_ok());
    assert_eq!(secret.verify(ES256, 1000), Err(TokenError::Signature));
    assert_eq!(with(&[p256]).sign(&Claims::new()), None);
    for bad in [
        "",
        "no key",
        include_str!("p384.pem"),
        &p256.replace('M', "N"),
        &p256.replace("PUBLIC", "PRIVATE"),
    ] {
        assert!(Key::public(bad).is_err(), "{bad}");
    }
}
