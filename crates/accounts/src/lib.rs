//! Users, tokens, rules, quotas and limits as stored state; logins; the audit as a stored topic.
//!
//! [`Directory`] decides; this stores and changes its contents, and checks proofs of callers. It must not
//! know groups, queues or protocols.
//!
//! Passwords are checked on threads that may block, few at a time, so that logins cannot take all processors.
//!
//! - `audit`: log lines about changes, logins and refusals; `trail`: the audit as a stored topic
//! - `background`: work on threads that give way
//! - `bearer`: tokens of an authorization server
//! - `changes`: users, tokens and rules that are made and deleted
//! - `copy`: everything as bytes, for another broker of the cluster
//! - `checks`: turns to check passwords and tokens
//! - `same_proofs`: logins with one password at once
//! - `quotas`: rates of users and clients; `limits`: numbers of things
//! - `topic_permissions`: permissions for the routing keys of exchanges
//! - `login`: logins by password, token and SCRAM; `newer_keys`: wishes for keys that are not known

mod audit;
mod background;
mod bearer;
mod changes;
mod checks;
mod copy;
mod limits;
mod login;
mod newer_keys;
mod quotas;
mod same_proofs;
mod topic_permissions;
mod trail;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stafett_access::{
    Caller, Change, Directory, Guessing, Rule, Tally, Token, TokenHash, TopicPermission, User, decode_limits,
    decode_quota,
};
use stafett_journal::{Journal, StateItem, StateUnreadable};
use stafett_model::Lock;
use stafett_store::spaces;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

pub use audit::AUDIT;
pub use bearer::{BearerError, BearerSettings};
pub use changes::{AccessError, NewToken};
pub use copy::BadCopy;
pub use login::{LoginError, Proof, ScramLogin};
pub use quotas::{ConnectionQuota, NewQuota};
pub use trail::AuditTrail;

use bearer::Bearer;
use checks::Checks;
use login::{Sessions, Verified};
use newer_keys::NewerKeys;
use same_proofs::SameProofs;

/// Users, tokens and rules of a broker.
#[derive(Debug)]
pub struct AccessControl {
    directory: Arc<Directory>,
    journal: Arc<dyn Journal>,
    guessing: Guessing,
    checks: Arc<Checks>,
    /// Those of tokens of an authorization server, which wait for no password.
    bearer_checks: Arc<Checks>,
    /// New verifiers of passwords.
    derivations: Arc<Checks>,
    /// One permit, held while something is changed.
    turn: Semaphore,
    verified: Lock<Verified>,
    tally: Tally,
    same: SameProofs,
    sessions: Lock<Sessions>,
    /// True if callers from other machines always need a name.
    remote_needs_login: AtomicBool,
    /// True if everything is a copy of another broker's: nothing is changed here.
    is_copy: AtomicBool,
    /// Generation of the directory, for those that wait for changes.
    changes: watch::Sender<u64>,
    /// Secret of this run.
    secret: [u8; 32],
    /// Hash of the secret of the broker's own programs.
    own: TokenHash,
    own_secret: String,
    /// Begin of the clock of quotas.
    started: Instant,
    /// Tokens of an authorization server, if there is one.
    bearer: Lock<Option<Arc<Bearer>>>,
    newer_keys: NewerKeys,
}

