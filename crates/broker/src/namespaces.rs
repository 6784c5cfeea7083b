//! Deletion of a namespace with everything in it.

use std::sync::Arc;

use stafett_access::{Caller, Limit, Limited, TopicPermission};
use stafett_messaging::exchanges::NamespaceError;
use stafett_model::Namespace;
use stafett_store::{Changing, NotStored};
use stafett_topics::DeleteError;
use stafett_topics::names::topic_prefix;

use crate::broker::Broker;

impl Broker {
    /// Deletes a namespace with its queues, the topics declared there, its exchanges and bindings. It is
    /// invisible at once; its contents are deleted in steps until the returned future resolves, or after a
    /// crash by the next start. Its limits and permissions go with it, in the name of the caller.
    pub fn delete_namespace(
        self: &Arc<Self>,
        by: &Arc<Caller>,
        namespace: &Namespace,
    ) -> Changing<(), NamespaceError> {
        let (broker, by, namespace) = (Arc::clone(self), Arc::clone(by), namespace.clone());
        self.catalog.changes().begin(async move {
            let (marked, closed) = broker.messaging.exchanges().close_namespace(&namespace)?;
            marked.await?;
            closed.forget().await?;
            let of = Limited::Namespace(namespace.as_str().into());
            let every = Limit::ALL.map(|limit| (limit, None));
            let forgotten = broker.set_limits(&by, of, &every).await;
            let in_it = |one: &TopicPermission| *one.namespace == *namespace.as_str();
            let permissions = broker.access().delete_topic_permissions(&by, in_it).await;
            if let Err(error) = forgotten.and_then(|()| permissions.map(drop)) {
                tracing::warn!(%error, %namespace, "limits and topic permissions of a namespace that was deleted stay");
            }
            Ok(broker.delete_rest_of(&namespace).await?)
        })
    }

    /// Completes deletions of namespaces that a crash interrupted.
    pub(crate) async fn finish_namespaces(&self) -> Result<(), NotStored> {
        for namespace in self.messaging.exchanges().closing() {
            self.delete_rest_of(&namespace).await?;
        }
        Ok(())
    }

    /// Deletes the queues and topics of a closed namespace, and then its mark.
    async fn delete_rest_of(&self, namespace: &Namespace) -> Result<(), NotStored> {
        self.messaging.queues().delete_all_in(namespace).await?;
        self.messaging.queues().forget_policies(namespace).await?;
        self.delete_topics_of(namespace).await?;
        self.messaging.exchanges().forget_namespace(namespace).await
    }

    async fn delete_topics_of(&self, namespace: &Namespace) -> Result<(), NotStored> {
        let prefix = topic_prefix(namespace);
        let topics = self.topics().all();
        let declared = topics
            .iter()
            .filter(|topic| topic.settings.declared.is_some() && topic.name.starts_with(&prefix));
        for topic in declared {
            match self.delete_topic_here(topic.id).await {
                Ok(()) | Err(DeleteError::NoSuchTopic) => {}
                Err(DeleteError::NotStored(why)) => return Err(why),
            }
        }
        Ok(())
    }
}
