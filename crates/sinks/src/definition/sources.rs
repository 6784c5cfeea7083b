//! Sources: topics of the sink's own broker, or of another one.

use toml::Value;

use super::DefinitionError;
use crate::fields::Fields;
use crate::secret::Secret;

/// Origin of the records of a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSpec {
    /// Topics of the broker that the sink belongs to.
    Own,
    /// Topics of another broker, over Kafka's protocol. A group of that broker shares the partitions.
    Broker(BrokerSpec),
}

/// Another broker of Kafka's protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSpec {
    /// `HOST:PORT`.
    pub servers: Vec<String>,
    /// `USER:PASSWORD`, for SASL PLAIN.
    pub login: Option<Secret>,
}

pub(super) fn read(fields: &mut Fields, from: &[String]) -> Result<SourceSpec, DefinitionError> {
    if let Some(queue) = from.iter().find(|topic| topic.starts_with("queue:")) {
        let why = format!("{queue}: sinks read topics; queues are not built in yet");
        return Err(fields.bad("from", why));
    }
    let mut source = fields.below("source")?;
    let broker = broker_of(&mut source, "kafka")?;
    source.end()?;
    Ok(broker.map_or(SourceSpec::Own, SourceSpec::Broker))
}

/// Reads `NAME = ["HOST:PORT"]` and `login`.
pub(super) fn broker_of(fields: &mut Fields, name: &str) -> Result<Option<BrokerSpec>, DefinitionError> {
    let why = "it has to be a list of HOST:PORT";
    let servers = match fields.take(name) {
        None => return Ok(None),
        Some(Value::String(server)) => vec![server],
        Some(Value::Array(servers)) => {
            let texts = servers.iter().map(|server| server.as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>().ok_or_else(|| fields.bad(name, why))?
        }
        Some(_) => return Err(fields.bad(name, why)),
    };
    let is_server = |server: &String| {
        let port = server.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        matches!(port, Some(Ok(_))) && !server.contains('@') && !server.contains("//")
    };
    if servers.is_empty() || !servers.iter().all(is_server) {
        return Err(fields.bad(name, why));
    }
    let login = login(fields, "login")?;
    Ok(Some(BrokerSpec { servers, login }))
}

/// Reads a secret, which may not stand in the definition itself.
pub(super) fn login(fields: &mut Fields, name: &str) -> Result<Option<Secret>, DefinitionError> {
    let Some(text) = fields.text(name)? else {
        return Ok(None);
    };
    let secret = Secret::parse(&text);
    if secret.is_plain() {
        return Err(fields.bad(name, "it is a secret: write env:NAME or file:PATH, and keep it there"));
    }
    Ok(Some(secret))
}
