//! Users, tokens and rules that are made and deleted: stored first, then in force.

use std::fmt;
use std::fmt::Write;

use stafett_access::{
    Actions, BadName, BadPattern, BadQuota, BadRule, Caller, Change, Limited, Limits, Rule, Subject, Token,
    TokenHash, User, Verifiers, encode_limits, encode_rates,
};
use stafett_journal::Frame;
use stafett_store::{NotStored, spaces, store_synced};

use super::{AccessControl, audit, random};

/// Users that may be stored.
const USERS_MAX: usize = 1_000_000;
/// Tokens that may be stored.
const TOKENS_MAX: usize = 1_000_000;
/// Bytes of the longest description of a token.
const DESCRIPTION_BYTES_MAX: usize = 1024;
/// Beginning of every token, so that searches for secrets find it.
const TOKEN_PREFIX: &str = "stafett_";

/// A change of access that is refused.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(transparent)]
    Name(#[from] BadName),
    #[error(transparent)]
    Rule(#[from] BadRule),
    #[error(transparent)]
    Pattern(#[from] BadPattern),
    #[error(transparent)]
    Quota(#[from] BadQuota),
    #[error("there is no user {0:?}")]
    NoSuchUser(String),
    #[error("there is no token with the id {0:?}")]
    NoSuchToken(String),
    /// The last administrator cannot go while others could then do everything without a name.
    #[error("{0:?} is the last administrator: the broker would be open again")]
    LastAdministrator(String),
    #[error("there are as many users or tokens as may be")]
    TooMany,
    #[error("a password has 1 to 1024 bytes")]
    Password,
    #[error("a description has at most {DESCRIPTION_BYTES_MAX} bytes")]
    Description,
    #[error("too many passwords are being set; try again")]
    Busy,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// A token that was made. Its text is shown once.
pub struct NewToken {
    pub text: String,
    pub token: Token,
}

impl fmt::Debug for NewToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "token {}", self.token.id)
    }
}

impl AccessControl {
    /// Derives the verifiers of a password, on a thread that may block.
    pub async fn verifiers(&self, password: String) -> Result<Verifiers, AccessError> {
        if password.is_empty() || password.len() > 1024 {
            return Err(AccessError::Password);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| AccessError::Busy)?;
        let _check = self.checks.acquire().await.map_err(|_| AccessError::Busy)?;
        let salt = random();
        let derived = tokio::task::spawn_blocking(move || {
            Verifiers::of_password(password.as_bytes(), salt.get(..16).unwrap_or_default())
        });
        derived.await.map_err(|_| AccessError::Busy)
    }

    /// Makes or replaces a user. Returns true if it was not there.
    pub async fn put_user(&self, by: &Caller, user: User) -> Result<bool, AccessError> {
        let _turn = self.turn().await?;
        let before = self.directory.user(&user.name);
        if before.is_none() && self.directory.user_count() >= USERS_MAX {
            return Err(AccessError::TooMany);
        }
        if !user.is_administrator() {
            self.check_keeps_administrator(&user.name)?;
        }
        let (name, tags) = (user.name.clone(), user.tags().collect::<Vec<_>>().join(","));
        self.store(vec![Change::PutUser(user)]).await?;
        audit::change(by, "user.set", &name, &tags);
        Ok(before.is_none())
    }

    /// Deletes a user with its rules and tokens.
    pub async fn delete_user(&self, by: &Caller, name: &str) -> Result<(), AccessError> {
        let _turn = self.turn().await?;
        if self.directory.user(name).is_none() {
            return Err(AccessError::NoSuchUser(name.to_owned()));
        }
        self.check_keeps_administrator(name)?;
        let mut changes = vec![Change::DeleteUser(name.into())];
        let tokens = self.directory.tokens();
        let own = tokens.iter().filter(|token| *token.user == *name);
        changes.extend(own.map(|token| Change::DeleteToken(token.hash)));
        let rules: Vec<_> = self
            .directory
            .with_rules(|rules| rules.of(&Subject::User(name.into())).collect());
        let actions = Actions::NONE;
        changes.extend(
            rules
                .into_iter()
                .map(|rule| Change::SetRule(Rule { actions, ..rule })),
        );
        changes.push(Change::SetLimits(Limited::User(name.into()), Limits::new()));
        let topics = self.directory.topic_permissions().into_iter();
        let own = topics.filter(|permission| *permission.user == *name);
        changes.extend(own.map(Change::DeleteTopicPermission));
        self.store(changes).await?;
        audit::change(by, "user.deleted", name, "");
        Ok(())
    }

    /// Makes a token of a user.
    pub async fn make_token(
        &self,
        by: &Caller,
        user: &str,
        description: &str,
        expires_ms: Option<i64>,
    ) -> Result<NewToken, AccessError> {
        let _turn = self.turn().await?;
        if self.directory.user(user).is_none() {
            return Err(AccessError::NoSuchUser(user.to_owned()));
        }
        if description.len() > DESCRIPTION_BYTES_MAX {
            return Err(AccessError::Description);
        }
        let tokens = self.directory.tokens();
        if tokens.len() >= TOKENS_MAX {
            return Err(AccessError::TooMany);
        }
        let text = TOKEN_PREFIX.to_owned() + &hex(&random());
        let token = Token {
            hash: TokenHash::of(text.as_bytes()),
            id: hex(random().get(..8).unwrap_or_default()).into(),
            user: user.into(),
            description: description.into(),
            expires_ms,
        };
        self.store(vec![Change::PutToken(token.clone())]).await?;
        audit::change(by, "token.made", &token.id, user);
        Ok(NewToken { text, token })
    }

    pub async fn delete_token(&self, by: &Caller, id: &str) -> Result<(), AccessError> {
        let _turn = self.turn().await?;
        let token = self.directory.tokens().into_iter().find(|token| *token.id == *id);
        let token = token.ok_or_else(|| AccessError::NoSuchToken(id.to_owned()))?;
        self.store(vec![Change::DeleteToken(token.hash)]).await?;
        audit::change(by, "token.deleted", id, &token.user);
        Ok(())
    }

    /// Adds the actions of rules to those that are there.
    pub async fn add_rules(&self, by: &Caller, rules: Vec<Rule>) -> Result<(), AccessError> {
        self.change_rules(by, rules, Actions::with).await
    }

    /// Takes the actions of rules away. Absent ones are passed over.
    pub async fn remove_rules(&self, by: &Caller, rules: Vec<Rule>) -> Result<(), AccessError> {
        self.change_rules(by, rules, Actions::without).await
    }

    /// Removes rules and adds others, at once.
    pub async fn replace_rules(
        &self,
        by: &Caller,
        before: Vec<Rule>,
        now: Vec<Rule>,
    ) -> Result<(), AccessError> {
        let _turn = self.turn().await?;
        let actions = Actions::NONE;
        let mut changes: Vec<Rule> = before.into_iter().map(|rule| Rule { actions, ..rule }).collect();
        for rule in now {
            self.directory.with_rules(|rules| rules.check(&rule))?;
            let same = changes.iter_mut().find(|known| known.key() == rule.key());
            match same {
                Some(known) => known.actions = known.actions.with(rule.actions),
                None => changes.push(rule),
            }
        }
        self.store_rules(by, changes).await
    }

    async fn change_rules(
        &self,
        by: &Caller,
        rules: Vec<Rule>,
        change: fn(Actions, Actions) -> Actions,
    ) -> Result<(), AccessError> {
        let _turn = self.turn().await?;
        let mut changed: Vec<Rule> = Vec::new();
        for rule in rules {
            let earlier = changed.iter_mut().find(|known| known.key() == rule.key());
            if let Some(earlier) = earlier {
                earlier.actions = change(earlier.actions, rule.actions);
                continue;
            }
            let before = self.directory.with_rules(|known| {
                known.check(&rule)?;
                Ok::<_, BadRule>(known.actions(&rule))
            })?;
            let actions = change(before.unwrap_or_default(), rule.actions);
            if before.unwrap_or_default() != actions {
                changed.push(Rule { actions, ..rule });
            }
        }
        self.store_rules(by, changed).await
    }

    fn check_keeps_administrator(&self, name: &str) -> Result<(), AccessError> {
        let is_administrator = |user: &User| user.is_administrator();
        let user = self.directory.user(name);
        if !user.is_some_and(|user| is_administrator(&user)) || self.directory.user_count() == 1 {
            return Ok(());
        }
        let users = self.directory.users();
        let mut others = users.iter().filter(|user| *user.name != *name);
        if others.any(|user| is_administrator(user)) {
            return Ok(());
        }
        Err(AccessError::LastAdministrator(name.to_owned()))
    }

    async fn store_rules(&self, by: &Caller, rules: Vec<Rule>) -> Result<(), AccessError> {
        self.store(rules.iter().cloned().map(Change::SetRule).collect())
            .await?;
        for rule in &rules {
            audit::rule(by, rule);
        }
        Ok(())
    }

    pub(super) async fn turn(&self) -> Result<tokio::sync::SemaphorePermit<'_>, AccessError> {
        let turn = self.turn.acquire().await;
        turn.map_err(|_| AccessError::NotStored(NotStored::Unknown))
    }

    pub(super) async fn store(&self, changes: Vec<Change>) -> Result<(), AccessError> {
        if changes.is_empty() {
            return Ok(());
        }
        store_synced(&*self.journal, changes.iter().map(frame)).await?;
        self.directory.apply(changes);
        self.changes.send_replace(self.directory.generation());
        Ok(())
    }
}

