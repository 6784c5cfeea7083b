//! Permissions for the routing keys of exchanges that are set and removed.

use stafett_access::{Caller, Change, TopicPermission};

use super::{AccessControl, AccessError, audit};

/// Permissions that may be stored.
const PERMISSIONS_MAX: usize = 100_000;

impl AccessControl {
    /// Makes or replaces a permission. Returns true if it was not there.
    pub async fn put_topic_permission(
        &self,
        by: &Caller,
        permission: TopicPermission,
    ) -> Result<bool, AccessError> {
        let _turn = self.turn().await?;
        permission.check()?;
        if self.directory.user(&permission.user).is_none() {
            return Err(AccessError::NoSuchUser(permission.user.to_string()));
        }
        let known = self.directory.topic_permissions();
        let is_new = !known.iter().any(|other| other.key() == permission.key());
        if is_new && known.len() >= PERMISSIONS_MAX {
            return Err(AccessError::TooMany);
        }
        self.store(vec![Change::PutTopicPermission(permission.clone())])
            .await?;
        audit::topic_permission(by, "topic_permission.set", &permission);
        Ok(is_new)
    }

    /// Removes the permissions that `of` chooses. Returns their number.
    pub async fn delete_topic_permissions(
        &self,
        by: &Caller,
        of: impl Fn(&TopicPermission) -> bool,
    ) -> Result<usize, AccessError> {
        let _turn = self.turn().await?;
        let mut gone = self.directory.topic_permissions();
        gone.retain(of);
        let changes = gone.iter().cloned().map(Change::DeleteTopicPermission);
        self.store(changes.collect()).await?;
        for permission in &gone {
            audit::topic_permission(by, "topic_permission.deleted", permission);
        }
        Ok(gone.len())
    }
}
