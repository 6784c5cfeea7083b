//! RabbitMQ's management HTTP API with RabbitMQ's own tool, `rabbitmqadmin`, and with requests of all kinds.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::broker::{Broker, is_stafett, root};
use crate::peer;

/// Requests, RabbitMQ's answers, ours where they differ on purpose, and why.
const TABLE: &str = "tests/clients/odd/management.tsv";
/// Definitions that RabbitMQ 4.0.5 has exported.
const DEFINITIONS: &str = "tests/clients/odd/rabbitmq_definitions.json";

/// Commands of rabbitmqadmin 2 in turn, and a part of what each says.
const COMMANDS_2: [(&str, &str); 37] = [
    ("show overview", "Stafett"),
    ("list nodes", "rabbitmq_management"),
    ("declare vhost --name v2", ""),
    ("list vhosts", "v2"),
    ("declare exchange --name x --type topic --durable true", ""),
    ("declare queue --name q --type classic --durable true", ""),
    ("declare queue --name r --type quorum", ""),
    ("declare stream --name s --expiration 1D", ""),
    ("list queues", "x-max-age: \"1D\""),
    ("streams list", "stream"),
    (
        "declare binding --source x --destination-type queue --destination q --routing-key a.#",
        "",
    ),
    ("list bindings", "a.%23"),
    (
        "publish message --exchange x --routing-key a.b --payload hello",
        "routed successfully",
    ),
    (
        "get messages --queue q --count 1 --ack-mode ack_requeue_true",
        "hello",
    ),
    ("purge queue --name q", ""),
    (
        "declare policy --name p --pattern ^q --apply-to queues --priority 1 --definition {\"max-length\":7}",
        "",
    ),
    (
        "policies list_matching_object --name q --type queues",
        "max-length: 7",
    ),
    (
        "declare operator_policy --name o --pattern ^q --apply-to queues --priority 1 --definition {\"max-length\":5}",
        "",
    ),
    ("list operator_policies", "max-length: 5"),
    (
        "declare user --name bob --password secret --tags administrator",
        "",
    ),
    (
        "declare permissions --user bob --configure .* --read .* --write .*",
        "",
    ),
    ("list permissions", "bob"),
    (
        "declare user_limit --user bob --name max-connections --value 10",
        "",
    ),
    ("list user_limits", "max-connections: 10"),
    ("declare vhost_limit --name max-queues --value 1000", ""),
    ("list vhost_limits", "max-queues: 1000"),
    ("list users", "administrator"),
    ("health_check local_alarms", "passed"),
    ("health_check node_is_quorum_critical", "passed"),
    ("health_check protocol_listener --protocol amqp", "passed"),
    ("definitions export --file FILE", ""),
    ("delete queue --name q", ""),
    ("definitions import --file FILE", ""),
    ("queues show --name q", "classic"),
    ("delete stream --name s", ""),
    ("delete exchange --name x", ""),
    ("delete vhost --name v2", ""),
];

/// A broker, and `rabbitmqadmin` that asks it.
struct Admin {
    broker: Broker,
    script: PathBuf,
    python: PathBuf,
    /// Port of the API.
    port: String,
}

