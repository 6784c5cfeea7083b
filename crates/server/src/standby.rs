//! Parts of the process's run that only a cluster has: listeners while the node stands by, and the ways in
//! which it serves no longer.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stafett_http::State;
use stafett_net::{EVENTS, Listener, Security, Shutdown};
use tokio::time::{sleep, timeout};

use crate::cluster::{Member, Move, Relay};
use crate::core::Core;
use crate::failure::Failure;
use crate::front_ends::Bound;
use crate::http_listeners::HttpSockets;
use crate::listeners::Listeners;
use crate::serve::{Cause, DRAIN_MAX, END_MAX, End, HTTP_END_MAX, Process, TRACE_END_MAX};
use crate::signals::{Stop, StopSignals};
use crate::sinks::{END_MAX as SINKS_END_MAX, Supervisor};

/// Time for connections to finish work in progress, where another node waits to serve them.
const MOVE_DRAIN_MAX: Duration = Duration::from_secs(1);
/// Time for connections of a node that stands by, when the process ends.
const STANDBY_END_MAX: Duration = Duration::from_millis(200);

/// Time for a journal that is being opened, when the process ends.
const OPENING_END_MAX: Duration = Duration::from_secs(3);

/// Pause behind a claim that came to nothing.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Sockets of a node that stands by; none if the node is alone.
#[derive(Default)]
pub(crate) struct Standby {
    pub(crate) bound: Option<Bound>,
    listeners: Option<Listeners>,
}

fn relay(listeners: &Listeners, listener: &Listener, relay: Relay) {
    // TLS is the owner's.
    listeners.accept(listener.clone().secured(Security::Plain), Arc::new(relay));
}

impl Standby {
    /// Has connections that wait go to this node's own listeners.
    pub(crate) fn hand_over(&self) {
        if let Some(listeners) = &self.listeners {
            listeners.shared.shutdown.drain();
        }
    }

    /// Ends all connections.
    pub(crate) async fn end(self) {
        if let Some(listeners) = self.listeners {
            listeners.end(STANDBY_END_MAX, pending()).await;
        }
    }
}

impl Process {
    /// Opens the listeners of a node in a cluster: connections are relayed until it serves itself.
    pub(crate) async fn stand_by(&self, http: &HttpSockets) -> Result<Standby, Failure> {
        let Some(member) = &self.member else {
            self.node.health.set(State::Recovering);
            return Ok(Standby::default());
        };
        let bound = Bound::open(self).await?;
        member.join(self.node.addresses(), self.node.health.clone())?;
        let listeners = self.relaying(member, bound.listeners());
        for (listener, _) in &http.waiting {
            relay(&listeners, listener, Relay::new(member, listener).answering());
        }
        self.node.health.set(State::StandingBy);
        Ok(Standby {
            bound: Some(bound),
            listeners: Some(listeners),
        })
    }

    /// Opens the listeners of a cell behind the first one: connections are relayed to its owner until this
    /// node serves it.
    pub(crate) async fn stand_by_for_cell(&self, member: &Arc<Member>) -> Result<Standby, Failure> {
        let bound = Bound::open_cell(self, member.cell).await?;
        Ok(Standby {
            listeners: Some(self.relaying(member, bound.listeners())),
            bound: Some(bound),
        })
    }

