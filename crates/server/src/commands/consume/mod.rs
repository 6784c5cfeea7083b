//! `stafett consume`: prints records of topics to standard output.
//!
//! - [`format`]: output format of records
//! - [`output`]: buffered standard output, and the limit on records
//! - [`plain`]: consumes partitions chosen by the user
//! - [`grouped`]: consumes partitions assigned by a group

mod format;
mod grouped;
mod output;
mod plain;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use stafett_kafka_client::{Client, ClientError, FetchSettings, Place, Topic};

use crate::client::partitions::{self, Chosen};
use crate::client::position::{self, Bounds, Position};
use crate::client::{self, Session};
use crate::failure::Failure;
use format::Format;

const TOPICS: &str = "TOPIC[:PARTITIONS]";
const FROM: &str = "from";
const UNTIL: &str = "until";
const FOLLOW: &str = "follow";
const MAX: &str = "max";
const FORMAT: &str = "format";
const NULL: &str = "null";
const GROUP: &str = "group";
const UNCOMMITTED: &str = "uncommitted";

pub(super) fn describe() -> Command {
    let text = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    client::command(Command::new("consume"))
        .about("Print the records of topics, up to their end or as they come")
        .arg(
            Arg::new(TOPICS)
                .required(true)
                .num_args(1..)
                .value_parser(partitions::read)
                .help("What to read, such as orders or orders:0,2-4"),
        )
        .arg(text(FROM, position::SHAPE).allow_hyphen_values(true).help(
            "Where to begin; -N is the last N records of each partition. By default earliest, with --follow latest, \
             with --group where the group is; then this is for partitions that it has not read yet",
        ))
        .arg(
            text(UNTIL, position::SHAPE)
                .allow_hyphen_values(true)
                .conflicts_with(FOLLOW)
                .help("Where to stop, short of it; by default the end as it is at the start"),
        )
        .arg(
            Arg::new(FOLLOW)
                .long(FOLLOW)
                .short('f')
                .action(ArgAction::SetTrue)
                .help("Wait for more at the end"),
        )
        .arg(
            text(MAX, "N")
                .short('n')
                .value_parser(value_parser!(u64).range(1..))
                .help("Stop after so many records"),
        )
        .arg(
            text(FORMAT, "FORMAT")
                .conflicts_with("json")
                .value_parser(format::read)
                .default_value("%v\\n")
                .help("How a record is printed; see below"),
        )
        .arg(
            text(NULL, "TEXT")
                .default_value("")
                .help("What is printed for a key or value that is none"),
        )
        .arg(
            text(GROUP, "GROUP")
                .short('g')
                .help("Read as a member of this group, and commit what was printed"),
        )
        .arg(
            Arg::new(UNCOMMITTED)
                .long(UNCOMMITTED)
                .action(ArgAction::SetTrue)
                .help("Read records of open and of aborted transactions too"),
        )
        .after_help(
            "Format: %k key, %v value, %h headers as a=1,b=2, %t topic, %p partition, %o offset, %T timestamp in \
             milliseconds, %D the same as a date, %K and %S bytes of key and value, %% a percent sign; \\n, \\t, \\0, \
             \\\\, \\xHH.\n\nWith --json, what is not UTF-8 stands under key_base64 and value_base64.\n\nExamples:\n  \
             stafett consume orders\n  stafett consume orders:0 --from -10 --format '%o %k: %v\\n'\n  stafett consume \
             orders --from '10m ago' --follow --json\n  stafett consume orders --group billing --follow",
        )
}

/// Values of the flags.
struct Job {
    chosen: Vec<Chosen>,
    from: Option<Position>,
    /// `None` means to wait for more records at the end.
    until: Option<Position>,
    max: u64,
    format: Format,
    null: Vec<u8>,
    group: Option<String>,
    /// True to read records of open and of aborted transactions too.
    uncommitted: bool,
}

impl Job {
    fn fetch_settings(&self) -> FetchSettings {
        FetchSettings {
            committed: !self.uncommitted,
            ..FetchSettings::default()
        }
    }

    async fn bounds(&self, client: &Client, topic: &Topic) -> Result<Bounds, ClientError> {
        let end = if self.uncommitted {
            Place::End
        } else {
            Place::CommittedEnd
        };
        position::bounds_to(client, topic, end).await
    }

    fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let now = position::now();
        let place = |name: &str| {
            let text = matches.get_one::<String>(name);
            let read = text.map(|text| {
                position::read(text, now).map_err(|error| Failure::Usage(format!("--{name} {text}: {error}")))
            });
            read.transpose()
        };
        let json = matches.get_flag("json");
        let until = place(UNTIL)?;
        Ok(Self {
            chosen: matches.get_many(TOPICS).into_iter().flatten().cloned().collect(),
            from: place(FROM)?,
            until: if matches.get_flag(FOLLOW) {
                None
            } else {
                Some(until.unwrap_or(Position::Latest))
            },
            max: matches.get_one(MAX).copied().unwrap_or(u64::MAX),
            format: if json {
                Format::json()
            } else {
                matches
                    .get_one::<Format>(FORMAT)
                    .cloned()
                    .unwrap_or_else(Format::json)
            },
            null: matches
                .get_one::<String>(NULL)
                .map_or_else(Vec::new, |text| text.clone().into_bytes()),
            group: matches.get_one(GROUP).cloned(),
            uncommitted: matches.get_flag(UNCOMMITTED),
        })
    }
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let job = Job::read(matches)?;
    if let Some(chosen) = job
        .chosen
        .iter()
        .find(|chosen| job.group.is_some() && chosen.partitions.is_some())
    {
        let error = format!(
            "{}: a group gives out the partitions; name the topic alone",
            chosen.topic
        );
        return Err(Failure::Usage(error));
    }
    client::run(matches, async move |session: Session| match &job.group {
        Some(group) => grouped::run(&session, &job, group).await,
        None => plain::run(&session, &job).await,
    })
}
