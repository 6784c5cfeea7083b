//! Namespaces: isolated sets of queues and exchanges.

use std::fmt;
use std::sync::Arc;

use crate::broker::Broker;
use crate::definitions::{Changing, DeleteError};
use crate::exchanges::NamespaceError;
use crate::names::topic_prefix;

/// The name of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

/// Bytes of the longest name of a namespace, an exchange or a queue, and of a binding key.
pub const NAME_BYTES_MAX: usize = 255;

impl Namespace {
    /// The namespace that is always there.
    pub const DEFAULT: &'static str = "/";

    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Broker {
    /// Deletes a namespace with all that is in it: queues, topics that were declared there, exchanges and bindings.
    pub fn delete_namespace(self: &Arc<Self>, namespace: &Namespace) -> Changing<(), NamespaceError> {
        let (broker, namespace) = (Arc::clone(self), namespace.clone());
        self.change(async move {
            if namespace.as_str() == Namespace::DEFAULT {
                return Err(NamespaceError::IsDefault);
            }
            if !broker.exchanges.has_namespace(&namespace) {
                return Err(NamespaceError::NoSuchNamespace);
            }
            broker.queues.delete_all_in(&namespace).await?;
            broker.delete_topics_of(&namespace).await?;
            broker.exchanges.delete_namespace(&namespace)?.await?;
            // What was declared meanwhile by those who still use it.
            Ok(broker.queues.delete_all_in(&namespace).await?)
        })
    }

    async fn delete_topics_of(self: &Arc<Self>, namespace: &Namespace) -> Result<(), NamespaceError> {
        let prefix = topic_prefix(namespace);
        let topics = self.topics().all();
        let declared = topics
            .iter()
            .filter(|topic| topic.settings.declared.is_some() && topic.name.starts_with(&prefix));
        for topic in declared {
            match self.delete_topic(topic.id).await {
                Ok(()) | Err(DeleteError::NoSuchTopic) => {}
                Err(DeleteError::NotStored(why)) => return Err(why.into()),
            }
        }
        Ok(())
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

impl std::borrow::Borrow<str> for Namespace {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
