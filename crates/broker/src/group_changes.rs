//! Deletion of groups, with its effects on other parts.

use stafett_groups::{DeletionTicket, GroupError};
use stafett_store::NotStored;

use crate::broker::Broker;

impl Broker {
    /// Deletes a group without members, with its commits and its places in topics; durable when this returns.
    pub async fn delete_group(&self, name: &str) -> Result<(), GroupError> {
        let ticket = self.transactions.delete_group(name)?;
        Ok(self.finish_group_deletion(name, ticket).await?)
    }

    /// Waits for a deletion begun by [`stafett_transactions::Transactions::delete_group`], and deletes the
    /// group's places in topics.
    pub async fn finish_group_deletion(&self, name: &str, ticket: DeletionTicket) -> Result<(), NotStored> {
        ticket.durable().await?;
        self.shares.delete_group(name).await
    }
}
