//! Brokers of Kafka's protocol that a sink reads from or writes into.

use stafett_kafka_client::{Client, Login, Options};

use crate::definition::{BrokerSpec, Definition, SourceSpec};
use crate::secret::Secret;
use crate::target::TargetError;
use crate::target::topic::failed;

/// Name of this program at brokers.
const CLIENT: &str = "stafett-sink";

/// Addresses of a broker, and how to connect and log in there.
#[derive(Debug, Clone, Default)]
pub struct Servers {
    pub addresses: Vec<String>,
    pub options: Options,
    /// Where the login of a definition stands: it is read at each connection.
    found_in: Option<Secret>,
    /// TLS of a definition, with the file of its authorities: it is read at each connection as well.
    tls: Option<Authorities>,
}

/// PEM file of trusted authorities. `None` is those of the system.
#[derive(Debug, Clone)]
struct Authorities(Option<String>);

impl Servers {
    pub fn new(addresses: Vec<String>, options: Options) -> Self {
        Self {
            addresses,
            options,
            found_in: None,
            tls: None,
        }
    }

    pub(crate) fn of(spec: &BrokerSpec) -> Self {
        Self {
            addresses: spec.servers.clone(),
            options: Options::default(),
            found_in: spec.login.clone(),
            tls: spec.is_tls.then(|| Authorities(spec.ca.clone())),
        }
    }

    fn login(&self) -> Result<Option<Login>, TargetError> {
        let Some(secret) = &self.found_in else {
            return Ok(self.options.login.clone());
        };
        let text = secret
            .resolve()
            .map_err(|why| TargetError::Stop(format!("{secret}: {why}")))?;
        let (user, password) = text
            .split_once(':')
            .ok_or_else(|| TargetError::Stop(format!("{secret} is not USER:PASSWORD")))?;
        Ok(Some(Login {
            user: user.to_owned(),
            password: password.to_owned(),
        }))
    }

    /// Connects to the first address that can be reached.
    pub async fn connect(&self) -> Result<Client, TargetError> {
        let tls = match &self.tls {
            Some(Authorities(ca)) => Some(stafett_trust::settings(ca.as_deref()).map_err(TargetError::Stop)?),
            None => self.options.tls.clone(),
        };
        let options = Options {
            client_id: CLIENT.to_owned(),
            login: self.login()?,
            tls,
            ..self.options.clone()
        };
        let client = Client::connect(&self.addresses, options).await;
        client.map_err(|why| failed(&why, None))
    }
}

/// Returns a client of the broker that has the records of a sink. `own` is that of the sink's own broker.
pub async fn source(definition: &Definition, own: Client) -> Result<Client, TargetError> {
    match &definition.source {
        // A queue is read by its session.
        SourceSpec::Own | SourceSpec::Queue(_) => Ok(own),
        SourceSpec::Broker(spec) => Servers::of(spec).connect().await,
    }
}
