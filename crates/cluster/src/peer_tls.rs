//! TLS 1.3 between two nodes.
//!
//! The accepting node has a key and a certificate of its own for each start, which no authority knows. The
//! node that connects checks that the other side has the key of the certificate, and takes any certificate:
//! the proofs of both sides are over it ([`Binding`]), as in RFC 5929, section 4. A stranger between the two
//! nodes needs a certificate of its own, for which neither has a proof.

use std::fmt;
use std::io;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Name of all nodes, which no node checks.
const NAME: &str = "node.stafett";

/// The encryption that proofs are bound to: the SHA-256 of the accepting node's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding(pub(crate) [u8; 32]);

impl Binding {
    /// There is no encryption.
    pub const NONE: Self = Self([0; 32]);

    fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

/// TLS of one start of a node, both ways. Clones share it.
#[derive(Clone)]
pub struct NodeTls {
    accepting: Arc<ServerConfig>,
    connecting: TlsConnector,
    binding: Binding,
}

impl fmt::Debug for NodeTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeTls")
    }
}

impl NodeTls {
    /// Makes a key, and the certificate for it.
    pub fn new() -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let params = CertificateParams::new(vec![NAME.to_owned()]).map_err(io::Error::other)?;
        let certificate = params.self_signed(&key).map_err(io::Error::other)?;
        let certificate = certificate.der().clone();
        let binding = Binding::of(&certificate);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let connecting = connecting(&provider).map_err(io::Error::other)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let accepting = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .and_then(|builder| {
                let builder = builder.with_no_client_auth();
                builder.with_single_cert(vec![certificate], key.into())
            });
        let mut accepting = accepting.map_err(io::Error::other)?;
        // A resumed session would show no certificate.
        accepting.send_tls13_tickets = 0;
        Ok(Self {
            accepting: Arc::new(accepting),
            connecting: TlsConnector::from(Arc::new(connecting)),
            binding,
        })
    }

    /// Returns the settings of sessions that this node accepts.
    pub fn accepting(&self) -> &Arc<ServerConfig> {
        &self.accepting
    }

    /// Returns the binding of sessions that this node accepts.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Performs the handshake with another node.
    pub async fn connect<S>(&self, stream: S) -> io::Result<(TlsStream<S>, Binding)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        let stream = self.connecting.connect(name, stream).await?;
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let binding = certificate.map(Binding::of);
        let binding = binding.ok_or_else(|| io::Error::other("the other node shows no certificate"))?;
        Ok((stream, binding))
    }
}

fn connecting(provider: &Arc<CryptoProvider>) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider));
    let builder = builder.with_protocol_versions(&[&TLS13])?;
    let any = Arc::new(AnyCertificate(Arc::clone(provider)));
    let builder = builder.dangerous().with_custom_certificate_verifier(any);
    let mut config = builder.with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Takes any certificate whose key the other side has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
