//! Shared parts of the daily commands: the server to use, connections and output.
//!
//! - [`session`]: a connected client, and its output
//! - [`table`]: aligned columns
//! - [`trust`]: TLS to a broker
//! - [`escapes`]: `\n` and its like
//! - [`human`]: numbers, sizes and times for people
//! - [`http`]: requests of the commands that ask the HTTP port
//! - [`options`]: arguments and options that several commands have
//! - [`position`]: places in a topic, such as `earliest` or `10m ago`
//! - [`advice`]: advice in error messages
//! - [`partitions`]: a topic with some of its partitions

pub(crate) mod advice;
pub(crate) mod escapes;
pub(crate) mod http;
pub(crate) mod human;
pub(crate) mod options;
pub(crate) mod partitions;
pub(crate) mod position;
pub(crate) mod session;
pub(crate) mod table;
pub(crate) mod trust;

use std::future::Future;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};

use stafett_kafka_client::{Client, Login, Options};

use crate::config::kind::host_port;
use crate::failure::Failure;
pub(crate) use session::Session;

/// Names the server if no flag does.
pub(crate) const SERVER_VARIABLE: &str = "STAFETT_SERVER";
const SERVER: &str = "server";
const TLS: &str = "tls://";
const USER: &str = "user";
const PASSWORD_FILE: &str = "password-file";
const JSON: &str = "json";

/// Adds the flags that all daily commands share. They may stand before or behind a subcommand.
pub(crate) fn command(command: Command) -> Command {
    let json = Arg::new(JSON)
        .long(JSON)
        .action(ArgAction::SetTrue)
        .global(true)
        .display_order(101)
        .help("JSON for programs: one object per line");
    command
        .arg(server_arg())
        .args(login_args())
        .args(trust::args())
        .arg(json)
}

/// Returns the flags of the login at the broker's Kafka listener.
pub(crate) fn login_args() -> [Arg; 2] {
    let user = Arg::new(USER)
        .long(USER)
        .value_name("NAME")
        .requires(PASSWORD_FILE)
        .global(true)
        .display_order(100)
        .help("The user to log in as, where the broker requires a login");
    let password_file = Arg::new(PASSWORD_FILE)
        .long(PASSWORD_FILE)
        .value_name("FILE")
        .requires(USER)
        .global(true)
        .display_order(100)
        .help("File with its password");
    [user, password_file]
}

/// Returns the flag with the broker's Kafka listener.
pub(crate) fn server_arg() -> Arg {
    Arg::new(SERVER)
        .long(SERVER)
        .value_name("HOST:PORT")
        .env(SERVER_VARIABLE)
        .hide_env_values(true)
        .default_value("127.0.0.1:9092")
        .value_delimiter(',')
        .value_parser(server)
        .global(true)
        .display_order(100)
        .help(
            "The broker to talk to, tls://HOST:PORT for a port with TLS; several, with commas between them, are \
             tried in order",
        )
}

/// Connects to one of the brokers that the flags name, as they say.
pub(crate) async fn connect(matches: &ArgMatches, options: Options) -> anyhow::Result<Client> {
    let (servers, options) = brokers(matches, options)?;
    Client::connect(&servers, options).await.map_err(advice::connect)
}

/// Returns the addresses of the brokers that the flags name, and the security of connections to them.
pub(crate) fn brokers(matches: &ArgMatches, options: Options) -> anyhow::Result<(Vec<String>, Options)> {
    let given: Vec<&String> = matches.get_many(SERVER).into_iter().flatten().collect();
    let encrypted = given.iter().filter(|server| server.starts_with(TLS)).count();
    let tls = match encrypted {
        0 => None,
        count if count == given.len() => Some(trust::config(matches)?),
        _ => bail!("some of the servers are with TLS, and some are not: name those of one kind"),
    };
    let login = match (
        matches.get_one::<String>(USER),
        matches.get_one::<String>(PASSWORD_FILE),
    ) {
        (Some(user), Some(file)) => {
            let password = std::fs::read_to_string(file);
            let password = password.with_context(|| format!("the password file {file} cannot be read"))?;
            Some(Login {
                user: user.clone(),
                password: password.trim_end_matches(['\r', '\n']).to_owned(),
            })
        }
        _ => None,
    };
    let servers: Vec<_> = given
        .iter()
        .map(|server| server.strip_prefix(TLS).unwrap_or(server).to_owned())
        .collect();
    let options = Options {
        tls,
        login,
        ..options
    };
    Ok((servers, options))
}

fn server(text: &str) -> Result<String, String> {
    match host_port(text.strip_prefix(TLS).unwrap_or(text))? {
        (_, 0) => Err("port 0 cannot be connected to".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Connects according to the flags and runs `work`.
pub(crate) fn run<W, F>(matches: &ArgMatches, work: W) -> Result<(), Failure>
where
    W: FnOnce(Session) -> F,
    F: Future<Output = anyhow::Result<()>>,
{
    let json = matches.get_flag(JSON);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("no threads can be started")?;
    let done = runtime.block_on(async {
        let session = Session::over(connect(matches, Options::default()).await?, json);
        work(session).await
    });
    // A thread may still be reading standard input, which is not needed any more.
    runtime.shutdown_background();
    done.map_err(Failure::from)
}
