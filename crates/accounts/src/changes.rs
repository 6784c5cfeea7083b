//! Users, tokens and rules that are made and deleted: stored first, then in force.

use std::collections::HashMap;
use std::fmt;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

use stafett_access::{
    Actions, BadName, BadPattern, BadQuota, BadRule, Caller, Change, Effect, Form, Limited, Limits, Rule,
    Subject, Token, TokenHash, User, Verifiers, encode_limits, encode_rates,
};
use stafett_journal::{Frame, Refusal};
use stafett_store::{FRAMES_MAX, NotStored, spaces, store_synced};

use super::checks::Checked;
use super::{AccessControl, audit, background, random};

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
        let salt = random();
        let derive = move || {
            let salt = salt.get(..16).unwrap_or_default();
            let outcome = background::run(|| Verifiers::of_password(password.as_bytes(), salt)).ok()?;
            let is_wrong = false;
            Some(Checked { outcome, is_wrong })
        };
        // Administrators wait for each other alone.
        let own = Ipv4Addr::LOCALHOST.into();
        let derived = self.derivations.run(own, derive).await;
        derived.map_err(|_| AccessError::Busy)
    }

    /// Makes or replaces a user. Returns true if it was not there.
    pub async fn put_user(&self, by: &Caller, user: User) -> Result<bool, AccessError> {
        let mut done = self.put_users(by, vec![user]).await;
        done.pop()
            .unwrap_or(Err(AccessError::NotStored(NotStored::Unknown)))
    }

    /// Makes a user. Returns false if it is there: it then stays as it is.
    pub async fn make_user(&self, by: &Caller, user: User) -> Result<bool, AccessError> {
        let _turn = self.turn().await?;
        if self.directory.user(&user.name).is_some() {
            return Ok(false);
        }
        self.check_user(&user, 0)?;
        self.store_users(by, vec![user]).await?;
        Ok(true)
    }

    /// Makes or replaces users, each by itself; many are stored together. True for each that was not there.
    pub async fn put_users(&self, by: &Caller, users: Vec<User>) -> Vec<Result<bool, AccessError>> {
        let Ok(_turn) = self.turn().await else {
            let closed = |_| Err(AccessError::NotStored(NotStored::Unknown));
            return users.into_iter().map(closed).collect();
        };
        let mut done = Vec::with_capacity(users.len());
        let (mut staged, mut stored) = (Vec::new(), 0);
        for user in users {
            let before = self.directory.user(&user.name);
            let resigns = !user.is_administrator() && before.is_some_and(|known| known.is_administrator());
            if resigns || staged.len() >= FRAMES_MAX {
                // The check looks at administrators that are stored.
                let stored_now = self.store_users(by, std::mem::take(&mut staged)).await;
                fail(done.iter_mut().skip(stored), stored_now);
                stored = done.len();
            }
            let checked = self.check_user(&user, staged.len());
            if checked.is_ok() {
                staged.push(user);
            }
            done.push(checked);
        }
        let stored_now = self.store_users(by, staged).await;
        fail(done.iter_mut().skip(stored), stored_now);
        done
    }

    /// Checks a user that is to be stored behind `staged` others. Returns true if it is not there.
    fn check_user(&self, user: &User, staged: usize) -> Result<bool, AccessError> {
        let is_new = self.directory.user(&user.name).is_none();
        if is_new && self.directory.user_count() + staged >= USERS_MAX {
            return Err(AccessError::TooMany);
        }
        if !user.is_administrator() {
            self.check_keeps_administrator(&user.name)?;
        }
        Ok(is_new)
    }

    async fn store_users(&self, by: &Caller, users: Vec<User>) -> Result<(), NotStored> {
        self.store(users.iter().cloned().map(Change::PutUser).collect())
            .await?;
        for user in &users {
            let tags = user.tags().collect::<Vec<_>>().join(",");
            audit::change(by, "user.set", &user.name, &tags);
        }
        Ok(())
    }

    /// Deletes a user with its rules and tokens. The user goes last: if storing stops in the middle of them,
    /// the deletion can be tried again, and no later user of the name has rules of it.
    pub async fn delete_user(&self, by: &Caller, name: &str) -> Result<(), AccessError> {
        let _turn = self.turn().await?;
        if self.directory.user(name).is_none() {
            return Err(AccessError::NoSuchUser(name.to_owned()));
        }
        self.check_keeps_administrator(name)?;
        let tokens = self.directory.tokens();
        let own = tokens.iter().filter(|token| *token.user == *name);
        let mut changes: Vec<_> = own.map(|token| Change::DeleteToken(token.hash)).collect();
        let mut rules: Vec<_> = self
            .directory
            .with_rules(|rules| rules.of(&Subject::User(name.into())).collect());
        // Denials stay until nothing is allowed.
        rules.sort_by_key(|rule: &Rule| rule.effect == Effect::Deny);
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
        changes.push(Change::DeleteUser(name.into()));
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

    /// Adds the actions of rules to those that are there, each by itself; many are stored together.
    pub async fn add_rules(&self, by: &Caller, rules: Vec<Rule>) -> Vec<Result<(), AccessError>> {
        let Ok(_turn) = self.turn().await else {
            let closed = |_| Err(AccessError::NotStored(NotStored::Unknown));
            return rules.into_iter().map(closed).collect();
        };
        let mut done = Vec::with_capacity(rules.len());
        let (mut planned, mut stored) = (PlannedRules::default(), 0);
        for rule in rules {
            // The number of patterns is checked against those that are stored.
            if rule.form == Form::Pattern || planned.rules.len() >= FRAMES_MAX {
                let stored_now = self.store_rules(by, std::mem::take(&mut planned)).await;
                fail(done.iter_mut().skip(stored), stored_now);
                stored = done.len();
            }
            let checked = self.directory.with_rules(|known| {
                known.check(&rule, planned.added)?;
                Ok(known.actions(&rule))
            });
            done.push(checked.map(|before| planned.change(rule, before, Actions::with)));
        }
        let stored_now = self.store_rules(by, planned).await;
        fail(done.iter_mut().skip(stored), stored_now);
        done
    }

    /// Takes the actions of rules away. Absent ones are passed over.
    pub async fn remove_rules(&self, by: &Caller, rules: Vec<Rule>) -> Result<(), AccessError> {
        let _turn = self.turn().await?;
        let mut planned = PlannedRules::default();
        for rule in rules {
            let before = self.directory.with_rules(|known| known.actions(&rule));
            planned.change(rule, before, Actions::without);
        }
        Ok(self.store_rules(by, planned).await?)
    }

    /// Removes rules and adds others, at once up to [`FRAMES_MAX`] of them.
    pub async fn replace_rules(
        &self,
        by: &Caller,
        before: Vec<Rule>,
        now: Vec<Rule>,
    ) -> Result<(), AccessError> {
        let _turn = self.turn().await?;
        let mut planned = PlannedRules::default();
        for rule in before {
            planned.change(rule, Some(Actions::ALL), |_, _| Actions::NONE);
        }
        for rule in now {
            self.directory
                .with_rules(|rules| rules.check(&rule, planned.added))?;
            planned.change(rule, None, Actions::with);
        }
        Ok(self.store_rules(by, planned).await?)
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

    async fn store_rules(&self, by: &Caller, planned: PlannedRules) -> Result<(), NotStored> {
        for rules in planned.rules.chunks(FRAMES_MAX) {
            self.store(rules.iter().cloned().map(Change::SetRule).collect())
                .await?;
            for rule in rules {
                audit::rule(by, rule);
            }
        }
        Ok(())
    }

    pub(super) async fn turn(&self) -> Result<tokio::sync::SemaphorePermit<'_>, AccessError> {
        let turn = self.turn.acquire().await;
        turn.map_err(|_| AccessError::NotStored(NotStored::Unknown))
    }

    /// Stores changes and puts them into force; a number of them at once.
    pub(super) async fn store(&self, changes: Vec<Change>) -> Result<(), NotStored> {
        if self.is_copy.load(Ordering::Acquire) {
            return Err(NotStored::Refused(Refusal::Closed));
        }
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let some: Vec<Change> = changes.by_ref().take(FRAMES_MAX).collect();
            store_synced(&*self.journal, some.iter().map(frame)).await?;
            self.directory.apply(some);
            self.changes.send_replace(self.directory.generation());
        }
        Ok(())
    }
}

