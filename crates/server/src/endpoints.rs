//! Listening sockets of the process.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use stafett_model::Lock;
use stafett_net::{BindError, Listener, ListenerSettings, Overload, Security};

use crate::announce;
use crate::config::tls::Edge;
use crate::config::{ConfigError, definition};
use crate::failure::Failure;
use crate::node::{self, ListenerFacts};
use crate::serve::Process;

/// Listening sockets by the names of their listeners: opened by the first run that needs them, shared by all
/// runs, closed when the process is about to end.
pub(crate) type Sockets = Lock<HashMap<&'static str, Listener>>;

/// One address, as in the settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// Name of the listener.
    pub(crate) name: &'static str,
    pub(crate) key: &'static str,
    /// `None`: it is not listened on.
    pub(crate) address: Option<&'a str>,
}

/// The addresses of a service: one for plain connections and one for TLS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoint<'a> {
    /// Part of the node whose certificate is shown.
    pub(crate) edge: Edge,
    pub(crate) plain: Place<'a>,
    pub(crate) tls: Place<'a>,
    /// The plain address takes TLS as well.
    pub(crate) takes_both: bool,
    pub(crate) connections_max: usize,
    pub(crate) overload: Overload,
}

/// Listeners of a service.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) plain: Option<SocketAddr>,
    pub(crate) tls: Option<SocketAddr>,
}

impl Process {
    /// Opens the listeners of a service. The one with TLS needs a certificate.
    pub(crate) async fn open(&self, endpoint: Endpoint<'_>) -> Result<Opened, Failure> {
        let tls = self.certificates.of(endpoint.edge);
        let mut opened = Opened::default();
        let of_plain = match &tls {
            Some(tls) if endpoint.takes_both => Security::Either(Arc::clone(tls)),
            _ => Security::Plain,
        };
        if let Some((listener, address)) = self.bind(endpoint.plain, &endpoint, of_plain).await? {
            opened.plain = Some(address);
            opened.listeners.push(listener);
        }
        let Some(tls) = tls else {
            return Ok(opened);
        };
        if let Some((listener, address)) = self.bind(endpoint.tls, &endpoint, Security::Tls(tls)).await? {
            opened.tls = Some(address);
            opened.listeners.push(listener);
        }
        Ok(opened)
    }

    /// Returns a listener on an address, and the address. Opens it unless an earlier run did, and checks that
    /// the address is allowed.
    async fn bind(
        &self,
        place: Place<'_>,
        endpoint: &Endpoint<'_>,
        security: Security,
    ) -> Result<Option<(Listener, SocketAddr)>, Failure> {
        let Place { name, key, address } = place;
        let Some(address) = address else {
            return Ok(None);
        };
        let overload = endpoint.overload.word();
        if let Some(listener) = self.sockets.lock().get(name) {
            let listener = listener.counted_in(&self.net);
            let address = listener.local_addr().context("a listener has no address")?;
            self.announce(name, address, overload);
            return Ok(Some((listener, address)));
        }
        let unresolved = |error: BindError| ConfigError::Unresolved {
            key,
            address: address.to_owned(),
            reason: error.to_string(),
        };
        let addresses = stafett_net::resolve(address).await.map_err(unresolved)?;
        self.settings.check_reach(key, &addresses)?;
        let settings = ListenerSettings {
            overload: endpoint.overload,
            ..ListenerSettings::new(name, endpoint.connections_max)
        };
        let listener = Listener::bind(&addresses, settings, &self.net).with_context(|| {
            let ways = definition::find(key)
                .map(definition::Definition::ways)
                .unwrap_or_default();
            format!("the {name} listener cannot start (another address: {ways})")
        })?;
        let listener = listener.secured(security);
        let address = listener.local_addr().context("a listener has no address")?;
        self.announce(name, address, overload);
        self.sockets.lock().insert(name, listener.clone());
        Ok(Some((listener, address)))
    }

    /// Prints the address of a listener, and lists it for clients.
    fn announce(&self, name: &'static str, address: SocketAddr, overload: &'static str) {
        announce::listening(name, address);
        let kafka = &self.settings.kafka;
        let of_cell = |advertised: Option<(String, u16)>| advertised.map(|(host, _)| (host, address.port()));
        let advertised = match name {
            "kafka" => kafka.advertised.clone(),
            "kafka-tls" => kafka.advertised_tls(Some(address)),
            name if name.starts_with("kafka-tls-cell") => of_cell(kafka.advertised_tls(Some(address))),
            name if name.starts_with("kafka-cell") => of_cell(kafka.advertised.clone()),
            _ => None,
        };
        self.node.add_listener(ListenerFacts {
            name,
            told: node::told(advertised.as_ref(), address),
            address,
            overload,
        });
    }
}
