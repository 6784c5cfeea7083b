//! SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, as messages of `SaslAuthenticate`.
//!
//! ```text
//! Start ──SaslHandshake──▶ Chosen ──PLAIN──────────────────────────▶ Done
//!                             ├──SCRAM──▶ Proving ──second message──▶ Done
//!                             └──OAUTHBEARER (RFC 7628)──────────────▶ Done
//! ```
//!
//! Anything else is a failure, after which the connection is closed; so is another request before the end.

use std::sync::Arc;

use bytes::Bytes;
use stafett_access::ScramError;
use stafett_access::{Caller, Hash};
use stafett_broker::{AccessControl, LoginError, Proof, ScramLogin};

use crate::context::RequestContext;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Plain,
    Scram(Hash),
    OAuthBearer,
}

impl Mechanism {
    const ALL: [Self; 4] = [
        Self::Scram(Hash::Sha512),
        Self::Scram(Hash::Sha256),
        Self::Plain,
        Self::OAuthBearer,
    ];

    /// Returns the mechanisms that are offered.
    pub(crate) fn offered(access: &AccessControl) -> impl Iterator<Item = Self> {
        let takes_bearer = access.takes_bearer();
        Self::ALL
            .into_iter()
            .filter(move |mechanism| takes_bearer || *mechanism != Self::OAuthBearer)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::OAuthBearer => "OAUTHBEARER",
            Self::Scram(Hash::Sha256) => "SCRAM-SHA-256",
            Self::Scram(Hash::Sha512) => "SCRAM-SHA-512",
        }
    }
}

/// State of a login.
#[derive(Debug, Default)]
pub(crate) enum Sasl {
    #[default]
    Start,
    Chosen(Mechanism),
    Proving(ScramLogin),
    /// The token was refused, and the client knows why: it sends a last message.
    Refusing,
    Done,
    Failed,
}

/// Result of a message: the answer, and the caller if the login is complete.
pub(crate) type Authenticated = Result<(Bytes, Option<Arc<Caller>>), SaslError>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SaslError {
    #[error("SaslAuthenticate request received before a SaslHandshake request")]
    OutOfOrder,
    #[error("Authentication failed: {0}")]
    Login(#[from] LoginError),
    #[error("Invalid OAUTHBEARER client first message")]
    MalformedBearer,
    #[error("Invalid SASL/PLAIN response")]
    MalformedPlain,
    #[error("Cannot change principals during re-authentication")]
    OtherUser,
    #[error("the user's limit of connections ({max}) is reached")]
    Connections { max: u64 },
}

/// Takes a message of the client.
pub(crate) async fn authenticate(context: &RequestContext, message: Bytes) -> Authenticated {
    let access = context.shared.broker.access();
    let peer = context.entry.peer.ip();
    let state = context.identity.set_sasl(Sasl::Failed);
    let (answer, caller) = match state {
        Sasl::Chosen(Mechanism::Plain) => {
            let (user, password) = plain(&message).ok_or(SaslError::MalformedPlain)?;
            let caller = access.login(Proof::Password { user, password }, peer).await?;
            (Bytes::new(), caller)
        }
        Sasl::Chosen(Mechanism::Scram(hash)) => {
            let (login, answer) = access.begin_scram(hash, &message, peer).await?;
            context.identity.set_sasl(Sasl::Proving(login));
            return Ok((answer.into(), None));
        }
        Sasl::Chosen(Mechanism::OAuthBearer) => {
            let token = bearer(&message).ok_or(SaslError::MalformedBearer)?;
            match access.login(Proof::Token(token), peer).await {
                Ok(caller) => (Bytes::new(), caller),
                Err(LoginError::Busy) => return Err(LoginError::Busy.into()),
                Err(_) => {
                    context.identity.set_sasl(Sasl::Refusing);
                    return Ok((Bytes::from_static(br#"{"status":"invalid_token"}"#), None));
                }
            }
        }
        Sasl::Refusing => return Err(LoginError::BadToken.into()),
        Sasl::Proving(login) => {
            let (caller, answer) = access.finish_scram(login, &message, peer)?;
            (answer.into(), caller)
        }
        Sasl::Start | Sasl::Done | Sasl::Failed => return Err(SaslError::OutOfOrder),
    };
    let counted = context.identity.count(access, &caller);
    counted.map_err(|max| SaslError::Connections { max })?;
    if !context.identity.log_in(Arc::clone(&caller)) {
        return Err(SaslError::OtherUser);
    }
    context.identity.set_sasl(Sasl::Done);
    Ok((answer, Some(caller)))
}

/// Returns the token of a client's first message (RFC 7628, section 3.1), which names no user to act for.
fn bearer(message: &[u8]) -> Option<&[u8]> {
    let (head, pairs) = message.split_at(message.iter().position(|byte| *byte == 1)?);
    let mut pairs = pairs.split(|byte| *byte == 1);
    let token = pairs.find_map(|pair| {
        let (scheme, token) = pair.strip_prefix(b"auth=")?.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
    });
    token.filter(|_| head == b"n,,")
}

/// Parses `[authorization] NUL user NUL password` (RFC 4616). A user acts for itself only.
fn plain(message: &[u8]) -> Option<(&str, &[u8])> {
    let mut parts = message.splitn(3, |byte| *byte == 0);
    let authorization = parts.next()?;
    let user = std::str::from_utf8(parts.next()?).ok()?;
    let password = parts.next()?;
    let is_own = authorization.is_empty() || authorization == user.as_bytes();
    (is_own && !user.is_empty() && !password.contains(&0)).then_some((user, password))
}

impl SaslError {
    /// Returns true if the client does not follow the protocol.
    pub(crate) fn is_out_of_order(&self) -> bool {
        matches!(self, Self::OutOfOrder)
    }

    /// Returns the text for the client. It does not tell whether the user exists.
    pub(crate) fn text(&self) -> String {
        if let Self::Login(LoginError::Refused | LoginError::Scram(ScramError::Refused)) = self {
            return "Authentication failed: Invalid username or password".to_owned();
        }
        self.to_string()
    }
}
