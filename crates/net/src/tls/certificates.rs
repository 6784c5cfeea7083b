//! Certificates and keys from files, and the configuration of sessions made of them.
//!
//! A reload reads all files and checks all of it before anything changes. So a listener has either the new
//! configuration as a whole or the one before.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

use super::session::{self, ClientName};
use crate::lock::lock;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Whether clients show certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// They are not asked for one.
    #[default]
    None,
    /// One that a client shows has to be good.
    Optional,
    Required,
}

/// The oldest version that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VersionMin {
    #[default]
    Tls12,
    Tls13,
}

/// TLS settings of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// PEM file: the certificate, and those between it and the root.
    pub certificate: PathBuf,
    /// PEM file with the key.
    pub key: PathBuf,
    pub clients: ClientCertificates,
    /// PEM file: authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    pub client_name: ClientName,
    pub version_min: VersionMin,
}

/// Reasons why there can be no TLS with some settings.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is larger than a mebibyte", path.display())]
    TooLarge { path: PathBuf },
    #[error("{} is no PEM file: {reason}", path.display())]
    NotPem { path: PathBuf, reason: String },
    #[error("{} has no {what}", path.display())]
    Nothing { path: PathBuf, what: &'static str },
    #[error("client certificates need a file of authorities")]
    NoAuthorities,
    #[error("{} has an authority that cannot be used: {reason}", path.display())]
    Authority { path: PathBuf, reason: String },
    #[error("the certificate {} and the key {} do not belong together", certificate.display(), key.display())]
    OtherKey { certificate: PathBuf, key: PathBuf },
    #[error("the certificate {} cannot be used: {reason}", certificate.display())]
    Unusable { certificate: PathBuf, reason: String },
}

/// TLS of a listener. Its configuration can change while connections live.
#[derive(Debug)]
pub struct Tls(Mutex<State>);

#[derive(Debug)]
struct State {
    in_force: Loaded,
    /// Files as they were when they were read last, also if they were not good.
    read: Vec<Stamp>,
}

#[derive(Debug)]
struct Loaded {
    settings: TlsSettings,
    config: Arc<ServerConfig>,
    not_after_s: u64,
}

/// State of a file, by which a change is noticed.
type Stamp = Option<(u64, i64, i64, u64)>;

impl Tls {
    /// Reads the files of `settings`.
    pub fn load(settings: TlsSettings) -> Result<Arc<Self>, TlsError> {
        let read = stamps(&settings);
        let in_force = Loaded::read(settings)?;
        Ok(Arc::new(Self(Mutex::new(State { in_force, read }))))
    }

    /// Reads the files of `settings` again, for connections from now on. An error changes nothing.
    pub fn reload(&self, settings: TlsSettings) -> Result<(), TlsError> {
        let read = stamps(&settings);
        let loaded = Loaded::read(settings);
        let mut state = self.state();
        state.read = read;
        state.in_force = loaded?;
        Ok(())
    }

    /// Returns true if a file has changed since the last read.
    pub fn has_changed(&self) -> bool {
        let settings = self.settings();
        let stamps = stamps(&settings);
        stamps != self.state().read
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> TlsSettings {
        self.state().in_force.settings.clone()
    }

    /// Returns the end of the certificate's validity, in seconds since 1970: of the first that ends, of those
    /// that are sent.
    pub fn not_after_s(&self) -> u64 {
        self.state().in_force.not_after_s
    }

    /// Returns the configuration of the next session.
    pub(crate) fn config(&self) -> (Arc<ServerConfig>, ClientName) {
        let state = self.state();
        let loaded = &state.in_force;
        (Arc::clone(&loaded.config), loaded.settings.client_name)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl Loaded {
    fn read(settings: TlsSettings) -> Result<Self, TlsError> {
        let chain = certificates(&settings.certificate)?;
        let ends = chain.iter().filter_map(session::not_after_s);
        let not_after_s = ends.min().unwrap_or_default();
        let config = config(&settings, chain)?;
        Ok(Self {
            config: Arc::new(config),
            not_after_s,
            settings,
        })
    }
}

fn config(settings: &TlsSettings, chain: Vec<CertificateDer<'static>>) -> Result<ServerConfig, TlsError> {
    let unusable = |error: rustls::Error| {
        let certificate = settings.certificate.clone();
        if matches!(error, rustls::Error::InconsistentKeys(_)) {
            let key = settings.key.clone();
            return TlsError::OtherKey { certificate, key };
        }
        TlsError::Unusable {
            certificate,
            reason: error.to_string(),
        }
    };
    let key = key(&settings.key)?;
    let versions: &[_] = match settings.version_min {
        VersionMin::Tls12 => &[&TLS13, &TLS12],
        VersionMin::Tls13 => &[&TLS13],
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(unusable)?;
    let builder = match verifier(settings)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
    // Sessions are resumed by tickets: nothing is kept for clients that have left.
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(unusable)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

fn verifier(settings: &TlsSettings) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let is_optional = match settings.clients {
        ClientCertificates::None => return Ok(None),
        ClientCertificates::Optional => true,
        ClientCertificates::Required => false,
    };
    let path = settings.client_ca.as_ref().ok_or(TlsError::NoAuthorities)?;
    let bad = |reason: String| TlsError::Authority {
        path: path.clone(),
        reason,
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if is_optional {
        builder.allow_unauthenticated()
    } else {
        builder
    };
    builder.build().map(Some).map_err(|error| bad(error.to_string()))
}

/// Reads the certificates of a PEM file; there is at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| not_pem(path, &error))?;
    if found.is_empty() {
        return Err(TlsError::Nothing {
            path: path.to_owned(),
            what: "certificate",
        });
    }
    Ok(found)
}

/// Reads the first key of a PEM file.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| {
        if matches!(error, pem::Error::NoItemsFound) {
            return TlsError::Nothing {
                path: path.to_owned(),
                what: "key",
            };
        }
        not_pem(path, &error)
    })
}

fn not_pem(path: &Path, error: &pem::Error) -> TlsError {
    TlsError::NotPem {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    };
    if fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(TlsError::TooLarge {
            path: path.to_owned(),
        });
    }
    fs::read(path).map_err(unreadable)
}

fn stamps(settings: &TlsSettings) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let of = fs::metadata(path).ok()?;
        Some((of.ino(), of.mtime(), of.mtime_nsec(), of.len()))
    };
    let files = [
        Some(&settings.certificate),
        Some(&settings.key),
        settings.client_ca.as_ref(),
    ];
    files.into_iter().flatten().map(stamp).collect()
}
