//! The binary `stafett-sql`, the program behind `stafett sql`.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use stafett_kafka_client::{Client, Login, Options};
use stafett_model::quantity;
use stafett_sinks::Definition;
use stafett_sql::question::{Bounds, Form, Tables, answer};

const QUESTION: &str = "QUESTION";
const TLS: &str = "tls://";

fn describe() -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    Command::new("stafett-sql")
        .bin_name("stafett sql")
        .about("Ask topics, and files of sinks, by SQL")
        .arg(Arg::new(QUESTION).required(true).help("A statement of SQLite that begins with SELECT, WITH or VALUES"))
        .arg(
            option("server", "HOST:PORT", "The broker to talk to, tls://HOST:PORT for a port with TLS")
                .env("STAFETT_SERVER")
                .hide_env_values(true)
                .default_value("127.0.0.1:9092")
                .value_delimiter(','),
        )
        .arg(option("user", "NAME", "The user to log in as").requires("password-file"))
        .arg(option("password-file", "FILE", "File with its password").requires("user"))
        .arg(
            option("ca", "FILE", "PEM file with the authorities of brokers with TLS")
                .env("STAFETT_CA")
                .hide_env_values(true),
        )
        .arg(
            option("file", "FILE", "File with sinks: the rows of their files are tables of their names")
                .short('f')
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(option("memory", "SIZE", "Memory of the question").default_value("256MiB").value_parser(size))
        .arg(option("time", "TIME", "Time for the answer").default_value("1m").value_parser(time))
        .arg(
            option("rows", "N", "Rows of the answer")
                .default_value("10000")
                .value_parser(value_parser!(u64).range(1..)),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("JSON for programs: one object per line"),
        )
        .after_help(
            "Examples:\n  stafett sql 'SELECT partition, count(*), max(\"offset\") FROM EventLog GROUP BY 1'\n  \
             stafett sql \"SELECT value ->> 'eventType' AS type, count(*) FROM EventLog GROUP BY 1\"\n  \
             stafett sql -f sinks.toml 'SELECT count(*) FROM \"events-parquet\"'",
        )
}

fn size(text: &str) -> Result<u64, String> {
    let size = quantity::size(text).filter(|size| *size > 0);
    size.ok_or_else(|| "a size is a number with a unit, such as 64MiB".to_owned())
}

fn time(text: &str) -> Result<u64, String> {
    let time = quantity::milliseconds(text).filter(|time| *time > 0);
    time.ok_or_else(|| "a time is a number with a unit, such as 30s".to_owned())
}

fn main() -> ExitCode {
    match run(&describe().get_matches()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Standard error may be closed; the exit code is left.
            let _ = writeln!(io::stderr(), "stafett: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let number = |name| matches.get_one::<u64>(name).copied().unwrap_or(0);
    let bounds = Bounds {
        memory_bytes: number("memory"),
        time: Duration::from_millis(number("time")),
        rows: number("rows"),
    };
    let form = if matches.get_flag("json") {
        Form::Json
    } else {
        Form::Lines
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("no threads can be started")?;
    let sinks = match matches.get_one::<PathBuf>("file") {
        None => Vec::new(),
        Some(path) => {
            let shown = path.display();
            let text = fs::read_to_string(path).with_context(|| format!("{shown} cannot be read"))?;
            Definition::parse(&text).with_context(|| shown.to_string())?
        }
    };
    let client = runtime.block_on(connect(matches));
    // Files need no broker.
    let client = if sinks.is_empty() {
        Ok(client?)
    } else {
        client.map_err(|why| format!("{why:#}"))
    };
    let tables = Tables { client, sinks };
    let text = matches.get_one::<String>(QUESTION).map_or("", String::as_str);
    let mut out = BufWriter::new(io::stdout().lock());
    let whole = answer(runtime.handle(), &tables, text, bounds, form, &mut out)?;
    out.flush()?;
    if !whole {
        writeln!(
            io::stderr(),
            "there are more rows than {}: --rows is the bound",
            bounds.rows
        )?;
    }
    runtime.shutdown_background();
    Ok(())
}

async fn connect(matches: &ArgMatches) -> anyhow::Result<Client> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let given: Vec<&String> = matches.get_many("server").into_iter().flatten().collect();
    let encrypted = given.iter().filter(|server| server.starts_with(TLS)).count();
    let tls = match encrypted {
        0 => None,
        count if count == given.len() => {
            let settings = stafett_trust::settings(text("ca").as_deref());
            Some(settings.map_err(anyhow::Error::msg)?)
        }
        _ => bail!("some of the servers are with TLS, and some are not: name those of one kind"),
    };
    let login = match (text("user"), text("password-file")) {
        (Some(user), Some(file)) => {
            let password = fs::read_to_string(&file);
            let password = password.with_context(|| format!("the password file {file} cannot be read"))?;
            let password = password.trim_end_matches(['\r', '\n']).to_owned();
            Some(Login { user, password })
        }
        _ => None,
    };
    let options = Options {
        client_id: "stafett-sql".to_owned(),
        tls,
        login,
        ..Options::default()
    };
    let plain = |server: &&String| server.strip_prefix(TLS).unwrap_or(server).to_owned();
    let servers: Vec<String> = given.iter().map(plain).collect();
    Ok(Client::connect(&servers, options).await?)
}
