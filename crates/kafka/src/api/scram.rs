//! `DescribeUserScramCredentials`, `AlterUserScramCredentials`: users' verifiers.
//!
//! As in Kafka, the client salts the password. A user that has lost its last verifier cannot log in, and
//! stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stafett_access::{Hash, ITERATIONS_MAX, ITERATIONS_MIN, ScramVerifier, User};
use stafett_kafka_wire::messages::alter_user_scram_credentials::{
    AlterUserScramCredentialsResult, ScramCredentialUpsertion,
};
use stafett_kafka_wire::messages::describe_user_scram_credentials::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use stafett_kafka_wire::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use crate::access_operation::{AccessOperation, Changed};
use crate::call::Call;
use crate::context::{KafkaContext, RequestContext};
use crate::operation::{Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};

/// Kafka's numbers of mechanisms.
const MECHANISMS: [(i8, Hash); 2] = [(1, Hash::Sha256), (2, Hash::Sha512)];
/// Users of an answer that names none.
const LISTED_MAX: usize = 10_000;

pub(super) fn describe_user_scram_credentials(
    context: &RequestContext,
    call: Call,
    body: Decoder,
) -> HandlerResult {
    let request: DescribeUserScramCredentialsRequest = call.read(body)?;
    let mut times: BTreeMap<Str, usize> = BTreeMap::new();
    let directory = context.shared.broker.access().directory();
    let named = request.users.unwrap_or_default();
    if named.is_empty() {
        let users = directory.users_after("", LISTED_MAX);
        let with = users.iter().filter(|user| !infos(user).is_empty());
        times.extend(with.map(|user| (Str::copy_from(&user.name), 1)));
    }
    for user in named {
        *times.entry(user.name).or_default() += 1;
    }
    let results = times.into_iter().map(|(user, times)| {
        let infos = directory.user(&user).map(|user| infos(&user)).unwrap_or_default();
        let (code, message) = if times > 1 {
            let message = format!(
                "Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            );
            (ErrorCode::DuplicateResource, Some(message))
        } else if infos.is_empty() {
            let message = format!("Attempt to describe a user credential that does not exist: {user}");
            (ErrorCode::ResourceNotFound, Some(message))
        } else {
            (ErrorCode::None, None)
        };
        DescribeUserScramCredentialsResult {
            user,
            error_code: context.shared.metrics.error(call.api, code),
            credential_infos: if code == ErrorCode::None {
                infos
            } else {
                Vec::new()
            },
            error_message: message.map(Into::into),
        }
    });
    let response = DescribeUserScramCredentialsResponse {
        error_message: Some(Str::default()),
        results: results.collect(),
        ..DescribeUserScramCredentialsResponse::default()
    };
    Ok(call
        .answer::<DescribeUserScramCredentialsRequest>(&response)?
        .into())
}

fn infos(user: &User) -> Vec<CredentialInfo> {
    let infos = MECHANISMS.into_iter().filter_map(|(mechanism, hash)| {
        let verifier = user.verifiers.scram(hash)?;
        let iterations = i32::try_from(verifier.iterations).unwrap_or(i32::MAX);
        Some(CredentialInfo {
            mechanism,
            iterations,
        })
    });
    infos.collect()
}

type Refused = (ErrorCode, String);

pub(super) fn alter_user_scram_credentials(
    context: &RequestContext,
    call: Call,
    body: Decoder,
) -> HandlerResult {
    let request: AlterUserScramCredentialsRequest = call.read(body)?;
    let mut changed: BTreeMap<Str, Result<User, Refused>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let shared = &*context.shared;
    let deletions = request.deletions.iter();
    let deletions = deletions.map(|deletion| (&deletion.name, deletion.mechanism, None));
    let upsertions = request.upsertions.iter();
    let upsertions = upsertions.map(|upsertion| (&upsertion.name, upsertion.mechanism, Some(upsertion)));
    for (name, mechanism, upsertion) in deletions.chain(upsertions) {
        let user = if seen.insert((name.clone(), mechanism)) {
            let before = changed
                .remove(name)
                .unwrap_or_else(|| user(shared, name, upsertion.is_some()));
            before.and_then(|user| alter(user, mechanism, upsertion))
        } else {
            let why = "A user credential cannot be altered twice in the same request";
            Err((ErrorCode::DuplicateResource, why.to_owned()))
        };
        changed.insert(name.clone(), user);
    }
    let users = changed
        .values()
        .filter_map(|user| user.as_ref().ok().cloned())
        .collect();
    let altered = then(move |context: &RequestContext, done: Vec<Changed>| {
        let mut done = done.into_iter();
        let results = changed.into_iter().map(|(user, planned)| {
            let failed = planned.err().or_else(|| {
                let failed = done.next().and_then(Result::err);
                failed.map(|why| (ErrorCode::UnacceptableCredential, why.to_string()))
            });
            let (code, message) = failed.map_or((ErrorCode::None, None), |(code, why)| (code, Some(why)));
            AlterUserScramCredentialsResult {
                user,
                error_code: context.shared.metrics.error(call.api, code),
                error_message: message.map(Into::into),
            }
        });
        call.answer::<AlterUserScramCredentialsRequest>(&AlterUserScramCredentialsResponse {
            throttle_time_ms: 0,
            results: results.collect(),
        })
    });
    let operation = Operation::Access(AccessOperation::PutUsers(users, altered));
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}

fn user(shared: &KafkaContext, name: &str, may_create: bool) -> Result<User, Refused> {
    let known = shared.broker.access().directory().user(name);
    match known.map(Arc::unwrap_or_clone) {
        Some(user) => Ok(user),
        None if may_create => User::new(name, stafett_access::Verifiers::default(), &[])
            .map_err(|why| (ErrorCode::UnacceptableCredential, why.to_string())),
        None => Err(no_credential()),
    }
}

fn no_credential() -> Refused {
    let why = "Attempt to delete a user credential that does not exist";
    (ErrorCode::ResourceNotFound, why.to_owned())
}

/// Sets or removes a verifier.
fn alter(
    mut user: User,
    mechanism: i8,
    upsertion: Option<&ScramCredentialUpsertion>,
) -> Result<User, Refused> {
    let known = MECHANISMS.iter().find(|(number, _)| *number == mechanism);
    let Some((_, hash)) = known else {
        return Err((
            ErrorCode::UnsupportedSaslMechanism,
            "Unknown SCRAM mechanism".to_owned(),
        ));
    };
    let Some(asked) = upsertion else {
        if user.verifiers.scram(*hash).is_none() {
            return Err(no_credential());
        }
        user.verifiers.set_scram(*hash, None);
        return Ok(user);
    };
    let unacceptable = |why: String| (ErrorCode::UnacceptableCredential, why);
    let iterations = u32::try_from(asked.iterations).unwrap_or(0);
    if iterations < ITERATIONS_MIN {
        return Err(unacceptable("Too few iterations".to_owned()));
    }
    if iterations > ITERATIONS_MAX {
        return Err(unacceptable("Too many iterations".to_owned()));
    }
    if asked.salt.is_empty() || asked.salt.len() > 1024 || asked.salted_password.len() != hash.bytes() {
        return Err(unacceptable(
            "The salt or the salted password has a wrong length".to_owned(),
        ));
    }
    let verifier = ScramVerifier::of_salted(*hash, &asked.salted_password, &asked.salt, iterations);
    user.verifiers.set_scram(*hash, Some(verifier));
    // A new password replaces the old one wherever it is known.
    user.verifiers.salted = None;
    Ok(user)
}
