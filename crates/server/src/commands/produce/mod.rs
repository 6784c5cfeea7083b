//! `stafett produce`: sends records from standard input to a topic.
//!
//! - [`input`]: reads standard input and splits it into records
//! - [`lines`]: parses a line: key, value, headers
//! - [`outcome`]: counts and reports stored and failed records
//! - [`send`]: sends the records

mod input;
mod lines;
mod outcome;
mod send;

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use stafett_kafka_client::ErrorCode;
use stafett_kafka_client::admin::NewTopic;
use stafett_kafka_client::{Acks, Topic};
use stafett_model::{Codec, TopicName};

use crate::client::{self, Session, escapes};
use crate::failure::Failure;
use lines::{Format, Shape};

const TOPIC: &str = "TOPIC";
const KEY: &str = "key";
const KEY_SEPARATOR: &str = "key-separator";
const HEADER: &str = "header";
const HEADERS_SEPARATOR: &str = "headers-separator";
const NULL: &str = "null";
const FORMAT: &str = "format";
const DELIMITER: &str = "delimiter";
const PARTITION: &str = "partition";
const COMPRESSION: &str = "compression";
const ACKS: &str = "acks";
const CREATE: &str = "create";
const QUIET: &str = "quiet";

pub(super) fn describe() -> Command {
    client::command(Command::new("produce"))
        .about("Send records from standard input to a topic, one per line")
        .arg(
            Arg::new(TOPIC)
                .required(true)
                .value_parser(topic_name)
                .help("The topic"),
        )
        .args(about_lines())
        .args(about_sending())
        .after_help(
            "Every line is a record, empty ones too. A key goes to the partition that Kafka's Java client would \
             choose.\n\nExamples:\n  stafett produce orders < orders.txt\n  echo '42:hello' | stafett produce orders \
             --key-separator :\n  stafett consume orders --json | stafett produce copy --format json --compression lz4",
        )
}

fn text(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value)
}

/// Flags that define how lines become records.
fn about_lines() -> [Arg; 7] {
    [
        text(KEY, "KEY").short('k').help("The key of all records"),
        text(KEY_SEPARATOR, "SEP")
            .short('K')
            .value_parser(separator)
            .conflicts_with(KEY)
            .help("What stands between key and value, such as : or \\t"),
        text(HEADER, "KEY=VALUE")
            .short('H')
            .value_parser(lines::read_header)
            .action(ArgAction::Append)
            .help("A header of all records; can be given several times"),
        text(HEADERS_SEPARATOR, "SEP")
            .value_parser(separator)
            .help("What stands behind the headers that each line begins with, as in a=1,b=2<SEP>value"),
        text(NULL, "TEXT").help("A key or value that is this text is sent as none"),
        text(FORMAT, "FORMAT")
            .value_parser(PossibleValuesParser::new(["line", "json", "raw", "base64"]))
            .default_value("line")
            .help(
                "line: as it is; json: an object as `consume --json` prints it; base64: key and value are in Base64; \
                 raw: all of the input is one record",
            ),
        text(DELIMITER, "SEP")
            .value_parser(separator)
            .default_value("\\n")
            .help("What stands between records"),
    ]
}

/// Flags that define the destination and the encoding of records.
fn about_sending() -> [Arg; 5] {
    [
        text(PARTITION, "N")
            .short('p')
            .value_parser(value_parser!(i32).range(0..))
            .help("Where to; else the key decides, as with Kafka's Java client, or without a key the batch"),
        text(COMPRESSION, "CODEC")
            .short('z')
            .value_parser(PossibleValuesParser::new([
                "none", "gzip", "snappy", "lz4", "zstd",
            ]))
            .default_value("none")
            .help("How batches are compressed"),
        text(ACKS, "ACKS")
            .value_parser(PossibleValuesParser::new(["all", "1", "0"]))
            .default_value("all")
            .help("What the broker has done when a record counts as sent"),
        Arg::new(CREATE)
            .long(CREATE)
            .action(ArgAction::SetTrue)
            .help("Create the topic, with the broker's defaults, if it does not exist"),
        Arg::new(QUIET)
            .long(QUIET)
            .short('q')
            .action(ArgAction::SetTrue)
            .help("No progress and no summary"),
    ]
}

fn topic_name(text: &str) -> Result<String, String> {
    TopicName::check(text)
        .map(|()| text.to_owned())
        .map_err(|error| error.to_string())
}

fn separator(text: &str) -> Result<Vec<u8>, String> {
    match escapes::read(text)? {
        empty if empty.is_empty() => Err("expected at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Values of the flags.
struct Job {
    topic: String,
    create: bool,
    quiet: bool,
    partition: Option<i32>,
    codec: Codec,
    acks: Acks,
    shape: Shape,
    /// `None` if all of the input is one record.
    delimiter: Option<Vec<u8>>,
}

impl Job {
    fn read(matches: &ArgMatches) -> Self {
        let word = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
        let bytes = |name: &str| matches.get_one::<Vec<u8>>(name).cloned();
        let format = match word(FORMAT) {
            "json" => Format::Json,
            "base64" => Format::Base64,
            _ => Format::Line,
        };
        let headers = matches.get_many(HEADER).into_iter().flatten().cloned();
        Self {
            topic: word(TOPIC).to_owned(),
            create: matches.get_flag(CREATE),
            quiet: matches.get_flag(QUIET),
            partition: matches.get_one(PARTITION).copied(),
            codec: match word(COMPRESSION) {
                "gzip" => Codec::Gzip,
                "snappy" => Codec::Snappy,
                "lz4" => Codec::Lz4,
                "zstd" => Codec::Zstd,
                _ => Codec::None,
            },
            acks: match word(ACKS) {
                "0" => Acks::None,
                "1" => Acks::Leader,
                _ => Acks::All,
            },
            delimiter: if word(FORMAT) == "raw" {
                None
            } else {
                bytes(DELIMITER)
            },
            shape: Shape {
                format,
                key: matches.get_one::<String>(KEY).map(|key| key.clone().into_bytes()),
                key_separator: bytes(KEY_SEPARATOR),
                headers: headers.collect(),
                headers_separator: bytes(HEADERS_SEPARATOR),
                null: matches
                    .get_one::<String>(NULL)
                    .map(|null| null.clone().into_bytes()),
            },
        }
    }
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let job = Job::read(matches);
    client::run(matches, async move |session: Session| {
        let topic = find(&session, &job).await?;
        if let Some(partition) = job.partition
            && !topic.partitions.iter().any(|row| row.index == partition)
        {
            return Err(anyhow!(
                "topic `{}` has no partition {partition}; it has {}, from 0 on",
                job.topic,
                topic.partitions.len()
            ));
        }
        send::run(&session, &job, topic).await
    })
}

async fn find(session: &Session, job: &Job) -> anyhow::Result<Topic> {
    if job.create {
        let topic = NewTopic {
            name: job.topic.clone(),
            ..NewTopic::default()
        };
        match session.client.create_topic(&topic).await {
            Ok(_) => {}
            Err(error) if error.code() == Some(ErrorCode::TopicAlreadyExists) => {}
            Err(error) => return Err(error.into()),
        }
    }
    session.topic(&job.topic).await
}
