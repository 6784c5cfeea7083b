//! Shared parts of the commands that ask the broker's HTTP port.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use axum::body::{Body, to_bytes};
use clap::{Arg, ArgAction, ArgMatches, Command};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use stafett_http::query::encoded;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::options::NAMESPACE;
use super::table::{Side, Table};
use super::{JSON, Session, server, trust};
use crate::failure::Failure;

const HTTP: &str = "http";
const TOKEN_FILE: &str = "token-file";
const HTTPS: &str = "https://";
/// Maximum bytes of a response.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Interval of looks at an operation that goes on.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Adds the flags that all of these commands share.
pub(crate) fn command(command: Command) -> Command {
    command
        .arg(
            Arg::new(HTTP)
                .long(HTTP)
                .value_name("HOST:PORT")
                .default_value("127.0.0.1:7070")
                .value_parser(node)
                .global(true)
                .display_order(100)
                .help("The broker's HTTP port; https://HOST:PORT for the one with TLS"),
        )
        .args(trust::args())
        .arg(
            Arg::new(TOKEN_FILE)
                .long(TOKEN_FILE)
                .value_name("FILE")
                .global(true)
                .display_order(100)
                .help("File with a token, where the broker requires a login (stafett token create)"),
        )
        .arg(
            Arg::new(JSON)
                .long(JSON)
                .action(ArgAction::SetTrue)
                .global(true)
                .display_order(101)
                .help("JSON for programs: one object per line"),
        )
}

/// Reads `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`.
fn node(text: &str) -> Result<String, String> {
    let text = text.strip_suffix('/').unwrap_or(text);
    match text.strip_prefix(HTTPS) {
        Some(address) => server(address).map(|address| format!("{HTTPS}{address}")),
        None => server(text.strip_prefix("http://").unwrap_or(text)),
    }
}

/// Request to the broker: a method, and a path with its query.
#[derive(Debug)]
pub(crate) struct Question {
    method: Method,
    target: String,
    headers: Vec<(&'static str, String)>,
    body: Option<String>,
}

impl Question {
    pub(crate) fn new(method: Method, path: &str) -> Self {
        Self {
            method,
            target: path.to_owned(),
            headers: Vec::new(),
            body: None,
        }
    }

    /// Adds a segment to the path.
    pub(crate) fn at(mut self, segment: &str) -> Self {
        // Writing to a string does not fail.
        let _ = write!(self.target, "/{}", encoded(segment));
        self
    }

    pub(crate) fn with_body(mut self, body: &Value) -> Self {
        self.body = Some(body.to_string());
        self
    }

    /// Adds a body that is JSON text.
    pub(crate) fn with_json(mut self, body: String) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.target
            .push(if self.target.contains('?') { '&' } else { '?' });
        // Writing to a string does not fail.
        let _ = write!(self.target, "{}={}", encoded(name), encoded(value));
        self
    }

    /// Adds the namespace that is given.
    pub(crate) fn in_namespace(self, matches: &ArgMatches) -> Self {
        self.with_option(matches, NAMESPACE, NAMESPACE)
    }

    /// Adds a header.
    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Adds the header `Authorization`, if there is one.
    fn by(self, login: Option<&str>) -> Self {
        match login {
            Some(login) => self.with_header("authorization", login),
            None => self,
        }
    }

