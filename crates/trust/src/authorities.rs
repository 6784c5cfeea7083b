//! Whose certificates are good.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Files with the authorities of the system, on the usual systems.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Returns the TLS of clients that trust the authorities of a PEM file, or of the system.
pub fn connector(ca: Option<&str>) -> Result<TlsConnector, String> {
    settings(ca).map(TlsConnector::from)
}

/// Returns the settings of clients that trust the authorities of a PEM file, or of the system.
pub fn settings(ca: Option<&str>) -> Result<Arc<ClientConfig>, String> {
    let system = || SYSTEM.into_iter().find(|path| Path::new(path).exists());
    let path = ca
        .or_else(system)
        .ok_or("the system has no authorities that are trusted: name a file, ca = PATH")?;
    let found = CertificateDer::pem_file_iter(path).map_err(|why| format!("{path}: {why}"))?;
    let mut roots = RootCertStore::empty();
    for certificate in found {
        let certificate = certificate.map_err(|why| format!("{path}: {why}"))?;
        // A system has authorities that no client of today can use.
        if let (Err(why), Some(_)) = (roots.add(certificate), ca) {
            return Err(format!("{path}: {why}"));
        }
    }
    if roots.is_empty() {
        return Err(format!("{path} has no authorities"));
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.map_err(|why| why.to_string())?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

/// Performs the handshake with a host of this name.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    connector: &TlsConnector,
    stream: S,
    host: &str,
) -> io::Result<TlsStream<S>> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{host} is no name to check")))?;
    connector.connect(name, stream).await
}
