//! Users, callers, actions and rules, as pure data and one decision function.
//!
//! This crate does no I/O, reads no clock and draws no random numbers: times, salts and nonces are passed in.
//! It must not know protocols, and it never keeps a password, only verifiers that a password can be checked
//! against.
//!
//! - `action`: actions, and sets of them
//! - `resource`: things that actions are done to
//! - `rule`: one rule: a permission or prohibition of actions on things
//! - `rules`: all rules, found by name, prefix or pattern
//! - `pattern`: patterns of names, bounded in time and memory
//! - `permission`: rules of one form, as patterns of a user in a namespace
//! - `user`: users, their tags and verifiers
//! - `verifier`: numbers that a password is checked against
//! - [`scram`]: the server's side of SCRAM (RFC 5802, RFC 7677)
//! - `token`: tokens that stand for a user
//! - `limit`: limits on the number of things of a namespace or a user
//! - `quota`: rates of users and clients
//! - `topic_permission`: permissions for the routing keys of an exchange
//! - `guessing`: delays for peers and users with failed logins
//! - `directory`: users, tokens and rules together, with a generation that tells of changes
//! - `caller`: the origin of a request; `decisions`: those that it remembers

mod action;
mod caller;
mod decisions;
mod directory;
mod guessing;
mod limit;
mod pattern;
mod permission;
mod quota;
mod resource;
mod rule;
mod rules;
mod scram;
mod token;
mod topic_permission;
mod user;
mod verifier;

pub use action::{Action, Actions};
pub use caller::{Caller, Denied, Who};
pub use directory::{Change, Directory};
pub use guessing::Guessing;
pub use limit::{Limit, Limited, Limits, Tallied, Tally, decode_limits, encode_limits};
pub use pattern::{BadPattern, Pattern};
pub use permission::Permission;
pub use quota::{
    BadQuota, Bucket, Entity, Meter, Part, Quotas, Rate, Rates, WAIT_MAX, check_rate, decode_quota,
    encode_rates,
};
pub use resource::{Kind, Kinds, Resource};
pub use rule::{Effect, Form, Rule, Subject};
pub use rules::{BadRule, PATTERNS_MAX, Rules};
pub use scram::{Exchange, First, MESSAGE_BYTES_MAX, ScramError};
pub use token::{Token, TokenHash};
pub use topic_permission::{KeyUse, TopicPermission};
pub use user::{ADMINISTRATOR, BadName, MANAGEMENT_TAGS, MONITORING, POLICYMAKER, SUPERUSER, User};
pub use verifier::{Hash, ITERATIONS, ITERATIONS_MAX, ITERATIONS_MIN, SaltedHash, ScramVerifier, Verifiers};
