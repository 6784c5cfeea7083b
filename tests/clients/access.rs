//! Users and rules, as clients of each protocol meet them.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::broker::{Broker, binary, root};
use crate::{java, odd, peer};

/// A broker that is closed: `root` may do everything, `ann` reads and writes topics `orders-…` in groups `g…`.
pub(crate) struct Closed {
    pub(crate) broker: Broker,
    token: PathBuf,
}

impl Closed {
    pub(crate) fn start() -> Self {
        let broker = Broker::start();
        let token = broker.folder().join("token");
        let closed = Self { broker, token };
        fs::write(&closed.token, "none yet").unwrap();
        closed.user("root", &["--tag", "superuser"], false);
        let login = r#"{"user": "root"}"#;
        let made = closed.curl(&["-u", "root:pw-root", "-X", "POST", "-d", login], "/v1/tokens");
        let made: serde_json::Value = serde_json::from_str(&made).unwrap();
        fs::write(&closed.token, made["token"].as_str().unwrap()).unwrap();
        closed.user("ann", &[], true);
        let topics = "user:ann --action read --action write --action create --on topic --prefix orders-";
        closed.stafett(&format!("acl add {topics}"), true);
        closed.stafett("acl add user:ann --action read --on group --prefix g", true);
        closed
    }

    pub(crate) fn user(&self, name: &str, more: &[&str], with_token: bool) {
        let file = self.broker.folder().join(format!("password-{name}"));
        fs::write(&file, format!("pw-{name}\n")).unwrap();
        let file = file.display();
        let more = more.join(" ");
        self.stafett(
            &format!("user add {name} --password-file {file} {more}"),
            with_token,
        );
    }

    fn stafett(&self, arguments: &str, with_token: bool) {
        let mut command = peer::command(&binary());
        command
            .args(arguments.split_whitespace())
            .args(["--http", self.broker.http()]);
        if with_token {
            command.arg("--token-file").arg(&self.token);
        }
        peer::run(&mut command);
    }

    fn curl(&self, options: &[&str], path: &str) -> String {
        let mut command = peer::command(&PathBuf::from("curl"));
        command
            .args(["-s", "-H", "Content-Type: application/json"])
            .args(options);
        peer::run_text(command.arg(format!("http://{}{path}", self.broker.http())))
    }

