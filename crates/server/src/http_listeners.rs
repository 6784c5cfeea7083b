//! The listeners of HTTP, which answer from the beginning to the end.

use std::net::SocketAddr;
use std::sync::Arc;

use stafett_http::{Access, HttpServer};
use stafett_net::{Listener, Overload};

use crate::config::tls::Edge;
use crate::console;
use crate::endpoints::{Endpoint, Place};
use crate::failure::Failure;
use crate::forward;
use crate::ingest;
use crate::limits;
use crate::overload;
use crate::serve::Process;

/// HTTP's listeners, with their servers.
pub(crate) struct HttpSockets {
    pub(crate) plain: Option<SocketAddr>,
    /// Listeners that do not accept yet: this node stands by.
    pub(crate) waiting: Vec<(Listener, Arc<HttpServer>)>,
}

impl HttpSockets {
    pub(crate) fn new(plain: Option<SocketAddr>) -> Self {
        Self {
            plain,
            waiting: Vec::new(),
        }
    }

    /// Serves listeners. In a cluster they accept nothing yet, and serve connections that are handed to them.
    pub(crate) fn add(&mut self, process: &Process, listeners: Vec<Listener>, server: HttpServer) {
        if process.member.is_none() {
            process.http.serve(listeners, server);
            return;
        }
        let server = Arc::new(server);
        process.http.open_doors(&listeners, &server);
        let waiting = listeners
            .into_iter()
            .map(|listener| (listener, Arc::clone(&server)));
        self.waiting.extend(waiting);
    }
}

impl Process {
    /// Starts the HTTP listener, which answers from the beginning to the end.
    pub(crate) async fn serve_http(&self) -> Result<HttpSockets, Failure> {
        let settings = &self.settings.http;
        let connections_max = limits::connections_max(settings.connections_max, self.descriptors);
        let endpoint = Endpoint {
            edge: Edge::Http,
            plain: Place {
                name: "http",
                key: "http.listen",
                address: settings.listen.as_deref(),
            },
            tls: Place {
                name: "http-tls",
                key: "http.tls_listen",
                address: settings.tls_listen.as_deref(),
            },
            takes_both: settings.listen_takes_tls,
            connections_max,
            overload: self.settings.shed.overload(settings.overload),
        };
        let opened = self.open(endpoint).await?;
        let access = Access {
            origins: settings.origins.clone(),
            hosts: settings.hosts.clone(),
        };
        let broker = &self.admin.broker;
        let open = stafett_http::router(self.health.clone(), Arc::clone(&self.registry));
        let live = stafett_live::router(self.live.clone());
        let metrics = self.management.metrics_router(access.clone());
        let guarded = stafett_admin::guard(broker.clone(), open.merge(live).merge(metrics));
        let across = |router| forward::layered(router, self.member.as_ref(), broker, &self.http.tasks);
        let router = guarded
            .merge(console::router(&self.settings.console))
            .merge(stafett_admin::router_across(
                self.admin.clone(),
                access.clone(),
                across,
                across,
            ))
            .merge(self.management.router(access.clone()))
            .merge(ingest::router(self)?);
        let router = console::guarded(&self.settings.console, router);
        let server = HttpServer::new(stafett_http::stamped(across(router))).refusing(overload::kind_of);
        let mut sockets = HttpSockets::new(opened.plain);
        sockets.add(self, opened.listeners, server);
        self.serve_management(&mut sockets, connections_max, access)
            .await?;
        self.serve_prometheus(connections_max).await?;
        self.serve_own(connections_max).await?;
        Ok(sockets)
    }

    /// Starts the listeners of RabbitMQ's HTTP API alone, if it has some.
    async fn serve_management(
        &self,
        sockets: &mut HttpSockets,
        connections_max: usize,
        access: Access,
    ) -> Result<(), Failure> {
        let amqp = &self.settings.amqp;
        let plain = ("management", "amqp.management", &amqp.management);
        let tls = ("management-tls", "amqp.tls_management", &amqp.tls_management);
        let opened = self.open(alone(plain, tls, connections_max)).await?;
        let router = self.management.router(access);
        let broker = &self.admin.broker;
        let router = forward::layered(router, self.member.as_ref(), broker, &self.http.tasks);
        let router = stafett_http::stamped(router);
        sockets.add(self, opened.listeners, HttpServer::new(router));
        Ok(())
    }

    /// Starts the listener with TLS of what each node answers itself, if it has one. It is not relayed.
    async fn serve_own(&self, connections_max: usize) -> Result<(), Failure> {
        let tls = ("own-tls", "http.tls_own", &self.settings.http.tls_own);
        let opened = self
            .open(alone(("own", "http.tls_own", &None), tls, connections_max))
            .await?;
        let router = stafett_http::router(self.health.clone(), Arc::clone(&self.registry));
        let router = stafett_http::stamped(stafett_admin::guard(self.admin.broker.clone(), router));
        self.http.serve(opened.listeners, HttpServer::new(router));
        Ok(())
    }

    /// Starts the listeners of metrics under RabbitMQ's names, if it has some.
    async fn serve_prometheus(&self, connections_max: usize) -> Result<(), Failure> {
        let amqp = &self.settings.amqp;
        let plain = ("prometheus", "amqp.prometheus", &amqp.prometheus);
        let tls = ("prometheus-tls", "amqp.tls_prometheus", &amqp.tls_prometheus);
        let opened = self.open(alone(plain, tls, connections_max)).await?;
        let metrics = self.management.prometheus_router();
        let router = stafett_http::stamped(stafett_admin::guard(self.admin.broker.clone(), metrics));
        self.http.serve(opened.listeners, HttpServer::new(router));
        Ok(())
    }
}

/// Returns the addresses of a part of HTTP that is served alone.
fn alone<'a>(
    plain: (&'static str, &'static str, &'a Option<String>),
    tls: (&'static str, &'static str, &'a Option<String>),
    connections_max: usize,
) -> Endpoint<'a> {
    let place = |(name, key, address): (_, _, &'a Option<String>)| Place {
        name,
        key,
        address: address.as_deref(),
    };
    Endpoint {
        edge: Edge::Http,
        plain: place(plain),
        tls: place(tls),
        takes_both: false,
        connections_max,
        overload: Overload::Backpressure,
    }
}
