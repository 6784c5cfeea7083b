//! Changes of users and rules that a request waits for.

use stafett_access::{Rule, User};
use stafett_broker::{AccessError, NewQuota};

use crate::call::Close;
use crate::context::RequestContext;
use crate::operation::{Step, Then};

pub(crate) type Changed = Result<(), AccessError>;

/// Change of users or rules, each by itself.
pub(crate) enum AccessOperation {
    AddRules(Vec<Rule>, Then<Vec<Changed>>),
    RemoveRules(Vec<Rule>, Then<Vec<Changed>>),
    PutUsers(Vec<User>, Then<Vec<Changed>>),
    /// Set quotas; if true, check them only.
    SetQuotas(Vec<NewQuota>, bool, Then<Changed>),
}

impl AccessOperation {
    pub(crate) async fn perform(self, context: &RequestContext) -> Result<Step, Close> {
        let (access, by) = (context.shared.broker.access(), context.caller());
        match self {
            Self::AddRules(rules, then) => then.on_done(context, access.add_rules(by, rules).await),
            Self::RemoveRules(rules, then) => {
                then.on_done(context, vec![access.remove_rules(by, rules).await])
            }
            Self::SetQuotas(quotas, check_only, then) => {
                then.on_done(context, access.set_quotas(by, quotas, check_only).await)
            }
            Self::PutUsers(users, then) => {
                let done = access.put_users(by, users).await.into_iter();
                then.on_done(context, done.map(|one| one.map(drop)).collect())
            }
        }
    }
}