    fn kcat(&self, mechanism: &str, user: &str, password: &str) -> Option<Command> {
        let mut command = peer::command(&peer::kcat()?);
        let properties = [
            "security.protocol=SASL_PLAINTEXT".to_owned(),
            format!("sasl.mechanism={mechanism}"),
            format!("sasl.username={user}"),
            format!("sasl.password={password}"),
            "message.timeout.ms=10000".to_owned(),
        ];
        command.args(["-b", self.broker.kafka()]);
        command.args(properties.iter().flat_map(|property| ["-X", property.as_str()]));
        Some(command)
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn kcat_logs_in_with_each_mechanism_and_is_refused_what_no_rule_permits() {
    if peer::kcat().is_none() {
        return;
    }
    let mut closed = Closed::start();
    let file = closed.broker.folder().join("line");
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        fs::write(&file, format!("{mechanism}\n")).unwrap();
        let mut kcat = closed.kcat(mechanism, "ann", "pw-ann").unwrap();
        peer::run(kcat.args(["-P", "-t", "orders-1", "-l"]).arg(&file));
    }
    // Users and rules survive a restart.
    closed.broker.restart();
    let ann = || closed.kcat("SCRAM-SHA-256", "ann", "pw-ann").unwrap();
    let read = peer::run_text(ann().args(["-C", "-e", "-t", "orders-1"]));
    assert_eq!(read, "PLAIN\nSCRAM-SHA-256\nSCRAM-SHA-512\n");
    let refused = ann()
        .args(["-P", "-t", "secret", "-l"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        said(&refused).contains("Topic authorization failed"),
        "{}",
        said(&refused)
    );
    let grouped = ann().args(["-e", "-G", "other", "orders-1"]).output().unwrap();
    assert!(
        said(&grouped).contains("Group authorization failed"),
        "{}",
        said(&grouped)
    );
    let mut wrong = closed.kcat("SCRAM-SHA-256", "ann", "wrong").unwrap();
    let wrong = wrong.args(["-L", "-m", "3"]).output().unwrap();
    assert!(
        said(&wrong).contains("Invalid username or password"),
        "{}",
        said(&wrong)
    );
}

#[test]
fn tools_of_kafka_set_credentials_and_acls_that_act() {
    let Some(_) = java::tool("AclCommand") else { return };
    if peer::kcat().is_none() {
        return;
    }
    let closed = Closed::start();
    let config = closed.broker.folder().join("root.properties");
    let login = "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"root\" password=\"pw-root\";";
    let properties =
        format!("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={login}\n");
    fs::write(&config, properties).unwrap();
    let run = |class: &str, arguments: &[&str]| {
        let mut tool = java::tool(class).unwrap();
        tool.args(["--bootstrap-server", closed.broker.kafka(), "--command-config"]);
        peer::run_text(tool.arg(&config).args(arguments))
    };
    let users = "kafka.admin.ConfigCommand";
    let credential = "SCRAM-SHA-256=[iterations=4096,password=pw-cid]";
    run(
        users,
        &[
            "--alter",
            "--entity-type",
            "users",
            "--entity-name",
            "cid",
            "--add-config",
            credential,
        ],
    );
    let described = run(
        users,
        &["--describe", "--entity-type", "users", "--entity-name", "cid"],
    );
    assert!(described.contains("SCRAM-SHA-256=iterations=4096"), "{described}");
    let acl = [
        "--allow-principal",
        "User:cid",
        "--topic",
        "log-",
        "--resource-pattern-type",
        "prefixed",
    ];
    let all = ["--operation", "Write", "--operation", "Create"];
    run("AclCommand", &[&["--add"][..], &acl, &all].concat());
    let listed = run("AclCommand", &["--list", "--principal", "User:cid"]);
    assert!(
        listed.contains("operation=WRITE, permissionType=ALLOW"),
        "{listed}"
    );
    let file = closed.broker.folder().join("line");
    fs::write(&file, "line\n").unwrap();
    let cid = || closed.kcat("SCRAM-SHA-256", "cid", "pw-cid").unwrap();
    peer::run(cid().args(["-P", "-t", "log-1", "-l"]).arg(&file));
    run("AclCommand", &[&["--remove", "--force"][..], &acl, &all].concat());
    let refused = cid()
        .args(["-P", "-t", "log-1", "-l"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        said(&refused).contains("Topic authorization failed"),
        "{}",
        said(&refused)
    );
}

#[test]
fn a_worker_passes_results_only_to_topics_that_it_may_write() {
    let closed = Closed::start();
    let put = |path: &str, body: &str| closed.curl(&["-u", "root:pw-root", "-X", "PUT", "-d", body], path);
    for topic in ["in", "orders-out", "secret"] {
        put(&format!("/v1/topics/{topic}"), r#"{"partitions": 1}"#);
    }
    put("/v1/apps/job", r#"{"topics": ["in"]}"#);
    let ask = |command: &str, token: &str, body: &str| -> serde_json::Value {
        let token = format!("Stafett-Worker: {token}");
        let path = format!("/v1/apps/job/workers/w/{command}");
        let answer = closed.curl(&["-u", "ann:pw-ann", "-H", &token, "-d", body], &path);
        serde_json::from_str(&answer).unwrap()
    };
    let unseen = ask("join", "-", "{}");
    assert_eq!(unseen["code"], "no_such_app", "{unseen}");
    closed.stafett("acl add user:ann --action write --on app --prefix job", true);
    let joined = ask("join", "-", "{}");
    let token = joined["token"].as_str().unwrap();
    let polled = ask("poll", token, r#"{"after": 0, "wait_ms": 5000}"#);
    assert_eq!(polled["events"][0]["event"], "claimed", "{polled}");
    let emit = |topic: &str| {
        let commit =
            format!(r#"{{"task": "0", "epoch": 1, "seq": 1, "emit": [{{"topic": "{topic}", "value": 1}}]}}"#);
        ask("commit", token, &commit)
    };
    let refused = emit("secret");
    assert_eq!(refused["code"], "forbidden", "{refused}");
    let stored = emit("orders-out");
    assert_eq!(stored["seq"], 1, "{stored}");
}

#[test]
fn pika_has_the_permissions_that_the_management_api_set() {
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let closed = Closed::start();
    let put = |path: &str, body: &str| closed.curl(&["-u", "root:pw-root", "-X", "PUT", "-d", body], path);
    put(
        "/api/users/bob",
        r#"{"password": "pw-bob", "tags": "management"}"#,
    );
    let permission = r#"{"configure": "^bob-", "write": "^(bob-.*|amq\\.default)$", "read": "^bob-"}"#;
    put("/api/permissions/%2F/bob", permission);
    let script = root().join("tests/clients/python/access.py");
    for topic in ["secret", "bob-t"] {
        put(&format!("/v1/topics/{topic}"), "{}");
    }
    let addresses = [closed.broker.amqp(), closed.broker.http()];
    peer::run(peer::command(&python).arg(script).args(addresses));
    let whoami = closed.curl(&["-u", "bob:pw-bob"], "/api/whoami");
    assert!(whoami.contains("\"management\""), "{whoami}");
    let users = closed.curl(&["-u", "bob:pw-bob"], "/api/users");
    assert!(users.contains("Not administrator user"), "{users}");
}

/// Answers of RabbitMQ 4.0.5 to the same script are in the table: `tests/clients/python/refused.py` beside
/// `RABBITMQ_MANAGEMENT=1 tools/peers/rabbitmq up`.
#[test]
fn users_with_few_rights_are_refused_as_rabbitmq_refuses_them() {
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let closed = Closed::start();
    let script = root().join("tests/clients/python/refused.py");
    let addresses = [closed.broker.amqp(), closed.broker.http()];
    let mut command = peer::command(&python);
    command.arg(script).args(addresses).args(["root", "pw-root"]);
    let said = peer::run_text(&mut command);
    let table = odd::kept("tests/clients/odd/refused_amqp.tsv");
    let (mut wrong, mut count) = (String::new(), 0);
    for line in said.lines() {
        let (case, answer) = line.split_once('\t').unwrap();
        let expected = table.get(case).map_or("not in the table", odd::Kept::expected);
        if answer != expected {
            writeln!(wrong, "{case}: expected {expected}, got {answer}").unwrap();
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(count, table.len());
}

#[test]
fn curl_is_told_what_is_missing() {
    let closed = Closed::start();
    let code = |options: &[&str], path: &str| {
        let answer = closed.curl(options, path);
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        answer["code"].as_str().unwrap_or("none").to_owned()
    };
    assert_eq!(code(&[], "/v1/queues"), "unauthenticated");
    assert_eq!(code(&["-u", "ann:wrong"], "/v1/queues"), "unauthenticated");
    assert_eq!(code(&["-u", "ann:pw-ann"], "/v1/queues"), "forbidden");
    assert_eq!(code(&["-u", "ann:pw-ann"], "/v1/topics/hidden"), "no_such_topic");
    assert_eq!(code(&["-u", "root:pw-root"], "/v1/queues"), "none");
    assert_eq!(code(&[], "/metrics"), "unauthenticated");
    let token = fs::read_to_string(&closed.token).unwrap();
    let bearer = format!("Authorization: Bearer {token}");
    assert_eq!(code(&["-H", &bearer], "/v1/queues"), "none");
    let message = r#"{"to": {"queues": ["q"]}, "content": "x"}"#;
    assert_eq!(code(&["-u", "root:pw-root", "-X", "PUT"], "/v1/queues/q"), "none");
    let refused = code(&["-u", "ann:pw-ann", "-X", "POST", "-d", message], "/v1/messages");
    assert_eq!(refused, "forbidden");
    let last = code(&["-u", "root:pw-root", "-X", "DELETE"], "/v1/users/root");
    assert_eq!(last, "last_administrator");
}
