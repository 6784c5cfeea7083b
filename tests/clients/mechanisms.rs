//! Clients of five languages over TLS with each mechanism of a login that they have: by password, by token and by
//! certificate.

use std::fs;
use std::process::Command;

use crate::broker::{Broker, binary, is_stafett, root};
use crate::peer;

const PASSWORD: &str = "pw-client";
const KAFKA: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

/// Starts a closed broker with TLS. The user `client` is that of the clients' certificate.
fn closed() -> Broker {
    let broker = Broker::start_with_tls();
    let file = broker.folder().join("password");
    fs::write(&file, PASSWORD).unwrap();
    let mut command = peer::command(&binary());
    command.args(["user", "add", "client", "--tag", "superuser", "--password-file"]);
    peer::run(command.arg(file).args(["--http", broker.http()]));
    broker
}

/// Runs a program that says `done` at its end.
fn passes(command: Option<Command>) {
    if !is_stafett() {
        return;
    }
    let Some(mut command) = command else { return };
    let broker = closed();
    let tls = broker.tls();
    command.args([&tls.kafka, &tls.amqp]);
    let said = peer::run_text(command.arg(&tls.folder).args(["client", PASSWORD]));
    assert!(said.ends_with("done\n"), "{said}");
}

#[test]
fn librdkafka_aiokafka_and_pika_log_in_with_each_mechanism() {
    let python = || {
        peer::python_with_amqp()?;
        let mut command = peer::command(&peer::python()?);
        command.arg(root().join("tests/clients/python/mechanisms.py"));
        Some(command)
    };
    passes(python());
}

#[test]
fn kafkajs_and_amqplib_log_in_with_each_mechanism() {
    passes(peer::mechanisms_in_node());
}

#[test]
fn amqp091_go_logs_in_with_each_mechanism() {
    passes(peer::amqp091_go_with_mechanisms());
}

#[test]
fn franz_go_sarama_and_kafka_go_log_in_with_each_mechanism() {
    passes(peer::kafka_in_go_with_mechanisms());
}

#[test]
fn kafkas_and_rabbitmqs_clients_for_java_log_in_with_each_mechanism() {
    passes(peer::mechanisms_in_java());
}

#[test]
fn kcat_logs_in_with_each_mechanism() {
    let Some(kcat) = peer::kcat() else { return };
    if !is_stafett() {
        return;
    }
    let broker = closed();
    let tls = broker.tls();
    let file = |name: &str| tls.folder.join(name).display().to_string();
    let listed = |mechanism: &str, password: &str| {
        let properties = [
            "security.protocol=SASL_SSL".to_owned(),
            format!("ssl.ca.location={}", file("ca.pem")),
            format!("ssl.certificate.location={}", file("client.pem")),
            format!("ssl.key.location={}", file("client.key")),
            format!("sasl.mechanism={mechanism}"),
            "sasl.username=client".to_owned(),
            format!("sasl.password={password}"),
        ];
        let mut command = peer::command(&kcat);
        command.args(["-L", "-m", "10", "-b", &tls.kafka]);
        command.args(properties.iter().flat_map(|property| ["-X", property.as_str()]));
        command.output().unwrap()
    };
    for mechanism in KAFKA {
        let right = listed(mechanism, PASSWORD);
        assert!(
            String::from_utf8_lossy(&right.stdout).contains(&tls.kafka),
            "{mechanism}"
        );
        let wrong = listed(mechanism, "wrong");
        let said = String::from_utf8_lossy(&wrong.stderr);
        assert!(
            !wrong.status.success() && said.contains("Invalid username or password"),
            "{said}"
        );
    }
}