    /// Adds the value of an option if it is given.
    pub(crate) fn with_option(self, matches: &ArgMatches, option: &str, name: &str) -> Self {
        match matches.get_one::<String>(option) {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

/// Returns all entries of a list, page by page.
pub(crate) fn list(matches: &ArgMatches, question: impl Fn() -> Question) -> Result<Vec<Value>, Failure> {
    let mut entries = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let mut question = question().with("count", "1000");
        if let Some(next) = &next {
            question = question.with("after", next);
        }
        let mut answer = ask(matches, question)?;
        if let Some(Value::Array(page)) = answer.get_mut("items").map(Value::take) {
            entries.extend(page);
        }
        let behind = answer.get("next").and_then(Value::as_str).map(str::to_owned);
        // A broker that repeats the same position has no more pages.
        if behind.is_none() || behind == next {
            return Ok(entries);
        }
        next = behind;
    }
}

/// Sends a request and waits for the response, and for the end of an operation that it begins.
pub(crate) fn ask(matches: &ArgMatches, question: Question) -> Result<Value, Failure> {
    let address = matches
        .get_one::<String>(HTTP)
        .map_or("127.0.0.1:7070", String::as_str);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no thread can be started")?;
    let login = authorization(matches)?;
    let login = login.as_deref();
    let target = match address.strip_prefix(HTTPS) {
        Some(address) => Target {
            address,
            tls: Some(trust::connector(matches)?),
        },
        None => Target { address, tls: None },
    };
    let asking = async {
        let (status, answer) = answer(&target, question.by(login)).await?;
        match answer.get("operation").and_then(Value::as_str) {
            Some(id) if status == StatusCode::ACCEPTED => ended(&target, id, login).await,
            _ => Ok(answer),
        }
    };
    Ok(runtime.block_on(asking)?)
}

/// Returns the address of a broker's HTTP port without TLS, and the token of the file that is given.
pub(crate) fn plain(matches: &ArgMatches) -> anyhow::Result<(String, Option<String>)> {
    let address = matches
        .get_one::<String>(HTTP)
        .map_or("127.0.0.1:7070", String::as_str);
    if address.starts_with(HTTPS) {
        bail!("this command speaks to a broker's HTTP port without TLS only");
    }
    let login = authorization(matches)?;
    let token = login.and_then(|login| login.strip_prefix("Bearer ").map(str::to_owned));
    Ok((address.to_owned(), token))
}

/// Returns the header with the token of the file that is given.
fn authorization(matches: &ArgMatches) -> anyhow::Result<Option<String>> {
    let Some(file) = matches.get_one::<String>(TOKEN_FILE) else {
        return Ok(None);
    };
    let token =
        std::fs::read_to_string(file).with_context(|| format!("the token file {file} cannot be read"))?;
    Ok(Some(format!("Bearer {}", token.trim())))
}

/// The broker that is asked.
struct Target<'a> {
    address: &'a str,
    tls: Option<TlsConnector>,
}

/// Waits for the end of an operation, and returns its result.
async fn ended(target: &Target<'_>, id: &str, login: Option<&str>) -> anyhow::Result<Value> {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let question = Question::new(Method::GET, "/v1/operations").at(id);
        let (_, mut operation) = answer(target, question.by(login)).await?;
        let state = operation.get("state").and_then(Value::as_str);
        match state {
            Some("running") => {}
            Some("done" | "stopped") => {
                return Ok(operation.get_mut("result").map(Value::take).unwrap_or_default());
            }
            _ => {
                let detail = operation.pointer("/error/detail").and_then(Value::as_str);
                bail!("{}", detail.unwrap_or("the operation failed"));
            }
        }
    }
}

async fn answer(target: &Target<'_>, question: Question) -> anyhow::Result<(StatusCode, Value)> {
    let address = target.address;
    let stream = TcpStream::connect(address).await.with_context(|| {
        format!("{address} does not answer: is the broker running, and is that its HTTP port (--http)?")
    })?;
    // The `Host` is the address instead of the name, because the broker refuses names (DNS rebinding).
    let host = host_of(stream.peer_addr()?);
    match &target.tls {
        None => exchange(stream, address, host, question).await,
        Some(connector) => {
            let stream = trust::connect(connector, stream, address).await?;
            exchange(stream, address, host, question).await
        }
    }
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    address: &str,
    host: String,
    question: Question,
) -> anyhow::Result<(StatusCode, Value)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::builder()
        .method(question.method)
        .uri(question.target)
        .header(HOST, host)
        .header(CONTENT_TYPE, "application/json");
    let headers = question.headers.into_iter();
    let request = headers
        .fold(request, |request, (name, value)| {
            request.header(name, value.as_bytes())
        })
        .body(question.body.unwrap_or_default())?;
    let asking = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), ANSWER_BYTES_MAX).await;
        let too_long = || format!("it cannot be read, or is longer than {ANSWER_BYTES_MAX} bytes");
        anyhow::Ok((status, body.with_context(too_long)?))
    };
    let (answered, _) = tokio::join!(asking, connection);
    let (status, body) = answered.with_context(|| format!("{address} gave no answer"))?;
    if !status.is_success() {
        bail!("{}", refusal(status, &body));
    }
    let answer = serde_json::from_slice(&body)
        .map_err(|_| anyhow!("{address} is no broker's HTTP port: its answer is no JSON"))?;
    Ok((status, answer))
}

