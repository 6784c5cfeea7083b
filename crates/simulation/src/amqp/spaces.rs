//! A namespace that is created and deleted with everything in it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;

use stafett_model::Namespace;

use super::client::Client;
use super::copies::{Copies, Origin, Place};
use super::patience::{Patience, Times};
use super::{QUEUES, queue_definition};
use crate::random::Random;
use crate::server::{Server, pumped};
use crate::steps::Message;
use crate::world::{Broken, Finding, World};

const NAME: &str = "space";
/// Its only queue.
const QUEUE: u8 = 0;
const BYTES: u32 = 100;

/// Step of the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceStep {
    /// Publishes messages in it, and creates it if it is missing.
    Publish {
        count: u8,
    },
    Delete,
}

impl SpaceStep {
    pub fn draw(random: &mut Random) -> Self {
        match random.below(4) {
            0 => Self::Delete,
            _ => Self::Publish {
                count: u8::try_from(random.below(30)).unwrap_or(0),
            },
        }
    }
}

/// The namespace, as its client knows it.
#[derive(Debug, Clone)]
pub(super) struct Space {
    pub(super) client: Client,
    pub(super) copies: Copies,
    /// True if its deletion was not answered.
    is_going: bool,
}

impl Space {
    pub(super) fn new() -> Self {
        Self {
            client: Client::new_in(u8::MAX - 1, NAME),
            copies: Copies::default(),
            is_going: false,
        }
    }
}

impl World {
    pub async fn space_step(&mut self, server: &mut Server, step: SpaceStep) -> Result<(), Broken> {
        let SpaceStep::Publish { count } = step else {
            return self.delete_space(server).await;
        };
        let space = &mut self.amqp.space;
        if space.client.connect(server)? {
            space.client.stream = 1;
            for method in queue_definition(QUEUE).into_iter().take(1) {
                space.client.send(method);
            }
        }
        let message = Message {
            count,
            bytes: BYTES,
            priority: 0,
            is_persistent: true,
            patience: Patience::default(),
        };
        for _ in 0..count {
            let origin = Origin {
                stream: 0,
                priority: 0,
                times: Times::new(message.patience, 0),
            };
            let number = space.copies.add(&[QUEUE], true, origin);
            space.client.publish(number, QUEUE, message);
        }
        Ok(())
    }

    async fn delete_space(&mut self, server: &mut Server) -> Result<(), Broken> {
        let namespace = Namespace::new(NAME);
        if self.may_refuse
            || !server
                .broker
                .messaging()
                .exchanges()
                .namespaces()
                .contains(&namespace)
        {
            return Ok(());
        }
        // A connected client would create it again.
        let now_ms = self.now_ms();
        let space = &mut self.amqp.space;
        space.client.lose(&mut space.copies, now_ms);
        space.is_going = true;
        self.rest(server, 5).await?;
        let caller = server.broker.access().anonymous(Ipv4Addr::LOCALHOST.into());
        let deleting = server.broker.delete_namespace(&caller, &namespace);
        match self.wait_for(server, deleting).await? {
            Ok(()) => {
                self.forget_space(server)?;
                self.trace.note(|| "the namespace is deleted".to_owned());
                Ok(())
            }
            Err(_) if self.may_refuse || self.has_failed() => Ok(()),
            Err(why) => {
                // A failed journal is reported by the tick.
                self.tick(server).await?;
                Err(Finding(format!("a namespace is not deleted: {why}")).into())
            }
        }
    }

    /// Checks that nothing of it is left, and resets the model.
    fn forget_space(&mut self, server: &Server) -> Result<(), Finding> {
        let namespace = Namespace::new(NAME);
        let is_listed = server
            .broker
            .messaging()
            .exchanges()
            .namespaces()
            .contains(&namespace);
        let queue = QUEUES.get(usize::from(QUEUE)).copied().unwrap_or_default();
        if is_listed
            || server
                .broker
                .messaging()
                .queues()
                .get(&namespace, queue)
                .is_some()
        {
            return Err(Finding("a namespace is deleted and there".to_owned()));
        }
        let space = &mut self.amqp.space;
        space.is_going = false;
        space.copies.forget_all();
        Ok(())
    }

    /// Checks after a start that it exists with all confirmed messages, or is completely gone if it was being
    /// deleted.
    pub async fn check_space(&mut self, server: &mut Server) -> Result<(), Broken> {
        let namespace = Namespace::new(NAME);
        let is_listed = server
            .broker
            .messaging()
            .exchanges()
            .namespaces()
            .contains(&namespace);
        if self.amqp.space.is_going && !is_listed {
            return Ok(self.forget_space(server)?);
        }
        self.amqp.space.is_going = false;
        let name = QUEUES.get(usize::from(QUEUE)).copied().unwrap_or_default();
        let mut found: BTreeMap<(usize, Place), u32> = BTreeMap::new();
        let mut is_foreign = false;
        if let Some(queue) = server.broker.messaging().queues().get(&namespace, name) {
            let look = queue.peek(|_, message| {
                match crate::kafka::id_of(message.value()) {
                    Some((number, _)) => *found.entry((number, Place(QUEUE))).or_default() += 1,
                    None => is_foreign = true,
                }
                ControlFlow::Continue(())
            });
            if let Err(failed) = pumped(&server.journal, look).await {
                self.tick(server).await?;
                return Err(Finding(failed.0).into());
            }
        }
        let queue = server.broker.messaging().queues().get(&namespace, name);
        if queue.is_some() && !is_listed {
            return Err(Finding("a queue is there without its namespace".to_owned()).into());
        }
        if is_foreign {
            return Err(Finding("a namespace holds a foreign message".to_owned()).into());
        }
        let copies = &mut self.amqp.space.copies;
        let in_it = |Finding(what)| Finding(format!("in a namespace of its own: {what}"));
        copies.check(&found).map_err(in_it)?;
        copies.resolve(&found);
        Ok(())
    }
}
