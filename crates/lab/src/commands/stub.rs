//! `stafett lab stub`: a server that stores nothing, for the lab to measure clients against. Hidden: the lab
//! starts it.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, value_parser};
use stafett_lab::drivers::{amqp, stub};
use stafett_net::tls::{VersionMin, accept_alone};
use stafett_net::{ClientCertificates, ClientName, Stream, Tls, TlsError, TlsSettings};
use tokio::net::TcpStream;

use crate::failure::Failure;

/// Answer clients without storing anything
#[derive(Debug, Args)]
#[command(hide = true)]
pub(super) struct Stub {
    /// RabbitMQ's clients instead of Kafka's
    #[arg(long)]
    amqp: bool,
    /// Where clients connect
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: String,
    /// Every topic exists, and each partition seems to hold this number of records of 100 bytes
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(i64).range(0..))]
    records: Option<i64>,
    /// How many partitions every topic has, with --records
    #[arg(long, value_name = "NUMBER", default_value = "6", value_parser = value_parser!(u16).range(1..))]
    partitions: u16,
    /// Kafka's clients connect with TLS: a PEM file with a certificate and its key
    #[arg(long, value_name = "FILE", conflicts_with = "amqp")]
    tls: Option<PathBuf>,
}

impl Stub {
    pub(super) fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("no threads can be started")?;
        runtime.block_on(self.serve()).map_err(Failure::from)
    }

    async fn serve(self) -> anyhow::Result<()> {
        let unusable = || format!("{} cannot be listened on", self.listen);
        if self.amqp {
            let stub = amqp::stub::Stub::bind(&self.listen)
                .await
                .with_context(unusable)?;
            writeln!(io::stdout(), "amqp listening on {}", stub.address()?)?;
            return stub.serve().await.context("the stub ended");
        }
        let mut stub = stub::Stub::bind(&self.listen).await.with_context(unusable)?;
        if let Some(records) = self.records {
            stub.fill(self.partitions.into(), records)
                .context("no batch can be made")?;
        }
        let tls = self.tls.as_deref().map(tls).transpose()?;
        writeln!(io::stdout(), "kafka listening on {}", stub.address()?)?;
        let served = match tls {
            Some(tls) => {
                stub.serve_over(move |socket| encrypted(socket, Arc::clone(&tls)))
                    .await
            }
            None => stub.serve().await,
        };
        served.context("the stub ended")
    }
}

fn tls(file: &Path) -> Result<Arc<Tls>, TlsError> {
    Tls::load(TlsSettings {
        certificate: file.to_owned(),
        key: file.to_owned(),
        clients: ClientCertificates::None,
        client_ca: None,
        client_name: ClientName::default(),
        version_min: VersionMin::default(),
    })
}

async fn encrypted(socket: TcpStream, tls: Arc<Tls>) -> io::Result<Stream> {
    let stream = accept_alone(socket, &tls).await?;
    Ok(Stream::Tls(Box::new(stream)))
}

#[cfg(test)]
mod tests {
    use rcgen::CertifiedKey;
    use rustls::pki_types::CertificateDer;
    use rustls::{ClientConfig, RootCertStore};
    use stafett_kafka_client::{Client, Options};
    use stafett_kafka_wire::messages::{MetadataRequest, MetadataResponse};

    use super::*;

    fn trusting(certificate: CertificateDer<'static>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        config
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }

    #[tokio::test]
    async fn clients_connect_with_tls() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("both.pem");
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&file, cert.pem() + &signing_key.serialize_pem()).unwrap();
        let tls = tls(&file).unwrap();
        let stub = stub::Stub::bind("127.0.0.1:0").await.unwrap();
        let address = stub.address().unwrap().to_string();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        let _serving = tokio::spawn(stub.serve_over(move |socket| encrypted(socket, Arc::clone(&tls))));
        let options = Options {
            tls: Some(Arc::new(trusting(cert.der().clone()))),
            ..Options::default()
        };
        let client = Client::connect(&[address], options).await.unwrap();
        let (_, answer): (_, MetadataResponse) = client.call(&MetadataRequest::default()).await.unwrap();
        assert_eq!(answer.brokers.len(), 1);
    }
}
