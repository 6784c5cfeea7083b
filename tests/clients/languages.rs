//! Kafka clients implemented in other languages, each in a program that contains the expectations:
//! administration, every codec they have, keys, headers and times, large records, topics created by use,
//! wrong names, members that come and leave, commits, and transactions.

use std::process::Command;

use crate::broker::Broker;
use crate::peer;

fn passes(program: Option<Command>) {
    let Some(mut program) = program else { return };
    let broker = Broker::start_at("os");
    peer::run(program.arg(broker.kafka()));
}

#[test]
fn kafkajs_does_what_its_programs_do_in_a_day() {
    passes(peer::kafkajs());
}

#[test]
fn franz_go_does_what_its_programs_do_in_a_day() {
    passes(peer::kafka_in_go("franz-go"));
}

#[test]
fn franz_go_does_the_same_in_groups_that_the_broker_assigns() {
    passes(peer::kafka_in_go("franz-go-assigned"));
}

#[test]
fn franz_go_settles_each_record_once_in_share_groups() {
    passes(peer::kafka_in_go("franz-go-share"));
}

#[test]
fn sarama_does_what_its_programs_do_in_a_day() {
    passes(peer::kafka_in_go("sarama"));
}

#[test]
fn kafka_go_does_what_its_programs_do_in_a_day() {
    passes(peer::kafka_in_go("kafka-go"));
}

#[test]
fn aiokafka_does_what_its_programs_do_in_a_day() {
    passes(peer::aiokafka());
}
