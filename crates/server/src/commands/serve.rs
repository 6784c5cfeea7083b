//! `stafett serve`: starts the broker. Its flags are generated from the table of settings.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::config::{self, DEFINITIONS, Flags};
use crate::failure::Failure;

const CONFIG: &str = "config";
const SET: &str = "set";

pub(super) fn describe() -> Command {
    let flags = DEFINITIONS.iter().filter_map(|definition| {
        let flag = definition.flag?;
        let arg = Arg::new(definition.key)
            .long(flag)
            .value_name(definition.shape)
            .allow_hyphen_values(true)
            .help(format!(
                "{} [default: {}]",
                definition.summary(),
                definition.default
            ));
        Some(arg)
    });
    Command::new("serve")
        .about("Start the broker")
        .after_help(
            "Every setting is in docs/configuration.md. A flag wins over STAFETT_…, and that over the file.",
        )
        .arg(
            Arg::new(CONFIG)
                .long(CONFIG)
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("TOML file with settings"),
        )
        .args(flags)
        .arg(
            Arg::new(SET)
                .long(SET)
                .value_name("KEY=VALUE")
                .action(ArgAction::Append)
                .help("Any setting by its key; can be given several times"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let mut flags = Flags {
        file: matches.get_one::<PathBuf>(CONFIG).cloned(),
        ..Flags::default()
    };
    for definition in DEFINITIONS.iter().filter(|definition| definition.flag.is_some()) {
        if let Some(text) = matches.get_one::<String>(definition.key) {
            flags.given.push((definition, text.clone()));
        }
    }
    flags
        .set
        .extend(matches.get_many::<String>(SET).into_iter().flatten().cloned());
    let loaded = config::load(flags.clone(), std::env::vars_os())?;
    crate::serve::run(loaded, flags)
}
