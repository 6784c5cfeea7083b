//! `stafett check`: open listeners, the callers that they serve, and dangers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::Folder;
use crate::rights::Closed;

/// Returns the exit code and the lines.
fn check(arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stafett"));
    let output = command.env_clear().arg("check").args(arguments).output().unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn the_defaults_are_closed_to_other_machines_and_what_is_dangerous_is_named() {
    let (code, said) = check(&[]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("kafka.listen = 127.0.0.1:9092 is reached from this machine only"),
        "{said}"
    );
    assert!(said.contains("no other machine reaches the broker"), "{said}");
    for (settings, expected) in [
        (
            &["kafka.listen=0.0.0.0:9092", "require_login=true"][..],
            "danger: kafka.listen = 0.0.0.0:9092 is reached from other machines without TLS",
        ),
        (
            &["amqp.listen=[::]:5672", "allow_unauthenticated=true"],
            "danger: allow_unauthenticated: every machine may do everything",
        ),
        (
            &["http.listen=0.0.0.0:7070"],
            "danger: the broker does not start like this",
        ),
    ] {
        let arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        let (code, said) = check(&arguments);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(expected), "{said}");
    }
    let (code, _) = check(&["--set", "kafka.listen=nonsense"]);
    assert_eq!(code, 2);
}

#[test]
fn keys_that_others_can_read_are_dangerous() {
    let folder = Folder::new();
    let key = folder.path().join("server.key");
    fs::write(&key, "key").unwrap();
    let settings = [
        format!("tls.key={}", key.display()),
        format!("tls.certificate={}", key.display()),
    ];
    let arguments = ["--set", &settings[0], "--set", &settings[1]];
    for (mode, expected) in [(0o644, 1), (0o600, 0)] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let (code, said) = check(&arguments);
        assert_eq!(code, expected, "{said}");
        assert_eq!(
            said.contains("can be read by each user of this machine\n"),
            expected == 1,
            "{said}"
        );
    }
}

#[test]
fn users_rules_and_tokens_of_a_running_broker_are_named() {
    let closed = Closed::start();
    let (_, _, made) = closed.ask("POST /v1/tokens", Some("root"), r#"{"user": "root"}"#);
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let token = closed.folder.path().join("token");
    fs::write(&token, made["token"].as_str().unwrap()).unwrap();
    closed.permit(r#"{"who": "user:eve", "actions": ["read"], "on": ["topic"], "prefix": "orders-"}"#);
    let http = closed.http.to_string();
    let arguments = [
        "--running",
        "--http",
        &http,
        "--token-file",
        token.to_str().unwrap(),
    ];
    let (code, said) = check(&arguments);
    assert_eq!(code, 0, "{said}");
    for line in [
        "user root: everything",
        "user eve: nothing but by rules",
        "user:eve may read on topic prefix \"orders-\"",
        "of root does not expire",
    ] {
        assert!(said.contains(line), "{said}");
    }
    closed.permit(r#"{"who": "everyone", "actions": ["write"], "on": ["topic"], "prefix": ""}"#);
    let (code, said) = check(&arguments);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("danger: everyone may write on topic prefix \"\""),
        "{said}"
    );
}