/// Returns the reason of a refusal: the `detail` of a broker, or whatever else answers there.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    let problem: Option<Value> = serde_json::from_slice(body).ok();
    let detail = problem
        .as_ref()
        .and_then(|problem| problem.get("detail")?.as_str());
    let text = String::from_utf8_lossy(body);
    let said = detail.unwrap_or(&text).trim();
    if said.is_empty() {
        status.to_string()
    } else {
        said.to_owned()
    }
}

/// Formats an address as a `Host`, without the scope, which has a meaning on this machine only.
fn host_of(peer: SocketAddr) -> String {
    SocketAddr::new(peer.ip(), peer.port()).to_string()
}

/// Returns true if the output is for programs.
pub(crate) fn is_json(matches: &ArgMatches) -> bool {
    matches.get_flag(JSON)
}

/// Shows a list: as a table, or with `--json` as one object per line.
pub(crate) fn show(matches: &ArgMatches, list: &[Value], table: &Table, none: &str) -> anyhow::Result<()> {
    if matches.get_flag(JSON) {
        return list.iter().try_for_each(Session::object);
    }
    if table.is_empty() {
        writeln!(io::stdout(), "{none}")?;
        return Ok(());
    }
    table.write(&mut io::stdout(), is_coloured())?;
    Ok(())
}

fn is_coloured() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !no_color
}

/// Shows one object: a line per field with its path, or with `--json` the object.
pub(crate) fn show_fields(matches: &ArgMatches, object: &Value) -> anyhow::Result<()> {
    if matches.get_flag(JSON) {
        return Session::object(object);
    }
    let mut table = Table::new(&[("FIELD", Side::Left), ("VALUE", Side::Left)]);
    add_fields(&mut table, "", object);
    table.write(&mut io::stdout(), is_coloured())?;
    Ok(())
}

fn add_fields(table: &mut Table, path: &str, value: &Value) {
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                add_fields(table, &below(name), value);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (place, value) in items.iter().enumerate() {
                add_fields(table, &below(&place.to_string()), value);
            }
        }
        Value::Array(items) => {
            let words: Vec<String> = items.iter().map(word).collect();
            table.row(vec![path.to_owned(), words.join(", ")]);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            table.row(vec![path.to_owned(), word(value)]);
        }
    }
}

/// Returns a value as a cell of a table.
pub(crate) fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Shows the result of a change: in words, or with `--json` the response.
pub(crate) fn done(matches: &ArgMatches, answer: &Value, words: &str) -> anyhow::Result<()> {
    if matches.get_flag(JSON) {
        return Session::object(answer);
    }
    writeln!(io::stdout(), "{words}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_without_its_scope() {
        for (peer, host) in [
            ("192.0.2.7:7070", "192.0.2.7:7070"),
            ("[fe80::1%3]:7070", "[fe80::1]:7070"),
        ] {
            assert_eq!(host_of(peer.parse().unwrap()), host);
        }
    }

    #[test]
    fn a_refusal_says_its_detail_or_all_that_there_is() {
        for (body, said) in [
            (
                &br#"{"title":"There is no such queue","detail":"there is no queue q"}"#[..],
                "there is no queue q",
            ),
            (b"of an older broker\n", "of an older broker"),
            (br#"{"error":"other"}"#, r#"{"error":"other"}"#),
            (b"", "404 Not Found"),
        ] {
            assert_eq!(refusal(StatusCode::NOT_FOUND, body), said);
        }
    }

    #[test]
    fn names_and_values_of_a_question_are_encoded() {
        let question = Question::new(Method::GET, "/v1/queues")
            .at("a/b c&d")
            .at("messages")
            .with("header.user-id", "jürgen");
        assert_eq!(
            question.target,
            "/v1/queues/a%2Fb%20c%26d/messages?header.user-id=j%C3%BCrgen"
        );
    }
}
