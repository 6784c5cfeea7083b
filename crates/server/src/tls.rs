//! Certificates of the running process: read at the start, when the settings are read again, and when their
//! files change.

use std::sync::Arc;
use std::time::Duration;

use stafett_admin::node::FailedSetting;
use stafett_journal::disk::Clock;
use stafett_model::Lock;
use stafett_net::{EVENTS, NetMetrics, Tls, TlsError};
use tokio::time::Instant;

use crate::config::tls::Edge;
use crate::config::{ConfigError, Settings};

/// Time between two looks at the files.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A certificate that ends sooner is warned of, once a day.
const WARNED_BEFORE: Duration = Duration::from_hours(14 * 24);
const WARN_EVERY: Duration = Duration::from_hours(24);
/// Setting that stands for all files in answers.
pub(crate) const KEY: &str = "tls.certificate";

/// TLS of the parts of the node that have a certificate. Outlives a restart of the process's parts.
#[derive(Debug)]
pub(crate) struct Certificates {
    parts: Vec<(Edge, Arc<Tls>)>,
    warned: Lock<Option<Instant>>,
}

impl Certificates {
    pub(crate) fn load(settings: &Settings) -> Result<Self, ConfigError> {
        let mut parts = Vec::new();
        for edge in Edge::ALL {
            if let Some(tls) = settings.tls_of(edge)? {
                parts.push((edge, Tls::load(tls)?));
            }
        }
        Ok(Self {
            parts,
            warned: Lock::default(),
        })
    }

    /// Returns the TLS of a part, if it has a certificate.
    pub(crate) fn of(&self, edge: Edge) -> Option<Arc<Tls>> {
        let found = self.parts.iter().find(|(part, _)| *part == edge);
        found.map(|(_, tls)| Arc::clone(tls))
    }

    /// Reads all files as `settings` say. Returns the parts that keep their certificates.
    pub(crate) fn reload(&self, settings: &Settings, net: &NetMetrics) -> Vec<FailedSetting> {
        let mut failed = Vec::new();
        for (edge, tls) in &self.parts {
            let reloaded = match settings.tls_of(*edge) {
                Ok(Some(new)) => tls.reload(new).map_err(ConfigError::from),
                // A certificate that is not set any more stays until the next start.
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = reloaded {
                on_failed(*edge, &error, net);
                failed.push(FailedSetting {
                    key: KEY,
                    why: format!("{}: {error}", edge.listener()),
                });
            }
        }
        *self.warned.lock() = None;
        self.show(net);
        failed
    }

    /// Returns true if a file has changed since the last read.
    pub(crate) fn has_changed(&self) -> bool {
        self.parts.iter().any(|(_, tls)| tls.has_changed())
    }

    /// Returns true if a part has a certificate for the first time, or none any more: its listeners need a
    /// restart.
    pub(crate) fn differs_in_parts(&self, settings: &Settings) -> bool {
        let has = |edge| settings.tls_of(edge).is_ok_and(|tls| tls.is_some());
        Edge::ALL
            .into_iter()
            .any(|edge| has(edge) != self.of(edge).is_some())
    }

    /// Reads files that have changed, and shows when certificates end.
    pub(crate) fn look(&self, net: &NetMetrics) {
        for (edge, tls) in self.parts.iter().filter(|(_, tls)| tls.has_changed()) {
            let reloaded: Result<(), TlsError> = tls.reload(tls.settings());
            match reloaded {
                Ok(()) => {
                    *self.warned.lock() = None;
                    tracing::info!(target: EVENTS, kind = "node.certificate_changed", listener = edge.listener(),
                        "the certificate has changed");
                }
                Err(error) => on_failed(*edge, &error.into(), net),
            }
        }
        self.show(net);
    }

    fn show(&self, net: &NetMetrics) {
        let mut warned = self.warned.lock();
        let is_due = warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY);
        let now_s = u64::try_from(Clock::system().now_ms() / 1000).unwrap_or_default();
        for (edge, tls) in &self.parts {
            let ends_s = tls.not_after_s();
            net.set_certificate_expiry(edge.listener(), ends_s);
            let left = Duration::from_secs(ends_s.saturating_sub(now_s));
            if is_due && left < WARNED_BEFORE {
                *warned = Some(Instant::now());
                let days = left.as_secs() / 86_400;
                tracing::warn!(target: EVENTS, kind = "node.certificate_ends", listener = edge.listener(), days,
                    "the certificate ends soon, or has ended");
            }
        }
    }
}

fn on_failed(edge: Edge, error: &ConfigError, net: &NetMetrics) {
    let listener = edge.listener();
    net.certificate_failed(listener);
    tracing::error!(target: EVENTS, kind = "node.certificate_failed", listener, %error,
        "the new certificate is not good: the one before stays");
}
