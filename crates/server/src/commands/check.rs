//! `stafett check`: names in plain lines all that is open, and to whom, out of settings, and of the users and
//! rules of a running broker.

use std::io::{self, Write};
use std::net::ToSocketAddrs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use hyper::Method;
use serde_json::Value;
use stafett_net::ClientCertificates;

use crate::client::http::{self, Question};
use crate::client::options::flag;
use crate::config::tls::Edge;
use crate::config::{self, Flags, Settings};
use crate::failure::Failure;

const CONFIG: &str = "config";
const SET: &str = "set";
const RUNNING: &str = "running";

/// A line of the answer.
struct Finding {
    is_dangerous: bool,
    text: String,
}

#[derive(Default)]
struct Findings {
    all: Vec<Finding>,
    /// True if a listener is reached from other machines.
    is_remote: bool,
}

impl Findings {
    fn note(&mut self, text: String) {
        let is_dangerous = false;
        self.all.push(Finding { is_dangerous, text });
    }

    fn warn(&mut self, text: String) {
        let is_dangerous = true;
        self.all.push(Finding { is_dangerous, text });
    }
}

pub(super) fn describe() -> Command {
    http::command(Command::new("check"))
        .about("Say what is open to whom; exit code 1 if something is dangerous")
        .arg(
            Arg::new(CONFIG)
                .long(CONFIG)
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("TOML file with settings"),
        )
        .arg(
            Arg::new(SET)
                .long(SET)
                .value_name("KEY=VALUE")
                .action(ArgAction::Append)
                .help("Any setting by its key; can be given several times"),
        )
        .arg(flag(
            RUNNING,
            "Also ask the running broker for its users, tokens and rules",
        ))
        .after_help(
            "Examples:\n  stafett check --config stafett.toml\n  stafett check --running --token-file token",
        )
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let flags = Flags {
        file: matches.get_one::<PathBuf>(CONFIG).cloned(),
        set: matches
            .get_many::<String>(SET)
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        ..Flags::default()
    };
    let settings = config::load(flags, std::env::vars_os())?.settings;
    let mut findings = Findings::default();
    listeners(&settings, &mut findings)?;
    logins(&settings, &mut findings);
    files(&settings, &mut findings);
    if matches.get_flag(RUNNING) {
        let list = |path: &'static str| http::list(matches, || Question::new(Method::GET, path));
        users(&list("/v1/users")?, &mut findings);
        rules(&list("/v1/rules")?, &mut findings);
        tokens(&list("/v1/tokens")?, &mut findings);
    }
    let mut out = io::stdout().lock();
    for Finding { is_dangerous, text } in &findings.all {
        let mark = if *is_dangerous { "danger: " } else { "" };
        writeln!(out, "{mark}{text}").map_err(|why| Failure::Start(why.into()))?;
    }
    match findings.all.iter().filter(|finding| finding.is_dangerous).count() {
        0 => Ok(()),
        1 => Err(anyhow!("one of these is dangerous").into()),
        count => Err(anyhow!("{count} of these are dangerous").into()),
    }
}

fn listeners(settings: &Settings, findings: &mut Findings) -> Result<(), Failure> {
    let (kafka, amqp, http) = (&settings.kafka, &settings.amqp, &settings.http);
    let plain = [
        ("kafka.listen", &kafka.listen),
        ("amqp.listen", &amqp.listen),
        ("amqp.management", &amqp.management),
        ("amqp.prometheus", &amqp.prometheus),
        ("http.listen", &http.listen),
    ];
    for (key, address) in plain {
        let Some(address) = address else { continue };
        if is_remote(address) {
            findings.is_remote = true;
            findings.warn(format!(
                "{key} = {address} is reached from other machines without TLS: content, passwords and tokens can be \
                 read on the way"
            ));
        } else {
            findings.note(format!(
                "{key} = {address} is reached from this machine only, without TLS"
            ));
        }
    }
    let encrypted = [
        ("kafka.tls_listen", &kafka.tls_listen, Edge::Kafka),
        ("amqp.tls_listen", &amqp.tls_listen, Edge::Amqp),
        ("amqp.tls_management", &amqp.tls_management, Edge::Http),
        ("amqp.tls_prometheus", &amqp.tls_prometheus, Edge::Http),
        ("http.tls_own", &settings.http.tls_own, Edge::Http),
        ("http.tls_listen", &http.tls_listen, Edge::Http),
    ];
    for (key, address, edge) in encrypted {
        let (Some(address), Some(tls)) = (address, settings.tls_of(edge)?) else {
            continue;
        };
        let reach = if is_remote(address) {
            findings.is_remote = true;
            "from other machines"
        } else {
            "from this machine only"
        };
        let clients = match tls.clients {
            ClientCertificates::None => "clients show no certificate",
            ClientCertificates::Optional => "clients may show a certificate",
            ClientCertificates::Required => "clients show a certificate",
        };
        findings.note(format!(
            "{key} = {address} is reached {reach}, with TLS; {clients}"
        ));
    }
    Ok(())
}

