//! Relations between settings, and values made of them.

use std::net::SocketAddr;

use stafett_net::{BudgetSettings, ByteBudget, Overload, SheddingSettings};

use super::definition::{self, Definition};
use super::error::ConfigError;
use super::settings::{Kafka, Settings, Shed};

impl Kafka {
    /// Returns the address of a listener of another cell, beside that of the first one.
    pub(crate) fn of_cell(&self, listen: Option<&str>, number: u16) -> Option<String> {
        let (host, _) = listen?.rsplit_once(':')?;
        let port = match u16::try_from(self.cells_port) {
            Ok(0) | Err(_) => 0,
            Ok(base) => base.saturating_add(number),
        };
        Some(format!("{host}:{port}"))
    }

    /// Returns the address that clients with TLS are told. `listening` is that of their listener.
    pub(crate) fn advertised_tls(&self, listening: Option<SocketAddr>) -> Option<(String, u16)> {
        let host_of_plain = || {
            let (host, port) = self.advertised.clone()?;
            Some((host, listening.map_or(port, |address| address.port())))
        };
        self.tls_advertised.clone().or_else(host_of_plain)
    }
}

impl Shed {
    /// Returns the behaviour of a listener.
    pub(crate) fn overload(&self, sheds: bool) -> Overload {
        if !sheds {
            return Overload::Backpressure;
        }
        Overload::Shed(SheddingSettings {
            waiting: self.waiting_ms,
            requests_max: self.requests_max,
        })
    }
}

impl Settings {
    /// Checks relations between settings.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.check_tls()?;
        let kafka = &self.kafka;
        let max = ByteBudget::new(self.budget()).reservation_max() as u64;
        if kafka.request_bytes_max >= max {
            return Err(ConfigError::RequestBeyondMemory {
                request: kafka.request_bytes_max,
                max,
            });
        }
        let groups = &self.groups;
        if groups.session_ms_min > groups.session_ms_max {
            return Err(ConfigError::SessionTimes {
                min: groups.session_ms_min,
                max: groups.session_ms_max,
            });
        }
        if groups.consumer_heartbeat_ms >= groups.consumer_session_ms {
            return Err(ConfigError::HeartbeatBeyondSession {
                heartbeat: groups.consumer_heartbeat_ms,
                session: groups.consumer_session_ms,
            });
        }
        if self.live.message_bytes_max >= max {
            return Err(ConfigError::LiveMessageBeyondMemory {
                message: self.live.message_bytes_max,
                max,
            });
        }
        if kafka.message_bytes_max > kafka.request_bytes_max {
            return Err(ConfigError::MessageBeyondRequest {
                message: kafka.message_bytes_max,
                request: kafka.request_bytes_max,
            });
        }
        Ok(())
    }

    /// Returns the settings whose values differ in `other`.
    pub(crate) fn differences(&self, other: &Self) -> Vec<&'static Definition> {
        let pairs = self.shown().into_iter().zip(other.shown());
        pairs
            .filter(|(one, other)| one != other)
            .filter_map(|((key, _), _)| definition::find(key))
            .collect()
    }

    /// Returns the bound on request bytes in memory.
    pub(crate) fn budget(&self) -> BudgetSettings {
        BudgetSettings {
            bytes: usize::try_from(self.request_memory_bytes).unwrap_or(usize::MAX),
        }
    }

    /// Refuses addresses reachable from other machines, unless that is allowed or a login is required. `key`
    /// is the setting of the addresses.
    pub(crate) fn check_reach(&self, key: &'static str, addresses: &[SocketAddr]) -> Result<(), ConfigError> {
        let open = addresses
            .iter()
            .find(|address| !address.ip().to_canonical().is_loopback());
        match open {
            Some(address) if !self.allow_unauthenticated && !self.require_login => {
                Err(ConfigError::Unauthenticated {
                    key,
                    address: address.to_string(),
                })
            }
            _ => Ok(()),
        }
    }
}
