//! Settings of topics and brokers: invalid names, values and operations.

use stafett_kafka_wire::messages::alter_configs::{AlterConfigsResource, AlterableConfig};
use stafett_kafka_wire::messages::describe_configs::DescribeConfigsResource;
use stafett_kafka_wire::messages::{
    AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest, incremental_alter_configs,
};

use super::asker::{Asker, text};
use super::{Case, case};

pub(super) const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;
const RETENTION: &[Change] = &[("retention.ms", SET, Some("1000"))];

pub(super) fn describe(resource_type: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsRequest {
    DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type,
            resource_name: text(name),
            configuration_keys: keys.map(|keys| keys.iter().map(|key| text(key)).collect()),
        }],
        include_synonyms: true,
        include_documentation: false,
    }
}

fn described() -> Vec<Case> {
    let of = |kind: i8, name: &'static str| move |a: &mut Asker| a.codes(4, &describe(kind, name, None));
    vec![
        case(
            "DescribeConfigs: a topic that is not there",
            of(2, "odd.s.absent"),
        ),
        case("DescribeConfigs: an empty topic", of(2, "")),
        case("DescribeConfigs: a bad topic", of(2, "odd s/é")),
        case("DescribeConfigs: this broker", of(4, "1")),
        case("DescribeConfigs: another broker", of(4, "99")),
        case("DescribeConfigs: a broker that is no number", of(4, "one")),
        case("DescribeConfigs: the broker of no name", of(4, "")),
        case("DescribeConfigs: an unknown kind", of(77, "odd")),
        case("DescribeConfigs: kind 0", of(0, "odd")),
        case("DescribeConfigs: a negative kind", of(-1, "odd")),
        case("DescribeConfigs: the loggers of this broker", |a| {
            a.codes(4, &describe(8, "1", Some(&["no.such.logger"])))
        }),
        case("DescribeConfigs: a client metrics subscription", of(16, "odd")),
        case("DescribeConfigs: a group", of(32, "odd")),
        case("DescribeConfigs: keys that are not there", |a| {
            a.topic("odd.s.keys", 1);
            let answer = a
                .ask(4, &describe(2, "odd.s.keys", Some(&["no.such.key"])))
                .unwrap();
            format!(
                "{} with {} settings",
                super::asker::codes_of(&answer),
                answer.results[0].configs.len()
            )
        }),
        case("DescribeConfigs: no keys at all", |a| {
            a.topic("odd.s.nokeys", 1);
            let answer = a.ask(4, &describe(2, "odd.s.nokeys", Some(&[]))).unwrap();
            format!(
                "{} with settings: {}",
                super::asker::codes_of(&answer),
                !answer.results[0].configs.is_empty()
            )
        }),
        case("DescribeConfigs: the same topic twice", |a| {
            a.topic("odd.s.twice", 1);
            let mut request = describe(2, "odd.s.twice", Some(&["retention.ms"]));
            request.resources.push(request.resources[0].clone());
            a.codes(4, &request)
        }),
    ]
}

pub(super) fn incremental(
    kind: i8,
    name: &str,
    configs: &[(&str, i8, Option<&str>)],
) -> IncrementalAlterConfigsRequest {
    IncrementalAlterConfigsRequest {
        resources: vec![incremental_alter_configs::AlterConfigsResource {
            resource_type: kind,
            resource_name: text(name),
            configs: configs
                .iter()
                .map(
                    |(name, config_operation, value)| incremental_alter_configs::AlterableConfig {
                        name: text(name),
                        config_operation: *config_operation,
                        value: value.map(text),
                    },
                )
                .collect(),
        }],
        validate_only: false,
    }
}

type Change = (&'static str, i8, Option<&'static str>);