/// Returns true for an address that other machines may reach; also for a name that is unknown here.
fn is_remote(address: &str) -> bool {
    match address.to_socket_addrs() {
        Ok(mut addresses) => addresses.any(|address| !address.ip().to_canonical().is_loopback()),
        Err(_) => true,
    }
}

fn logins(settings: &Settings, findings: &mut Findings) {
    if !findings.is_remote {
        findings.note("no other machine reaches the broker".to_owned());
    } else if settings.require_login {
        findings.note("callers from other machines log in at all times".to_owned());
    } else if settings.allow_unauthenticated {
        findings.warn(
            "allow_unauthenticated: every machine may do everything until there is an administrator"
                .to_owned(),
        );
    } else {
        findings.warn(
            "the broker does not start like this: set require_login, or listen on loopback addresses"
                .to_owned(),
        );
    }
    findings.note("from this machine, everything is permitted until there is an administrator".to_owned());
}

fn files(settings: &Settings, findings: &mut Findings) {
    let keys = [
        &settings.tls.key,
        &settings.kafka.tls_key,
        &settings.amqp.tls_key,
        &settings.http.tls_key,
    ];
    for key in keys.into_iter().flatten() {
        match mode(key) {
            Some(mode) if mode & 0o007 != 0 => {
                findings.warn(format!(
                    "{} can be read by each user of this machine",
                    key.display()
                ));
            }
            Some(_) => {}
            None => findings.warn(format!("{} is not there, or cannot be looked at", key.display())),
        }
    }
    let data = &settings.data_dir;
    match mode(data) {
        Some(mode) if mode & 0o002 != 0 => {
            findings.warn(format!(
                "{} can be changed by each user of this machine",
                data.display()
            ));
        }
        Some(mode) if mode & 0o005 != 0 => findings.note(format!(
            "{} can be read by each user of this machine, as far as its files can",
            data.display()
        )),
        Some(_) | None => {}
    }
}

fn mode(path: &Path) -> Option<u32> {
    Some(std::fs::metadata(path).ok()?.permissions().mode())
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let all = value.get(field).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn users(users: &[Value], findings: &mut Findings) {
    let mut has_administrator = false;
    for user in users {
        let (name, tags) = (text(user, "name"), texts(user, "tags"));
        let has = |tag: &str| tags.iter().any(|known| known == tag);
        let rights = if has("superuser") {
            "everything"
        } else if has("administrator") {
            "the cluster, namespaces, users and tokens, and sees all but content"
        } else if has("monitoring") {
            "nothing but by rules, and sees all but content"
        } else {
            "nothing but by rules"
        };
        has_administrator |= has("superuser") || has("administrator");
        findings.note(format!("user {name}: {rights}"));
    }
    if has_administrator {
        findings.note("there is an administrator: every caller logs in".to_owned());
    } else if findings.is_remote {
        findings.warn("no user is an administrator: callers from this machine may do everything".to_owned());
    } else {
        findings.note("no user is an administrator: every caller may do everything".to_owned());
    }
}

fn rules(rules: &[Value], findings: &mut Findings) {
    const VIEWS: [&str; 2] = ["describe", "describe_settings"];
    for rule in rules {
        let (who, actions) = (text(rule, "who"), texts(rule, "actions"));
        let denies = rule.get("deny").and_then(Value::as_bool).unwrap_or_default();
        let name = ["name", "prefix", "pattern"].into_iter().find_map(|form| {
            let name = rule.get(form)?.as_str()?;
            Some(format!("{form} {name:?}"))
        });
        let verb = if denies { "must not" } else { "may" };
        let line = format!(
            "{who} {verb} {} on {} {}",
            actions.join(", "),
            texts(rule, "on").join(", "),
            name.unwrap_or_default()
        );
        let changes = actions.iter().any(|action| !VIEWS.contains(&&**action));
        if who == "everyone" && !denies && changes {
            findings.warn(line);
        } else {
            findings.note(line);
        }
    }
}

fn tokens(tokens: &[Value], findings: &mut Findings) {
    for token in tokens
        .iter()
        .filter(|token| token.get("expires").is_none_or(Value::is_null))
    {
        let (id, user) = (text(token, "id"), text(token, "user"));
        findings.note(format!("token {id} of {user} does not expire"));
    }
}