impl AccessControl {
    pub fn load(journal: &Arc<dyn Journal>) -> Result<Self, StateUnreadable> {
        let directory = Directory::default();
        // Row by row: all of them together would take as much memory again.
        let take = |change: Option<Change>| change.map(|change| directory.apply([change]));
        let tables: [spaces::VisitRow<'_>; 6] = [
            &mut |row| take(row_of(row, User::decode).map(Change::PutUser)),
            &mut |row| take(row_of(row, Token::decode).map(Change::PutToken)),
            &mut |row| take(row_of(row, Rule::decode).map(Change::SetRule)),
            &mut |row| {
                let quota = row_of(row, decode_quota);
                take(quota.map(|(entity, rates)| Change::SetQuota(entity, rates)))
            },
            &mut |row| {
                let limits = row_of(row, decode_limits);
                take(limits.map(|(of, limits)| Change::SetLimits(of, limits)))
            },
            &mut |row| {
                let permission = row_of(row, TopicPermission::decode);
                take(permission.map(Change::PutTopicPermission))
            },
        ];
        spaces::load_access(&**journal, tables)?;
        directory.on_denied(audit::refusal);
        let own_secret = format!("{}{}", login::OWN, changes::hex(&random()));
        Ok(Self {
            directory: Arc::new(directory),
            journal: Arc::clone(journal),
            guessing: Guessing::default(),
            checks: Checks::new(),
            bearer_checks: Checks::new(),
            derivations: Checks::new(),
            turn: Semaphore::new(1),
            verified: Lock::default(),
            tally: Tally::default(),
            same: SameProofs::default(),
            sessions: Lock::default(),
            remote_needs_login: AtomicBool::new(false),
            is_copy: AtomicBool::new(false),
            changes: watch::Sender::new(0),
            secret: random(),
            own: TokenHash::of(own_secret.as_bytes()),
            own_secret,
            started: Instant::now(),
            bearer: Lock::default(),
            newer_keys: NewerKeys::default(),
        })
    }

    /// Returns users, tokens and rules.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Returns the secret by which the broker's own programs log in, until the broker ends. It has all
    /// rights.
    pub fn own_secret(&self) -> &str {
        &self.own_secret
    }

    /// Returns true if callers need no name, because no user is an administrator.
    pub fn is_open(&self) -> bool {
        self.directory.is_open()
    }

    /// Requires a login of callers from other machines, also while no user is an administrator.
    pub fn require_remote_login(&self, is_required: bool) {
        self.remote_needs_login.store(is_required, Ordering::Relaxed);
    }

    /// Takes tokens of an authorization server from now on, or none.
    pub fn set_bearer(&self, settings: Option<&BearerSettings>) -> Result<(), BearerError> {
        let bearer = settings.map(Bearer::new).transpose()?;
        *self.bearer.lock() = bearer.map(Arc::new);
        self.newer_keys.on_set();
        Ok(())
    }

    /// Returns a receiver that is told when a token names an unknown key, at most every 10 s. While there is
    /// one, logins with such a token wait for [`Self::set_bearer`], 3 s at most.
    pub fn wishes_for_keys(&self) -> watch::Receiver<u64> {
        self.newer_keys.wishes()
    }

    /// Returns true if tokens of an authorization server are taken.
    pub fn takes_bearer(&self) -> bool {
        self.bearer.lock().is_some()
    }

    /// Returns a receiver that notices each change of users, tokens and rules from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Creates the caller of a connection before a login: the user of its certificate, if there is one.
    pub fn before_login(&self, certificate_user: Option<&str>, peer: IpAddr) -> Arc<Caller> {
        let trusted = certificate_user.and_then(|name| self.trusted(name, peer));
        trusted.unwrap_or_else(|| self.anonymous(peer))
    }

    /// Creates the caller of a connection without a login.
    pub fn anonymous(&self, peer: IpAddr) -> Arc<Caller> {
        if self.remote_needs_login.load(Ordering::Relaxed) && !peer.to_canonical().is_loopback() {
            // No user has an empty name: this caller may do nothing.
            return Arc::new(Caller::user(&self.directory, "", peer));
        }
        Arc::new(Caller::anonymous(&self.directory, peer))
    }

    /// Creates the caller of a user whose identity was proved elsewhere. `None` if there is no such user.
    pub fn trusted(&self, user: &str, peer: IpAddr) -> Option<Arc<Caller>> {
        self.directory.user(user)?;
        Some(Arc::new(Caller::user(&self.directory, user, peer)))
    }
}

fn row_of<T>(row: StateItem<'_>, decode: impl FnOnce(&[u8], &[u8]) -> Option<T>) -> Option<T> {
    match row {
        StateItem::Value { key, value } => decode(key, value),
        StateItem::Delta { .. } => None,
    }
}

/// Returns random bytes, 244 bits of them unpredictable.
fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    let (front, back) = bytes.split_at_mut(16);
    front.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    back.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    bytes
}
