//! The command line: one file or folder per command. A new command is a module and an entry in [`COMMANDS`].

mod acl;
mod api_docs;
mod app;
mod audit;
mod binding;
mod check;
mod client;
mod cluster;
mod command_docs;
mod completions;
mod config_docs;
mod connection;
mod consume;
mod consumer;
mod definitions;
mod deletion;
mod exchange;
mod group;
mod ingest;
mod journal;
mod lab;
mod limit;
mod message;
mod namespace;
mod node;
mod policy;
mod produce;
mod queue;
mod quota;
mod running_journal;
mod serve;
mod sink;
mod sql;
mod tls;
mod token;
mod topic;
mod transaction;
mod user;

use clap::{ArgMatches, Command};

use crate::failure::Failure;

/// One command: its description and its function.
struct Entry {
    describe: fn() -> Command,
    run: fn(&ArgMatches) -> Result<(), Failure>,
}

const COMMANDS: &[Entry] = &[
    Entry {
        describe: serve::describe,
        run: serve::run,
    },
    Entry {
        describe: topic::describe,
        run: topic::run,
    },
    Entry {
        describe: group::describe,
        run: group::run,
    },
    Entry {
        describe: app::describe,
        run: app::run,
    },
    Entry {
        describe: sink::describe,
        run: sink::run,
    },
    Entry {
        describe: sql::describe,
        run: sql::run,
    },
    Entry {
        describe: sink::rollup::describe,
        run: sink::rollup::run,
    },
    Entry {
        describe: ingest::describe,
        run: ingest::run,
    },
    Entry {
        describe: transaction::describe,
        run: transaction::run,
    },
    Entry {
        describe: queue::describe,
        run: queue::run,
    },
    Entry {
        describe: policy::describe,
        run: policy::run,
    },
    Entry {
        describe: limit::describe,
        run: limit::run,
    },
    Entry {
        describe: exchange::describe,
        run: exchange::run,
    },
    Entry {
        describe: binding::describe,
        run: binding::run,
    },
    Entry {
        describe: message::describe,
        run: message::run,
    },
    Entry {
        describe: client::describe,
        run: client::run,
    },
    Entry {
        describe: connection::describe,
        run: connection::run,
    },
    Entry {
        describe: consumer::describe,
        run: consumer::run,
    },
    Entry {
        describe: namespace::describe,
        run: namespace::run,
    },
    Entry {
        describe: definitions::describe,
        run: definitions::run,
    },
    Entry {
        describe: user::describe,
        run: user::run,
    },
    Entry {
        describe: token::describe,
        run: token::run,
    },
    Entry {
        describe: acl::describe,
        run: acl::run,
    },
    Entry {
        describe: check::describe,
        run: check::run,
    },
    Entry {
        describe: quota::describe,
        run: quota::run,
    },
    Entry {
        describe: audit::describe,
        run: audit::run,
    },
    Entry {
        describe: produce::describe,
        run: produce::run,
    },
    Entry {
        describe: consume::describe,
        run: consume::run,
    },
    Entry {
        describe: journal::describe,
        run: journal::run,
    },
    Entry {
        describe: node::describe,
        run: node::run,
    },
    Entry {
        describe: cluster::describe,
        run: cluster::run,
    },
    Entry {
        describe: tls::describe,
        run: tls::run,
    },
    Entry {
        describe: lab::describe,
        run: lab::run,
    },
    Entry {
        describe: completions::describe,
        run: completions::run,
    },
    Entry {
        describe: api_docs::describe,
        run: api_docs::run,
    },
    Entry {
        describe: command_docs::describe,
        run: command_docs::run,
    },
    Entry {
        describe: config_docs::describe,
        run: config_docs::run,
    },
];

/// Parses the command line and runs the command. A usage error ends the process here, with exit code 2.
pub(crate) fn run() -> Result<(), Failure> {
    let matches = describe().get_matches();
    let Some((name, matches)) = matches.subcommand() else {
        return Ok(());
    };
    match COMMANDS
        .iter()
        .find(|entry| (entry.describe)().get_name() == name)
    {
        // The reader of the output has closed it.
        Some(entry) => match (entry.run)(matches) {
            Err(failure) if failure.is_broken_pipe() => Ok(()),
            done => done,
        },
        None => Ok(()),
    }
}

fn describe() -> Command {
    Command::new("stafett")
        .about("A message broker: logs, queues and live topics over one journal")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(COMMANDS.iter().map(|entry| (entry.describe)()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::describe().debug_assert();
    }
}
