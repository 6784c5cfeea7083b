//! Certificates for tests, made when a test begins.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use stafett_net::{ClientCertificates, ClientName, TlsSettings};

/// An authority, and the folder of the files that it makes.
pub(crate) struct Authority {
    pub(crate) folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self {
            folder,
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `NAME.pem` and `NAME.key`.
    pub(crate) fn issue(&self, name: &str, params: &CertificateParams) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// Issues a certificate of a server on loopback.
    pub(crate) fn issue_server(&self, name: &str) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        self.issue(name, &CertificateParams::new(names).unwrap());
    }

    pub(crate) fn issue_client(&self, name: &str) {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(name, &params);
    }

    /// Returns the settings of a server whose certificate was issued as `name`.
    pub(crate) fn settings(&self, name: &str) -> TlsSettings {
        TlsSettings {
            certificate: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
            clients: ClientCertificates::None,
            client_ca: Some(self.path("ca.pem")),
            client_name: ClientName::CommonName,
            version_min: stafett_net::tls::VersionMin::Tls12,
        }
    }

    /// Returns the configuration of a client that trusts this authority and shows the certificate `name`.
    pub(crate) fn client(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        name: Option<&Path>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match name {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let chain = CertificateDer::pem_file_iter(path.with_extension("pem")).unwrap();
                let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
                let key = PrivateKeyDer::from_pem_file(path.with_extension("key")).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }
}