/// Rules as they are to be stored, each once.
#[derive(Debug, Default)]
struct PlannedRules {
    rules: Vec<Rule>,
    /// Places by key.
    places: HashMap<Vec<u8>, usize>,
    /// Number of those that were not there.
    added: usize,
}

impl PlannedRules {
    /// Changes a rule whose actions were `before`.
    fn change(&mut self, rule: Rule, before: Option<Actions>, change: fn(Actions, Actions) -> Actions) {
        let key = rule.key();
        let known = self.places.get(&key).and_then(|at| self.rules.get_mut(*at));
        if let Some(known) = known {
            known.actions = change(known.actions, rule.actions);
            return;
        }
        let is_new = before.is_none();
        let before = before.unwrap_or_default();
        let actions = change(before, rule.actions);
        if before != actions {
            self.added += usize::from(is_new);
            self.places.insert(key, self.rules.len());
            self.rules.push(Rule { actions, ..rule });
        }
    }
}

/// Fails the changes that were not stored.
fn fail<'a, T: 'a>(
    done: impl Iterator<Item = &'a mut Result<T, AccessError>>,
    stored: Result<(), NotStored>,
) {
    if let Err(why) = stored {
        for one in done.filter(|one| one.is_ok()) {
            *one = Err(why.into());
        }
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