    fn relaying<'a>(&self, member: &Arc<Member>, bound: impl Iterator<Item = &'a Listener>) -> Listeners {
        let listeners = Listeners::new(self.front_ends.shared.ending_with(Shutdown::new()), None);
        for listener in bound {
            relay(&listeners, listener, Relay::new(member, listener));
        }
        listeners
    }

    /// Begins to serve clients.
    pub(crate) fn begin(&self, http: HttpSockets, standby: &Standby, core: &Core) {
        for (listener, server) in http.waiting {
            self.http.accept(listener, server);
        }
        self.node.health.set(State::Ready);
        if let Some(member) = &self.member {
            member.give_copies(core.shared());
            member.on_serving();
        }
        standby.hand_over();
    }

    /// Returns the outcome of a run that could not begin to serve. In a cluster that may be due to a lease
    /// that was lost meanwhile.
    pub(crate) async fn not_opened(&self, failure: Failure, standby: Standby) -> Result<End, Failure> {
        let Some(member) = &self.member else {
            return Err(failure);
        };
        member.stand_by();
        member.on_released(None);
        standby.end().await;
        if member.has_lost() {
            tracing::warn!(%failure, "this node could not take the cell over");
            sleep(RETRY_PAUSE).await;
            return Ok(End::LetGo);
        }
        Err(failure)
    }

    /// Ends an opening. In a cluster the cell is let go, if it was claimed already.
    pub(crate) async fn end_opening(&self, opening: impl Future<Output = Result<Core, Failure>>) {
        let Some(member) = &self.member else { return };
        member.stopping.cancel();
        match timeout(OPENING_END_MAX, opening).await {
            Ok(Ok(core)) => core.close().await,
            Ok(Err(_)) => {}
            Err(_) => tracing::warn!("the journal is still being opened: the next owner waits for the lease"),
        }
        member.stand_by();
        member.on_released(None);
    }

    /// Waits for a stop.
    pub(crate) async fn told_to_stop(&self, signals: &mut StopSignals) -> Stop {
        let stop = signals.next().await;
        if let Some(member) = &self.member {
            tokio::select! {
                () = member.serve_out() => {}
                // A second signal is in a hurry.
                _ = signals.next() => {}
            }
        }
        tracing::info!(target: EVENTS, kind = "node.draining", by = stop.by, drain = ?stop.drain, "draining");
        stop
    }

    /// Waits for an order to let go of the cell.
    pub(crate) async fn ordered(&self) -> Move {
        let Some(member) = &self.member else {
            return pending().await;
        };
        let order = member.ordered().await;
        member.serve_out().await;
        order
    }

    /// Returns the time to drain. In a cluster there is none after a failure, as another node may serve
    /// already, and little if one is to.
    pub(crate) fn drain_max(&self, cause: &Cause) -> Duration {
        let usual = if self.member.is_some() {
            MOVE_DRAIN_MAX
        } else {
            DRAIN_MAX
        };
        match cause {
            Cause::Stop(stop) => stop.drain.unwrap_or(usual),
            Cause::Order(_) => MOVE_DRAIN_MAX,
            Cause::Failed(_) if self.member.is_some() => Duration::ZERO,
            Cause::Failed(_) => DRAIN_MAX,
        }
    }

    /// Returns the time after which the process ends by force.
    pub(crate) fn end_max(&self, cause: &Cause, drain_max: Duration) -> Duration {
        let rest = END_MAX.saturating_sub(DRAIN_MAX);
        match cause {
            // A database that is slow must not end a node that is to stand by.
            Cause::Failed(_) | Cause::Order(_) if self.member.is_some() => END_MAX,
            // Sinks have their time beside that of connections.
            Cause::Stop(_) if self.member.is_some() => SINKS_END_MAX + drain_max + rest,
            Cause::Stop(_) | Cause::Failed(_) | Cause::Order(_) => drain_max + rest,
        }
    }

    /// Ends connections of clients, and the sinks, which are a client of the front ends.
    pub(crate) async fn end_clients(
        &self,
        cause: &Cause,
        drain_max: Duration,
        sinks: Supervisor,
        hurry: impl Future<Output = ()>,
    ) {
        let is_member = self.member.is_some();
        if is_member && let Cause::Failed(_) = cause {
            // Another node may serve already. Records that sinks have gathered are read again.
            self.front_ends.end(drain_max, hurry).await;
            self.admin.broker.close();
            sinks.end().await;
            return;
        }
        let taken = sinks.end().await;
        let left = if is_member {
            drain_max
        } else {
            drain_max.saturating_sub(taken)
        };
        self.front_ends.end(left, hurry).await;
    }

    /// Notes that this node serves no longer.
    pub(crate) fn stop_serving(&self, cause: &Cause) {
        if let Cause::Stop(_) = cause {
            // No client is to wait for a process that ends.
            self.sockets.lock().clear();
        }
        if let Some(member) = &self.member {
            if let Cause::Order(order) = cause {
                member.reserve(*order);
            }
            member.stand_by();
        }
        self.node.health.set(State::Draining);
    }

    /// Returns the outcome of a run, once the journal is closed.
    pub(crate) async fn ended(
        &self,
        cause: Cause,
        deadline: Instant,
        standby: Standby,
    ) -> Result<End, Failure> {
        if let Some(member) = &self.member {
            let order = match cause {
                Cause::Order(order) => Some(order),
                Cause::Stop(_) | Cause::Failed(_) => None,
            };
            member.on_released(order);
            standby.end().await;
        }
        match cause {
            Cause::Order(_) => return Ok(End::LetGo),
            Cause::Failed(_) if self.member.as_deref().is_some_and(Member::has_lost) => {
                return Ok(End::LetGo);
            }
            Cause::Failed(reason) => return Ok(End::Failed { reason }),
            Cause::Stop(_) => {}
        }
        self.http.end(HTTP_END_MAX, pending()).await;
        if let Some(trace) = &self.trace {
            trace.flush(TRACE_END_MAX);
        }
        tracing::info!("stopped");
        Ok(End::Stopped { deadline })
    }
}
