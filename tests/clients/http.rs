//! The HTTP API with real clients: the example, messages that cross protocols, and kills.

use std::collections::BTreeSet;
use std::process::Stdio;

use crate::broker::{Broker, external, is_stafett, lines_of, root};
use crate::peer;

/// Runs a program of the example and returns its output.
fn example(program: &str, arguments: &[&str]) -> Option<std::process::Command> {
    let python = peer::python_with_amqp()?;
    let mut command = peer::command(&python);
    command
        .arg(root().join("examples/mlmq").join(program))
        .args(arguments);
    Some(command)
}

#[test]
fn the_clients_of_the_example_send_receive_and_answer() {
    if !is_stafett() {
        return;
    }
    let broker = Broker::start();
    clients_of_the_example(broker.http());
}

#[test]
fn the_clients_of_the_example_do_the_same_over_a_websocket() {
    if !is_stafett() {
        return;
    }
    let broker = Broker::start();
    clients_of_the_example(&format!("ws://{}", broker.http()));
}

fn clients_of_the_example(http: &str) {
    let Some(mut producer) = example("producer.py", &[http, "orders", "100"]) else {
        return;
    };
    assert_eq!(peer::run_text(&mut producer).trim(), "100");
    let mut consumer = example("consumer.py", &[http, "orders", "1000"]).unwrap();
    assert_eq!(peer::run_text(&mut consumer).trim(), "100");
    let mut responder = example("paired.py", &[http, "respond", "bob", "30"]).unwrap();
    let mut responder = responder.spawn().unwrap();
    let mut requester = example("paired.py", &[http, "request", "ann", "bob", "30"]).unwrap();
    assert_eq!(peer::run_text(&mut requester).trim(), "30");
    assert!(responder.wait().unwrap().success());
    let names = "x,y,z";
    let mut others = ["x", "y"].map(|name| {
        let mut one_way = example("one_way.py", &[http, name, names, "5"]).unwrap();
        one_way.stdout(Stdio::null()).spawn().unwrap()
    });
    let mut one_way = example("one_way.py", &[http, "z", names, "5"]).unwrap();
    assert!(peer::run_text(&mut one_way).trim().parse::<u32>().is_ok());
    for other in &mut others {
        assert!(other.wait().unwrap().success());
    }
}

#[test]
fn messages_cross_between_http_and_amqp_with_all_of_their_fields() {
    if !is_stafett() {
        return;
    }
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let broker = Broker::start();
    let script = root().join("tests/clients/python/http_conversions.py");
    let said = peer::run_text(
        peer::command(&python)
            .arg(script)
            .arg(broker.http())
            .arg(broker.amqp()),
    );
    assert_eq!(said.trim(), "ok");
}

const MESSAGES: usize = 3000;
const SENDERS: usize = 3;

#[test]
fn what_was_received_and_stored_as_settled_does_not_come_again_after_kills() {
    if !is_stafett() || external().is_some() {
        return;
    }
    let Some(python) = peer::python_with_amqp() else {
        return;
    };
    let mut broker = Broker::start_at("os");
    let fill = format!(
        "import sys; sys.path.insert(0, sys.argv[2])\n\
         from mlmq import Client\n\
         operator = Client(sys.argv[1])\n\
         operator.make_queue('q')\n\
         for sender in range({SENDERS}):\n    \
             client = Client(sys.argv[1], f'c{{sender}}')\n    \
             own = range(sender, {MESSAGES}, {SENDERS})\n    \
             client.ask('POST', '/v1/messages', [{{'to': {{'queues': ['q']}}, 'content': str(n)}} for n in own])\n"
    );
    let mut filling = peer::command(&python);
    filling.args(["-c", &fill, broker.http()]);
    peer::run(filling.arg(root().join("examples/mlmq")));
    let mut taken: Vec<usize> = Vec::new();
    let mut unknown = 0;
    for round in 0.. {
        let mut taking = peer::command(&python);
        taking.arg(root().join("tests/clients/python/http_take.py"));
        taking.args([broker.http(), "q", &SENDERS.to_string()]);
        let mut reader = taking.stdout(Stdio::piped()).spawn().unwrap();
        let lines = lines_of(reader.stdout.take().unwrap());
        let is_last = round == 4;
        let mut count = 0;
        while let Ok(line) = lines.recv() {
            taken.push(line.trim().parse().unwrap());
            count += 1;
            if !is_last && count == 100 + 50 * round {
                broker.kill_and_restart();
                unknown += 1;
            }
        }
        assert!(reader.wait().unwrap().success());
        if is_last {
            break;
        }
    }
    let once: BTreeSet<usize> = taken.iter().copied().collect();
    assert_eq!(once.len(), taken.len(), "a message came again");
    // Each kill may hit an answer that was on its way.
    let lost = MESSAGES - once.len();
    assert!(lost <= unknown, "{lost} messages are lost by {unknown} kills");
}
