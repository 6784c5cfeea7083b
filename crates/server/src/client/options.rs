//! Arguments and options that several commands have.

use clap::{Arg, ArgAction, ArgMatches, value_parser};

use crate::failure::Failure;
use stafett_model::quantity;

pub(crate) const NAMESPACE: &str = "namespace";

/// Returns the option `--namespace`, for all subcommands.
pub(crate) fn namespace(help: &'static str) -> Arg {
    Arg::new(NAMESPACE)
        .long(NAMESPACE)
        .value_name("NAME")
        .global(true)
        .display_order(99)
        .help(help)
}

/// Returns a required argument without a name.
pub(crate) fn argument(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).required(true).help(help)
}

/// Returns an option with a value.
pub(crate) fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// Returns an option with a number of at least 1.
pub(crate) fn number(name: &'static str, help: &'static str) -> Arg {
    option(name, "N", help).value_parser(value_parser!(u64).range(1..))
}

/// Returns an option with a time, in milliseconds for its reader.
pub(crate) fn time(name: &'static str, help: &'static str) -> Arg {
    let parse = |text: &str| {
        quantity::milliseconds(text).ok_or_else(|| "a time is a number with a unit, such as 30s".to_owned())
    };
    option(name, "TIME", help).value_parser(parse)
}

/// Returns an option with a size, in bytes for its reader.
pub(crate) fn size(name: &'static str, help: &'static str) -> Arg {
    let parse = |text: &str| {
        quantity::size(text).ok_or_else(|| "a size is a number with a unit, such as 64MiB".to_owned())
    };
    option(name, "SIZE", help).value_parser(parse)
}

pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Returns the text of an argument, empty if it is absent.
pub(crate) fn text<'a>(matches: &'a ArgMatches, name: &str) -> &'a str {
    matches.get_one::<String>(name).map_or("", String::as_str)
}

/// Returns the values `NAME=VALUE` of an option that may be repeated.
pub(crate) fn pairs<'a>(matches: &'a ArgMatches, name: &str) -> Result<Vec<(&'a str, &'a str)>, Failure> {
    let given = matches.get_many::<String>(name).into_iter().flatten();
    let pairs = given.map(|given| {
        given
            .split_once('=')
            .ok_or_else(|| Failure::Usage(format!("--{name} {given}: a {name} is NAME=VALUE")))
    });
    pairs.collect()
}
