//! Kinds of TLS settings, and the TLS settings of each listener made of them.

use std::path::PathBuf;

use stafett_net::tls::VersionMin;
use stafett_net::{ClientCertificates, ClientName, TlsSettings};

use super::error::ConfigError;
use super::kind::Kind;
use super::settings::Settings;

/// A file, or empty.
pub(crate) struct OptionalFile;

impl Kind for OptionalFile {
    type Value = Option<PathBuf>;
    const SHAPE: &'static str = "file or empty";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        Ok((!text.is_empty()).then(|| text.into()))
    }
}

/// Whether clients show certificates.
pub(crate) struct OnClientCertificates;

impl Kind for OnClientCertificates {
    type Value = ClientCertificates;
    const SHAPE: &'static str = "none, optional or required";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        match text {
            "none" => Ok(ClientCertificates::None),
            "optional" => Ok(ClientCertificates::Optional),
            "required" => Ok(ClientCertificates::Required),
            _ => Err(format!("expected {}", Self::SHAPE)),
        }
    }
}

/// Rule that maps a client certificate to a user.
pub(crate) struct UserOfCertificate;

impl Kind for UserOfCertificate {
    type Value = ClientName;
    const SHAPE: &'static str = "common_name, distinguished_name, dns, email or uri";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        let named = ClientName::ALL.into_iter().find(|rule| rule.word() == text);
        named.ok_or_else(|| format!("expected {}", Self::SHAPE))
    }
}

/// The oldest version of TLS.
pub(crate) struct OldestVersion;

impl Kind for OldestVersion {
    type Value = VersionMin;
    const SHAPE: &'static str = "1.2 or 1.3";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        match text {
            "1.2" => Ok(VersionMin::Tls12),
            "1.3" => Ok(VersionMin::Tls13),
            _ => Err(format!("expected {}", Self::SHAPE)),
        }
    }
}

/// Part of the node with certificates of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    Kafka,
    Amqp,
    Http,
}

impl Edge {
    pub(crate) const ALL: [Self; 3] = [Self::Kafka, Self::Amqp, Self::Http];

    /// Returns the name of its listener with TLS.
    pub(crate) fn listener(self) -> &'static str {
        match self {
            Self::Kafka => "kafka-tls",
            Self::Amqp => "amqp-tls",
            Self::Http => "http-tls",
        }
    }
}

impl Settings {
    /// Returns the TLS settings of a part of the node. `None` if it has no certificate.
    pub(crate) fn tls_of(&self, edge: Edge) -> Result<Option<TlsSettings>, ConfigError> {
        let (names, own) = match edge {
            Edge::Kafka => (
                ("kafka.tls_certificate", "kafka.tls_key"),
                (&self.kafka.tls_certificate, &self.kafka.tls_key),
            ),
            Edge::Amqp => (
                ("amqp.tls_certificate", "amqp.tls_key"),
                (&self.amqp.tls_certificate, &self.amqp.tls_key),
            ),
            Edge::Http => (
                ("http.tls_certificate", "http.tls_key"),
                (&self.http.tls_certificate, &self.http.tls_key),
            ),
        };
        let own = pair(names, own)?;
        let node = pair(
            ("tls.certificate", "tls.key"),
            (&self.tls.certificate, &self.tls.key),
        )?;
        let Some((certificate, key)) = own.or(node) else {
            return Ok(None);
        };
        if self.tls.clients != ClientCertificates::None && self.tls.client_ca.is_none() {
            return Err(ConfigError::NoClientAuthority);
        }
        Ok(Some(TlsSettings {
            certificate,
            key,
            clients: self.tls.clients,
            client_ca: self.tls.client_ca.clone(),
            client_name: self.tls.client_user,
            version_min: self.tls.version_min,
        }))
    }

    /// Checks the TLS settings, without reading files.
    pub(super) fn check_tls(&self) -> Result<(), ConfigError> {
        let (kafka, amqp, http) = (&self.kafka, &self.amqp, &self.http);
        for (edge, key, takes_tls) in [
            (Edge::Kafka, "kafka.listen_takes_tls", kafka.listen_takes_tls),
            (Edge::Amqp, "amqp.listen_takes_tls", amqp.listen_takes_tls),
            (Edge::Http, "http.listen_takes_tls", http.listen_takes_tls),
        ] {
            if self.tls_of(edge)?.is_none() && takes_tls {
                return Err(ConfigError::NoCertificate { key });
            }
        }
        // Without it nothing says how the node is.
        let has_tls = http.tls_listen.is_some() && self.tls_of(Edge::Http)?.is_some();
        if http.listen.is_none() && !has_tls {
            return Err(ConfigError::NoHttp);
        }
        Ok(())
    }
}

type Pair = Option<(PathBuf, PathBuf)>;

/// Returns a certificate and its key, which are given together.
fn pair(
    names: (&'static str, &'static str),
    files: (&Option<PathBuf>, &Option<PathBuf>),
) -> Result<Pair, ConfigError> {
    match files {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some((certificate.clone(), key.clone()))),
        (Some(_), None) => Err(ConfigError::HalfPair {
            given: names.0,
            missing: names.1,
        }),
        (None, Some(_)) => Err(ConfigError::HalfPair {
            given: names.1,
            missing: names.0,
        }),
    }
}