fn changes() -> Vec<Case> {
    let cases: &[(&str, &[Change])] = &[
        ("a good value", &[("retention.ms", SET, Some("1000"))]),
        ("an unknown name", &[("no.such.setting", SET, Some("1"))]),
        ("an empty name", &[("", SET, Some("1"))]),
        ("no value", &[("retention.ms", SET, None)]),
        ("an empty value", &[("retention.ms", SET, Some(""))]),
        (
            "a value that is no number",
            &[("retention.ms", SET, Some("long"))],
        ),
        ("a value out of range", &[("max.message.bytes", SET, Some("-5"))]),
        (
            "a number beyond its type",
            &[("max.message.bytes", SET, Some("99999999999"))],
        ),
        (
            "an unknown cleanup policy",
            &[("cleanup.policy", SET, Some("burn"))],
        ),
        ("a boolean that is none", &[("preallocate", SET, Some("perhaps"))]),
        (
            "the same name twice",
            &[("retention.ms", SET, Some("1")), ("retention.ms", SET, Some("2"))],
        ),
        ("an unknown operation", &[("retention.ms", 9, Some("1"))]),
        (
            "a deletion of what was not set",
            &[("retention.ms", DELETE, None)],
        ),
        (
            "a deletion of an unknown name",
            &[("no.such.setting", DELETE, None)],
        ),
        (
            "an addition to what is no list",
            &[("retention.ms", APPEND, Some("1"))],
        ),
        (
            "an addition to a list",
            &[("cleanup.policy", APPEND, Some("compact"))],
        ),
        (
            "an addition of what is there",
            &[("cleanup.policy", APPEND, Some("delete"))],
        ),
        (
            "a subtraction from what is no list",
            &[("retention.ms", SUBTRACT, Some("1"))],
        ),
        (
            "a subtraction of what is not there",
            &[("cleanup.policy", SUBTRACT, Some("compact"))],
        ),
        ("nothing", &[]),
    ];
    let mut all: Vec<Case> = cases
        .iter()
        .enumerate()
        .map(|(number, (name, changes))| {
            let topic = format!("odd.i.{number}");
            case(&format!("IncrementalAlterConfigs: {name}"), move |a| {
                a.topic(&topic, 1);
                a.codes(1, &incremental(2, &topic, changes))
            })
        })
        .collect();
    let of = |kind: i8, name: &'static str, changes: &'static [Change]| {
        move |a: &mut Asker| a.codes(1, &incremental(kind, name, changes))
    };
    all.extend([
        case(
            "IncrementalAlterConfigs: a topic that is not there",
            of(2, "odd.i.absent", RETENTION),
        ),
        case("IncrementalAlterConfigs: an empty topic", of(2, "", RETENTION)),
        case(
            "IncrementalAlterConfigs: another broker",
            of(4, "99", &[("log.retention.ms", SET, Some("1000"))]),
        ),
        case(
            "IncrementalAlterConfigs: a broker that is no number",
            of(4, "one", &[("log.retention.ms", SET, Some("1000"))]),
        ),
        case(
            "IncrementalAlterConfigs: a setting of the broker that cannot change",
            of(4, "1", &[("node.id", SET, Some("5"))]),
        ),
        case(
            "IncrementalAlterConfigs: an unknown setting of the broker",
            of(4, "1", &[("no.such.setting", SET, Some("5"))]),
        ),
        case(
            "IncrementalAlterConfigs: an unknown kind",
            of(77, "odd", RETENTION),
        ),
        case("IncrementalAlterConfigs: the same topic twice", |a| {
            a.topic("odd.i.twice", 1);
            let mut request = incremental(2, "odd.i.twice", RETENTION);
            request.resources.push(request.resources[0].clone());
            a.codes(1, &request)
        }),
    ]);
    let whole = |kind: i8, name: &'static str, configs: &'static [(&'static str, Option<&'static str>)]| {
        move |a: &mut Asker| {
            if name.starts_with("odd.w.") {
                a.topic(name, 1);
            }
            let configs = configs
                .iter()
                .map(|(name, value)| AlterableConfig {
                    name: text(name),
                    value: value.map(text),
                })
                .collect();
            let resource = AlterConfigsResource {
                resource_type: kind,
                resource_name: text(name),
                configs,
            };
            a.codes(
                2,
                &AlterConfigsRequest {
                    resources: vec![resource],
                    validate_only: false,
                },
            )
        }
    };
    all.extend([
        case(
            "AlterConfigs: a good value",
            whole(2, "odd.w.good", &[("retention.ms", Some("1000"))]),
        ),
        case(
            "AlterConfigs: no value",
            whole(2, "odd.w.null", &[("retention.ms", None)]),
        ),
        case(
            "AlterConfigs: an unknown name",
            whole(2, "odd.w.unknown", &[("no.such.setting", Some("1"))]),
        ),
        case(
            "AlterConfigs: a value that is no number",
            whole(2, "odd.w.nan", &[("retention.ms", Some("long"))]),
        ),
        case(
            "AlterConfigs: the same name twice",
            whole(
                2,
                "odd.w.twice",
                &[("retention.ms", Some("1")), ("retention.ms", Some("2"))],
            ),
        ),
        case("AlterConfigs: nothing", whole(2, "odd.w.nothing", &[])),
        case(
            "AlterConfigs: a topic that is not there",
            whole(2, "absent.w", &[("retention.ms", Some("1"))]),
        ),
        case(
            "AlterConfigs: an unknown kind",
            whole(77, "absent.w", &[("retention.ms", Some("1"))]),
        ),
    ]);
    all
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = described();
    all.extend(changes());
    all
}
