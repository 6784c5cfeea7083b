//! Steps of the client, and comparisons of the queue with its knowledge.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use stafett_delivery::{LeaseId, SearchBounds, SearchOrder};
use stafett_messaging::queues::{Acknowledge, Declare, Narrow, Queue, QueueSettings, Receive, SettleLeases};
use stafett_model::{Namespace, StoredMessage};

use super::{
    Answer, Asked, CLASS, LEASE_MS, MailStep, NOTICED_MS, PRIORITY_MAX, QUEUE, SETTLED_MAX, Taking, WAIT_MS,
    leave, number_of,
};
use crate::server::{Server, pumped};
use crate::world::{Broken, Finding, World};

impl World {
    pub async fn mail_step(&mut self, server: &mut Server, step: MailStep) -> Result<(), Broken> {
        let Some(queue) = self.mail.queue.clone() else {
            return Ok(());
        };
        let at_ms = self.now_ms();
        let mail = &mut self.mail;
        match step {
            MailStep::Send { count, bytes } => {
                let request = mail.parcels.add(count.into(), bytes.into());
                mail.send(server, request);
            }
            MailStep::Again { back } => {
                if let Some(request) = mail.parcels.last_request(back.into()) {
                    mail.send(server, request);
                }
            }
            MailStep::Receive {
                count,
                class,
                oldest,
                wait_ms,
                how,
            } => {
                let asked = Asked::Receive {
                    class,
                    count,
                    how,
                    at_ms,
                };
                let work = receive(queue, class, (count.into(), oldest, wait_ms), how);
                mail.pending.push((asked, Box::pin(work)));
            }
            MailStep::Settle { count, what, stored } => {
                let leases = mail.parcels.take_leases(usize::from(count).min(SETTLED_MAX));
                let held = leases.iter().map(|(number, _, until_ms)| (*number, *until_ms));
                let asked = Asked::Settle {
                    held: held.collect(),
                    what,
                    stored,
                    at_ms,
                };
                let leases = leases.into_iter().map(|(_, lease, _)| (lease, what)).collect();
                let request = SettleLeases { leases, stored };
                let work = async move { Answer::Settled(queue.settle_leases(request).await) };
                mail.pending.push((asked, Box::pin(work)));
            }
            MailStep::Extend => {
                let leases = mail.parcels.leases();
                let extensions: Vec<(LeaseId, u64)> =
                    leases.iter().map(|(_, lease)| (*lease, LEASE_MS)).collect();
                let known = queue.extend_leases(&extensions);
                for ((number, _), is_known) in leases.into_iter().zip(known) {
                    let said = mail.parcels.on_extended(number, is_known, at_ms, LEASE_MS);
                    said.map_err(|what| Finding(format!("over HTTP: {what}")))?;
                }
            }
            MailStep::Leave => {
                for (asked, work) in std::mem::take(&mut mail.pending) {
                    drop(work);
                    leave(&mut mail.parcels, &asked);
                }
            }
            MailStep::Look => self.look_at_mail(server, &queue).await?,
        }
        Ok(())
    }

    /// Waits until all leases are over, and compares the queue with its knowledge.
    async fn look_at_mail(&mut self, server: &mut Server, queue: &Arc<Queue>) -> Result<(), Broken> {
        if self.may_refuse {
            return Ok(());
        }
        self.rest(server, WAIT_MS + LEASE_MS + NOTICED_MS).await?;
        if self.may_refuse || !self.mail.pending.is_empty() {
            return Ok(());
        }
        let counts = queue.counts();
        if counts.in_flight > 0 {
            let what = format!("all leases are over, and there is still something in flight: {counts:?}");
            return Err(Finding(what).into());
        }
        self.mail.parcels.end_leases();
        self.compare_mail(server, queue).await
    }

    /// Declares the queue after a start, and compares it with the messages that the client knows.
    pub async fn check_mail(&mut self, server: &mut Server) -> Result<(), Broken> {
        let declare = Declare {
            durable: true,
            settings: QueueSettings {
                priority_max: PRIORITY_MAX,
                ..QueueSettings::default()
            },
            ..Declare::default()
        };
        let queues = server.broker.messaging().queues();
        let declaring = queues.declare(&Namespace::default(), QUEUE, declare);
        let Ok(queue) = self.wait_for(server, declaring).await? else {
            self.tick(server).await?;
            if self.may_refuse || self.has_failed() {
                return Ok(());
            }
            return Err(Finding("the queue for HTTP cannot be declared".to_owned()).into());
        };
        self.compare_mail(server, &queue).await?;
        self.mail.queue = Some(queue);
        Ok(())
    }

    async fn compare_mail(&mut self, server: &mut Server, queue: &Arc<Queue>) -> Result<(), Broken> {
        let mut found: BTreeMap<usize, u32> = BTreeMap::new();
        let look = queue.peek(|_, message| {
            if let Some(number) = number_of(message) {
                *found.entry(number).or_default() += 1;
            }
            ControlFlow::Continue(())
        });
        if let Err(failed) = pumped(&server.journal, look).await {
            self.tick(server).await?;
            return Err(Finding(failed.0).into());
        }
        self.tick(server).await?;
        let compared = self.mail.parcels.compare(&found);
        compared.map_err(|what| Finding(format!("over HTTP: {what}")).into())
    }
}

/// Receives messages of a class, or of all.
async fn receive(
    queue: Arc<Queue>,
    class: Option<u8>,
    (count, oldest, wait_ms): (usize, bool, u64),
    how: Taking,
) -> Answer {
    let wanted = class.map(|class| [b'0' + class]);
    let is_wanted = move |message: &StoredMessage| {
        message.header(CLASS.as_bytes()).flatten() == wanted.as_ref().map(<[u8; 1]>::as_slice)
    };
    let request = Receive {
        count,
        bytes_max: usize::MAX,
        order: if oldest {
            SearchOrder::Oldest
        } else {
            SearchOrder::Priority
        },
        wanted: class.is_some().then_some(&is_wanted as _),
        narrow: Narrow {
            priorities: None,
            header: wanted.as_ref().map(|class| (CLASS, class.as_slice())),
        },
        bounds: SearchBounds {
            messages: 100,
            bytes: usize::MAX,
        },
        after: Vec::new(),
        wait: Duration::from_millis(wait_ms),
        ack: match how {
            Taking::Soon => Acknowledge::Soon,
            Taking::Stored => Acknowledge::Stored,
            Taking::Lease { ms } => Acknowledge::Lease { ms },
        },
    };
    Answer::Received(queue.receive(request).await)
}
