//! One step of a run.

use super::{Broken, Death, World};
use crate::host;
use crate::kafka::KEPT;
use crate::server::Server;
use crate::steps::{Action, End, Step};

impl World {
    pub(super) async fn step(&mut self, server: &mut Server, step: Step) -> Result<(), Broken> {
        self.trace.note(|| format!("{step:?}"));
        self.pump_every = step.pump_every;
        match step.action {
            Action::Produce {
                producer,
                topic,
                partition,
                records,
                bytes,
                age,
            } => self.produce(server, producer, (topic, partition), records, bytes, age)?,
            Action::Leave { producer } => {
                if let Some(producer) = self.kafka.producers.get_mut(usize::from(producer)) {
                    producer.leave(&mut self.kafka.ledger);
                }
            }
            Action::Read { topic, partition } => self.check_log(server, topic, partition, None).await?,
            Action::Recreate { topic } => self.recreate_topic(server, topic).await?,
            Action::Publish {
                client,
                target,
                message,
            } => self.publish(server, client, target, message)?,
            Action::Consume { client, queue } => self.consume(server, client, queue)?,
            Action::Get { client, queue } => self.get(server, client, queue)?,
            Action::Settle { client, count, how } => self.settle(client, count, how),
            Action::Cancel { client } => self.cancel(client),
            Action::Pause { client, for_ms } => self.pause(client, for_ms),
            Action::Close { client, how, settles } => self.close(client, how, settles),
            Action::Group(step) => self.group_step(server, step).await?,
            Action::Share(step) => self.share_step(server, step).await?,
            Action::Transaction(step) => self.transaction_step(server, step).await?,
            Action::Move(step) => self.move_messages(server, step).await?,
            Action::Space(step) => self.space_step(server, step).await?,
            Action::Reader(step) => self.reader_step(server, step).await?,
            Action::Define(step) => self.definition_step(server, step)?,
            Action::View(step) => self.view_step(server, step).await?,
            Action::Tx(step) => self.tx_step(server, step).await?,
            Action::Stream(step) => self.stream_step(server, step).await?,
            Action::Live(step) => self.live_step(server, step).await?,
            Action::Mail(step) => self.mail_step(server, step).await?,
            Action::Job(trade, step) => self.job_step(server, trade, step),
            Action::Remove(removal) => self.remove(server, removal).await?,
            Action::Look => self.check_flights(server).await?,
            Action::Fault { after, fault } => self.arm(after, fault),
            Action::End(end) => return Err(self.end(server, end).await),
            Action::Lose { end, loss } => {
                if loss.is_of_settlements() && end != End::Stop {
                    self.let_some_die(server).await?;
                }
                self.loss = Some(loss);
                return Err(self.end(server, end).await);
            }
            Action::BackUp => self.back_up(server)?,
            Action::Restore { end } => self.start_on_backup(server, end).await?,
            Action::Repeat { producer, back } => self.repeat(server, producer, back)?,
            Action::Retain => self.retain(server),
            Action::Checkpoint => server.journal.checkpoint(),
            Action::Rewrite { covers, frees } => self.rewrite(server, covers, frees),
            Action::Jump { seconds } => {
                self.wall_offset_ms += seconds * 1000;
                self.amqp.copies.on_clock_set();
            }
            Action::Full { for_ms, used_up } => self.fill_disk(server, for_ms, used_up).await?,
            Action::Rest { seconds } => self.rest(server, u64::from(seconds) * 1000).await?,
        }
        self.look(server)?;
        self.rest(server, step.wait_ms.into()).await
    }

    /// Ends the program.
    pub async fn end(&mut self, server: &mut Server, end: End) -> Broken {
        Broken::Died(match end {
            End::Stop => match self.stop(server).await {
                Ok(()) => Death::Stopped,
                Err(broken) => return broken,
            },
            End::Kill => Death::Killed,
            End::Power(seed) => Death::Power(seed),
        })
    }

    /// Applies retention.
    fn retain(&mut self, server: &Server) {
        let kept = i64::try_from(KEPT.as_millis()).unwrap_or(i64::MAX);
        self.kafka.ledger.expire_before(host::wall_ms() - kept);
        server.journal.enforce_retention();
    }

    fn rewrite(&mut self, server: &Server, covers: bool, frees: bool) {
        if covers {
            server.journal.checkpoint();
        }
        self.kafka.ledger.on_rewrite(host::wall_ms());
        let rewritten = server.journal.rewrite();
        if frees && rewritten > 0 {
            server.journal.checkpoint();
        }
    }
}