impl Admin {
    fn start() -> Option<Self> {
        if !is_stafett() {
            return None;
        }
        let (python, script) = peer::rabbitmqadmin()?;
        let broker = Broker::start_with("sync", &["amqp.management=127.0.0.1:0"]);
        let (_, port) = broker.http().rsplit_once(':').unwrap();
        let port = port.to_owned();
        Some(Self {
            broker,
            script,
            python,
            port,
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = peer::command(&self.python);
        command
            .arg(&self.script)
            .args(["-H", "127.0.0.1", "-P", &self.port])
            .args(arguments);
        command
    }

    /// Runs a command that succeeds.
    fn run(&self, arguments: &[&str]) -> String {
        peer::run_text(&mut self.command(arguments))
    }

    /// Returns the message of a command that fails.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn rows(&self, arguments: &[&str]) -> Value {
        let said = self.run(&[&["-f", "raw_json"], arguments].concat());
        serde_json::from_str(&said).unwrap()
    }
}

#[test]
fn rabbitmqadmin_declares_publishes_gets_purges_and_deletes() {
    let Some(admin) = Admin::start() else { return };
    for declare in [
        &[
            "queue",
            "name=jobs",
            "durable=true",
            "arguments={\"x-max-length\": 9}",
        ][..],
        &["queue", "name=other", "auto_delete=false", "queue_type=quorum"],
        &["exchange", "name=events", "type=topic"],
        &[
            "binding",
            "source=events",
            "destination=jobs",
            "routing_key=job.#",
        ],
        &["vhost", "name=shop"],
    ] {
        let said = admin.run(&[&["declare"], declare].concat());
        assert!(said.ends_with("declared\n"), "{said}");
    }
    let refused = admin.fails(&["declare", "queue", "name=jobs", "durable=false"]);
    assert!(
        refused.contains("inequivalent arg 'durable' for queue 'jobs' in vhost '/'"),
        "{refused}"
    );
    let refused = admin.fails(&["declare", "exchange", "name=x", "type=nonsense"]);
    assert!(refused.contains("unknown exchange type 'nonsense'"), "{refused}");

    let publish = |key| admin.run(&["publish", "exchange=events", key, "payload=hello"]);
    assert_eq!(publish("routing_key=job.1"), "Message published\n");
    assert_eq!(publish("routing_key=none"), "Message published but NOT routed\n");
    let lengths = admin.rows(&["list", "queues", "name", "messages", "consumers"]);
    assert_eq!(
        lengths,
        json!([
            { "name": "jobs", "messages": 1, "consumers": 0 },
            { "name": "other", "messages": 0, "consumers": 0 },
        ])
    );
    for (mode, redelivered) in [("ack_requeue_true", "False"), ("ack_requeue_false", "True")] {
        let got = admin.run(&["-f", "tsv", "get", "queue=jobs", &format!("ackmode={mode}")]);
        assert!(got.contains("hello") && got.contains(redelivered), "{got}");
    }
    assert_eq!(admin.rows(&["get", "queue=jobs"]), json!([]));
    publish("routing_key=job.2");
    assert_eq!(admin.run(&["purge", "queue", "name=jobs"]), "queue purged\n");
    assert_eq!(admin.rows(&["get", "queue=jobs"]), json!([]));

    let key = "properties_key=job.%23";
    admin.run(&[
        "delete",
        "binding",
        "source=events",
        "destination_type=queue",
        "destination=jobs",
        key,
    ]);
    for delete in [
        ["delete", "queue", "name=jobs"],
        ["delete", "queue", "name=other"],
        ["delete", "exchange", "name=events"],
        ["delete", "vhost", "name=shop"],
    ] {
        assert!(admin.run(&delete).ends_with("deleted\n"));
    }
    assert_eq!(admin.rows(&["list", "queues"]), json!([]));
    assert!(
        admin
            .fails(&["delete", "queue", "name=jobs"])
            .contains("Not found")
    );
}

#[test]
fn rabbitmqadmin_lists_what_there_is() {
    let Some(admin) = Admin::start() else { return };
    let overview = admin.rows(&["show", "overview", "rabbitmq_version", "product_name"]);
    let expected = json!([{ "rabbitmq_version": "4.0.5", "product_name": "Stafett" }]);
    assert_eq!(overview, expected);
    for kind in ["users", "vhosts", "nodes", "permissions", "exchanges"] {
        let rows = admin.rows(&["list", kind]);
        assert!(!rows.as_array().unwrap().is_empty(), "{kind}");
    }
    for kind in [
        "policies",
        "operator_policies",
        "parameters",
        "bindings",
        "queues",
    ] {
        assert_eq!(admin.rows(&["list", kind]), json!([]), "{kind}");
    }
    let refused = admin.fails(&["-u", "ann", "list", "queues"]);
    assert!(refused.contains("Access refused"), "{refused}");
}

#[test]
fn rabbitmqadmin_lists_connections_channels_and_consumers_and_closes_a_connection() {
    let Some(admin) = Admin::start() else { return };
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let script = root().join("tests/clients/python/amqp_holds.py");
    let mut client = peer::command(&python)
        .arg(script)
        .arg(admin.broker.amqp())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(client.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "holds");
    let connections = admin.rows(&[
        "list",
        "connections",
        "name",
        "user",
        "vhost",
        "channels",
        "state",
    ]);
    let name = connections[0]["name"].as_str().unwrap().to_owned();
    let expected =
        json!([{ "name": name, "user": "guest", "vhost": "/", "channels": 1, "state": "running" }]);
    assert_eq!(connections, expected);
    let channels = admin.rows(&[
        "list",
        "channels",
        "number",
        "messages_unacknowledged",
        "prefetch_count",
    ]);
    let expected = json!([{ "number": 1, "messages_unacknowledged": 1, "prefetch_count": 7 }]);
    assert_eq!(channels, expected);
    let consumers = admin.rows(&[
        "list",
        "consumers",
        "consumer_tag",
        "queue.name",
        "prefetch_count",
    ]);
    assert_eq!(consumers.as_array().unwrap().len(), 1, "{consumers}");
    assert_eq!(
        (&consumers[0]["consumer_tag"], &consumers[0]["queue"]["name"]),
        (&json!("c"), &json!("held"))
    );
    assert!(
        admin
            .run(&["close", "connection", &format!("name={name}")])
            .ends_with("closed\n")
    );
    let ended = said.next().unwrap().unwrap();
    assert_eq!(ended, "320 CONNECTION_FORCED - Closed via management plugin");
    client.wait().unwrap();
    // The broker may notice the end a little later than the client.
    while admin.rows(&["list", "connections"]) != json!([]) {}
    assert!(
        admin
            .fails(&["close", "connection", "name=none"])
            .contains("Not found")
    );
    let ready = admin.rows(&["list", "queues", "name", "messages_ready"]);
    assert_eq!(ready, json!([{ "name": "held", "messages_ready": 1 }]));
}

#[test]
fn rabbitmqadmin_sets_policies_and_queues_show_them() {
    let Some(admin) = Admin::start() else { return };
    admin.run(&["declare", "queue", "name=orders"]);
    let definition = r#"definition={"max-length":1,"overflow":"reject-publish"}"#;
    let said = admin.run(&[
        "declare",
        "policy",
        "name=p",
        "pattern=^orders",
        definition,
        "apply-to=queues",
    ]);
    assert!(said.ends_with("declared\n"), "{said}");
    let shown = admin.rows(&[
        "list",
        "queues",
        "name",
        "policy",
        "effective_policy_definition.max-length",
    ]);
    assert_eq!(shown[0]["policy"], json!("p"), "{shown}");
    assert_eq!(
        shown[0]["effective_policy_definition"]["max-length"],
        json!(1),
        "{shown}"
    );
    admin.run(&["publish", "routing_key=orders", "payload=one"]);
    let refused = admin.fails(&["publish", "routing_key=orders", "payload=two"]);
    assert!(!refused.is_empty());
    let listed = admin.rows(&["list", "policies", "name", "pattern", "apply-to", "priority"]);
    let expected = json!([{ "name": "p", "pattern": "^orders", "apply-to": "queues", "priority": 0 }]);
    assert_eq!(listed, expected);
    let bad = [
        "declare",
        "policy",
        "name=q",
        "pattern=^x",
        r#"definition={"max-age":"1D"}"#,
    ];
    assert!(admin.fails(&bad).contains("not recognised policy settings"));
    let operator = r#"definition={"max-length":7}"#;
    admin.run(&["declare", "operator_policy", "name=o", "pattern=.*", operator]);
    assert!(admin.run(&["delete", "policy", "name=p"]).ends_with("deleted\n"));
    let shown = admin.rows(&[
        "list",
        "queues",
        "policy",
        "operator_policy",
        "effective_policy_definition.max-length",
    ]);
    assert_eq!(shown[0]["operator_policy"], json!("o"), "{shown}");
    assert_eq!(
        shown[0]["effective_policy_definition"]["max-length"],
        json!(7),
        "{shown}"
    );
    admin.run(&["delete", "operator_policy", "name=o"]);
    assert_eq!(admin.rows(&["list", "operator_policies"]), json!([]));
}

#[test]
fn the_api_is_also_alone_on_a_port_of_its_own() {
    let Some(mut admin) = Admin::start() else { return };
    let listeners = admin.rows(&["show", "overview", "listeners"]);
    let listeners = listeners[0]["listeners"].as_array().unwrap();
    let ports = listeners
        .iter()
        .filter(|listener| listener["protocol"] == json!("http"));
    let ports: Vec<String> = ports.map(|listener| listener["port"].to_string()).collect();
    let own = ports.into_iter().find(|port| *port != admin.port);
    admin.port = own.unwrap();
    admin.run(&["declare", "queue", "name=q"]);
    assert_eq!(admin.rows(&["list", "queues", "name"]), json!([{ "name": "q" }]));
}

#[test]
fn definitions_of_rabbitmq_are_imported_and_come_out_as_they_were() {
    let Some(admin) = Admin::start() else { return };
    let theirs = root().join(DEFINITIONS);
    admin.run(&["import", theirs.to_str().unwrap()]);
    // Importing again changes nothing.
    admin.run(&["import", theirs.to_str().unwrap()]);
    assert_eq!(admin.broker.logged("passed_over="), 0);
    let out = admin.broker.folder().join("definitions.json");
    admin.run(&["export", out.to_str().unwrap()]);
    let read = |path| -> Value { serde_json::from_slice(&fs::read::<PathBuf>(path).unwrap()).unwrap() };
    let (theirs, ours) = (read(theirs), read(out));
    for kind in ["queues", "exchanges", "bindings", "policies"] {
        let sorted = |all: &Value| {
            let mut items: Vec<String> = all[kind]
                .as_array()
                .unwrap()
                .iter()
                .map(Value::to_string)
                .collect();
            items.sort();
            items
        };
        assert_eq!(sorted(&ours), sorted(&theirs), "{kind}");
    }
}

#[test]
fn requests_are_answered_as_rabbitmq_answers_them() {
    if !is_stafett() {
        return;
    }
    let Some(python) = peer::python3() else { return };
    let broker = Broker::start();
    let script = root().join("tests/clients/python/management_odd.py");
    let said = peer::run_text(peer::command(&python).arg(script).arg(broker.http()));
    let table = fs::read_to_string(root().join(TABLE)).unwrap();
    let mut wrong = Vec::new();
    let mut said = said.lines();
    for row in table.lines().skip(1) {
        let columns: Vec<&str> = row.split('\t').collect();
        let (request, expected) = match columns[..] {
            [request, both] => (request, both),
            [request, theirs, ours, why] if theirs != ours && !why.is_empty() => (request, ours),
            _ => panic!("a request, an answer, and where ours differs, ours and the reason: {row}"),
        };
        let found = said.next().and_then(|line| line.split_once('\t'));
        if found != Some((request, expected)) {
            wrong.push(format!("{request}\n  expected {expected}\n  found    {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(said.next(), None, "every request stands in the table");
}

#[test]
fn requests_of_tools_get_the_answers_that_they_read() {
    if !is_stafett() {
        return;
    }
    let Some(python) = peer::python3() else { return };
    let broker = Broker::start();
    let script = root().join("tests/clients/python/management_tools.py");
    let said = peer::run_text(peer::command(&python).arg(script).arg(broker.http()));
    assert!(said.trim().parse::<usize>().unwrap() > 40, "{said}");
}

#[test]
fn flower_shows_queues_workers_and_tasks_of_celery() {
    if !is_stafett() {
        return;
    }
    let Some(python) = peer::python_with_flower() else {
        return;
    };
    let broker = Broker::start_at("os");
    let mut monitor = peer::command(&python);
    monitor
        .arg(root().join("tests/clients/python/flower_monitor.py"))
        .args([broker.amqp(), broker.http()])
        .arg(broker.folder());
    assert_eq!(peer::run_text(&mut monitor).trim(), "ok");
}

#[test]
fn statistics_have_samples_and_rabbitmqs_dashboard_has_its_metrics() {
    if !is_stafett() {
        return;
    }
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let broker = Broker::start();
    let script = root().join("tests/clients/python/management_samples.py");
    peer::run_text(
        peer::command(&python)
            .arg(script)
            .args([broker.amqp(), broker.http()]),
    );
}

#[test]
fn rabbitmqadmin_2_does_what_its_users_do() {
    if !is_stafett() {
        return;
    }
    let Some(program) = peer::rabbitmqadmin_2() else {
        return;
    };
    let broker = Broker::start_with("os", &[]);
    let (host, port) = broker.http().rsplit_once(':').unwrap();
    let file = broker.folder().join("definitions.json");
    let file = file.to_str().unwrap();
    let mut login = ["guest", "guest"];
    for (line, said) in COMMANDS_2 {
        let mut command = peer::command(&program);
        command
            .args(["--non-interactive", "--host", host, "--port", port])
            .args(["--username", login[0], "--password", login[1]])
            .args(
                line.split(' ')
                    .map(|word| if word == "FILE" { file } else { word }),
            );
        let found = peer::run_text(&mut command);
        assert!(found.contains(said), "{line}: {found}");
        if line.starts_with("declare user ") {
            // Once there is an administrator, guest is no longer one.
            login = ["bob", "secret"];
        }
    }
}
