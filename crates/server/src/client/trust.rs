//! TLS to a broker: which authorities are trusted, and the certificate of the client.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap::{Arg, ArgMatches, value_parser};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use stafett_net::tls::certificates::{certificates, key};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::kind::host_port;

/// Names the file of authorities if no flag does.
pub(crate) const CA_VARIABLE: &str = "STAFETT_CA";
const CA: &str = "ca";
const CERTIFICATE: &str = "client-certificate";
const KEY: &str = "client-key";

/// Returns the flags of commands that connect with TLS.
pub(crate) fn args() -> [Arg; 3] {
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .global(true)
            .display_order(102)
            .help(help)
    };
    [
        file(CA, "PEM file with the authorities of brokers with TLS")
            .env(CA_VARIABLE)
            .hide_env_values(true),
        file(
            CERTIFICATE,
            "PEM file with the certificate to show to a broker with TLS",
        )
        .requires(KEY),
        file(KEY, "PEM file with its key").requires(CERTIFICATE),
    ]
}

/// Returns the TLS that the flags describe.
pub(crate) fn connector(matches: &ArgMatches) -> anyhow::Result<TlsConnector> {
    config(matches).map(TlsConnector::from)
}

/// As [`connector`], for clients that connect by themselves.
pub(crate) fn config(matches: &ArgMatches) -> anyhow::Result<Arc<ClientConfig>> {
    let Some(ca) = matches.get_one::<PathBuf>(CA) else {
        bail!("TLS needs a file with the authorities that are trusted: --ca FILE, or {CA_VARIABLE}");
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots
            .add(certificate)
            .with_context(|| format!("{} has an authority that cannot be used", ca.display()))?;
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let pair = matches
        .get_one::<PathBuf>(CERTIFICATE)
        .zip(matches.get_one::<PathBuf>(KEY));
    let config = match pair {
        None => builder.with_no_client_auth(),
        Some((certificate, private)) => builder
            .with_client_auth_cert(certificates(certificate)?, key(private)?)
            .with_context(|| format!("{} cannot be used", certificate.display()))?,
    };
    Ok(Arc::new(config))
}

/// Performs the handshake with the broker at `HOST:PORT`.
pub(crate) async fn connect(
    connector: &TlsConnector,
    socket: TcpStream,
    address: &str,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let (host, _) = host_port(address).map_err(|expected| anyhow!(expected))?;
    let name = ServerName::try_from(host).with_context(|| format!("{address} has no name to check"))?;
    let connected = connector.connect(name, socket).await;
    connected.map_err(|error| {
        let is_plain =
            error.kind() == io::ErrorKind::InvalidData && error.to_string().contains("corrupt message");
        let error = anyhow!(error);
        if is_plain {
            error.context(format!(
                "{address} does not speak TLS: is that the port with TLS (--http)?"
            ))
        } else {
            error.context(format!("there is no TLS with {address}"))
        }
    })
}