fn frame(change: &Change) -> Frame {
    match change {
        Change::PutUser(user) => spaces::USERS.put(user.name.as_bytes().to_vec(), user.value()),
        Change::DeleteUser(name) => spaces::USERS.delete(name.as_bytes().to_vec()),
        Change::PutToken(token) => spaces::TOKENS.put(token.hash.0.to_vec(), token.value()),
        Change::DeleteToken(hash) => spaces::TOKENS.delete(hash.0.to_vec()),
        Change::SetRule(rule) if rule.actions.is_empty() => spaces::RULES.delete(rule.key()),
        Change::SetRule(rule) => spaces::RULES.put(rule.key(), rule.value()),
        Change::SetQuota(entity, rates) if rates.is_empty() => spaces::QUOTAS.delete(entity.key()),
        Change::PutTopicPermission(permission) => {
            spaces::TOPIC_PERMISSIONS.put(permission.key(), permission.value())
        }
        Change::DeleteTopicPermission(permission) => spaces::TOPIC_PERMISSIONS.delete(permission.key()),
        Change::SetLimits(of, limits) if limits.is_empty() => spaces::LIMITS.delete(of.key()),
        Change::SetLimits(of, limits) => spaces::LIMITS.put(of.key(), encode_limits(limits)),
        Change::SetQuota(entity, rates) => spaces::QUOTAS.put(entity.key(), encode_rates(rates)),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
