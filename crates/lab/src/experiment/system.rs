//! The part of an experiment that is about the systems.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Protocol;

/// Settings of the systems.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SystemSettings {
    /// `memory`, `os`, `interval:N,T` or `sync`: mapped to each system's own switches.
    pub durability: String,
    pub stafett: Own,
    pub kafka: Own,
    pub rabbitmq: Own,
}

impl Default for SystemSettings {
    fn default() -> Self {
        Self {
            durability: "os".to_owned(),
            stafett: Own::default(),
            kafka: Own::default(),
            rabbitmq: Own::default(),
        }
    }
}

/// Settings of one system alone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Own {
    /// Any of its settings, by its own names.
    pub set: BTreeMap<String, serde_json::Value>,
    /// The heap of a system that runs on a Java machine, such as `1g`.
    pub heap: Option<String>,
    /// A system that is there already, `HOST:PORT`, instead of one that is started.
    pub address: Option<String>,
    /// Address at which that system speaks AMQP, if it speaks something else at `address`.
    pub amqp_address: Option<String>,
}

impl Own {
    /// Returns the address of a running system for a protocol.
    pub fn address(&self, protocol: Protocol) -> Option<&str> {
        let amqp = self
            .amqp_address
            .as_deref()
            .filter(|_| protocol == Protocol::Amqp);
        amqp.or(self.address.as_deref())
    }

    /// Returns true if the system runs already.
    pub fn is_there(&self) -> bool {
        self.address.is_some() || self.amqp_address.is_some()
    }
}

impl SystemSettings {
    /// Returns the settings of one system alone.
    pub fn own(&self, system: &str) -> Option<&Own> {
        match system {
            "stafett" => Some(&self.stafett),
            "kafka" => Some(&self.kafka),
            "rabbitmq" => Some(&self.rabbitmq),
            _ => None,
        }
    }
}
