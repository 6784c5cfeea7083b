//! `stafett ingest …`: endpoints that take events, checked, and tokens for them.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};
use stafett_ingest::Endpoint;

use crate::client::options::{argument, time};
use crate::failure::Failure;

const FILE: &str = "file";
const NAME: &str = "NAME";
const CLAIM: &str = "CLAIM=VALUE";
const EXPIRES: &str = "expires";

pub(super) fn describe() -> Command {
    let file = || {
        Arg::new(FILE)
            .short('f')
            .long(FILE)
            .value_name("FILE")
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help("File with the endpoints, that of the setting ingest.endpoints")
    };
    Command::new("ingest")
        .about("Check endpoints that take events, and make tokens for them")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list")
                .about("Check the endpoints of a file, and list them")
                .arg(file()),
            Command::new("token")
                .about("Make a token for an endpoint, signed with its first key")
                .arg(file())
                .arg(argument(NAME, "The endpoint"))
                .arg(Arg::new(CLAIM).action(ArgAction::Append).help("Claims of the token"))
                .arg(time(EXPIRES, "Time for which the token counts"))
                .after_help("Examples:\n  stafett ingest token -f endpoints.toml log sub=device-1 app=tv --expires 24h"),
        ])
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let Some((word, matches)) = matches.subcommand() else {
        return Ok(());
    };
    let endpoints = endpoints(matches)?;
    match word {
        "list" => list(&endpoints)?,
        "token" => token(matches, &endpoints)?,
        _ => {}
    }
    Ok(())
}

fn endpoints(matches: &ArgMatches) -> anyhow::Result<Vec<Endpoint>> {
    let path = matches.get_one::<PathBuf>(FILE);
    let path = path.context("a file with endpoints is needed: -f FILE")?;
    Ok(Endpoint::load(path)?)
}

fn list(endpoints: &[Endpoint]) -> anyhow::Result<()> {
    for endpoint in endpoints {
        let token = if endpoint.check.is_some() {
            "token"
        } else {
            "no token"
        };
        writeln!(
            io::stdout(),
            "{}  POST {}  -> {}  {token}",
            endpoint.name,
            endpoint.path,
            endpoint.target.topics().join(", ")
        )?;
    }
    Ok(())
}

fn token(matches: &ArgMatches, endpoints: &[Endpoint]) -> anyhow::Result<()> {
    let name = matches.get_one::<String>(NAME).map_or("", String::as_str);
    let endpoint = endpoints.iter().find(|endpoint| endpoint.name == name);
    let endpoint = endpoint.with_context(|| format!("there is no endpoint {name}"))?;
    let Some((_, check)) = &endpoint.check else {
        bail!("the endpoint {name} asks for no token");
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut claims = serde_json::Map::new();
    claims.insert("iat".to_owned(), now.as_secs().into());
    if let Some(time) = matches.get_one::<u64>(EXPIRES) {
        claims.insert("exp".to_owned(), json!(now.as_secs() + time / 1000));
    }
    for (claim, wanted) in [("iss", &check.issuer), ("aud", &check.audience)] {
        if let Some(wanted) = wanted {
            claims.insert(claim.to_owned(), Value::from(wanted.as_str()));
        }
    }
    for text in matches.get_many::<String>(CLAIM).into_iter().flatten() {
        let (claim, value) = text
            .split_once('=')
            .with_context(|| format!("{text:?} is not CLAIM=VALUE"))?;
        claims.insert(claim.to_owned(), value.into());
    }
    let token = check.sign(&claims);
    let token = token.with_context(|| {
        format!("the endpoint {name} has a public key alone: its program signs the tokens")
    })?;
    writeln!(io::stdout(), "{token}")?;
    Ok(())
}
