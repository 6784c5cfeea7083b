//! Logins by password, token and SCRAM.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use stafett_access::{Caller, Hash, TokenHash, User};
use stafett_access::{Exchange, First, ScramError};
use stafett_model::checksum;
use stafett_store::wall_ms;

use super::changes::hex;
use super::checks::Checked;
use super::{AccessControl, audit, background, bearer, random};

/// Passwords that are known to be right.
const VERIFIED_MAX: usize = 10_000;
/// Sessions of pages.
const SESSIONS_MAX: usize = 10_000;
/// Time that a session lasts after the login.
const SESSION_MS: i64 = 12 * 3600 * 1000;

/// Begin of the secret of the broker's own programs.
pub(super) const OWN: &str = "stafett-own-";

/// Proof of an identity.
pub enum Proof<'a> {
    Password {
        user: &'a str,
        password: &'a [u8],
    },
    Token(&'a [u8]),
    /// Text of a session that [`AccessControl::begin_session`] returned.
    Session(&'a str),
}

impl fmt::Debug for Proof<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Proof")
    }
}

/// Reason why a login fails. Which of user and password is wrong is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    #[error("the user name or the password is wrong")]
    Refused,
    #[error("the token is unknown, revoked or expired")]
    BadToken,
    #[error("too many logins are waiting; try again")]
    Busy,
    #[error("{0}")]
    Scram(#[from] ScramError),
}

/// Hashes of passwords that were right, so that a client that sends its password with each request does not
/// cost milliseconds each time.
#[derive(Debug, Default)]
pub(super) struct Verified(HashMap<Box<str>, ([u8; 32], u64)>);

#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<TokenHash, Session>);

/// A session of a page. It ends with a new password or other tags of its user.
#[derive(Debug)]
struct Session {
    user: Box<str>,
    digest: u32,
    expiry_ms: i64,
}

/// A SCRAM login that waits for the client's second message.
pub struct ScramLogin {
    exchange: Exchange,
    user: String,
}

impl fmt::Debug for ScramLogin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SCRAM login of {:?}", self.user)
    }
}

impl AccessControl {
    /// Checks a proof. Takes longer for a peer or user with failed logins.
    pub async fn login(&self, proof: Proof<'_>, peer: IpAddr) -> Result<Arc<Caller>, LoginError> {
        let secret = match proof {
            Proof::Password { password, .. } => password,
            Proof::Token(token) => token,
            Proof::Session(_) => &[],
        };
        if secret.starts_with(OWN.as_bytes()) && TokenHash::of(secret) == self.own {
            return Ok(Arc::new(Caller::internal()));
        }
        let user = match proof {
            Proof::Password { user, password } => return self.login_by_password(user, password, peer).await,
            Proof::Token(token) if bearer::is_bearer(token) => {
                return self.login_by_bearer(token, peer).await;
            }
            Proof::Token(token) => self.user_of_token(token, peer).await?,
            Proof::Session(session) => self.user_of_session(session)?,
        };
        Ok(Arc::new(Caller::user(&self.directory, &user, peer)))
    }

    async fn login_by_password(
        &self,
        name: &str,
        password: &[u8],
        peer: IpAddr,
    ) -> Result<Arc<Caller>, LoginError> {
        if bearer::is_bearer(password) && self.takes_bearer() {
            let caller = self.login_by_bearer(password, peer).await?;
            let is_own = name.is_empty() || caller.name() == Some(name);
            return is_own.then_some(caller).ok_or(LoginError::Refused);
        }
        self.wait(peer, name).await;
        let user = self.directory.user(name);
        let is_known = |user: &Arc<User>| self.is_verified(user, password);
        let mut is_right = user.as_ref().is_some_and(is_known);
        if !is_right {
            // Many logins with one password are one check: the others wait for it.
            let same = self.same.enter(self.proof_of(name, password))?;
            let _turn = same.turn().await?;
            is_right = user.as_ref().is_some_and(is_known);
            if !is_right {
                is_right = self.verify(user.clone(), password, peer).await?;
            }
            if let Some(user) = user.as_ref().filter(|_| is_right) {
                self.remember(user, password);
            }
        }
        let Some(user) = user.filter(|_| is_right) else {
            self.on_failure(name, peer);
            return Err(LoginError::Refused);
        };
        self.on_login(&user.name, peer);
        Ok(Arc::new(Caller::user(&self.directory, name, peer)))
    }

    /// Checks a token of an authorization server, on a thread that may block.
    async fn login_by_bearer(&self, token: &[u8], peer: IpAddr) -> Result<Arc<Caller>, LoginError> {
        let known = self.bearer.lock().clone();
        let mut claimed = self.check_bearer(known.clone(), token, peer).await?;
        let is_unknown = |bearer: &Arc<bearer::Bearer>| bearer.lacks_key_of(token);
        let is_known = || !self.bearer.lock().as_ref().is_some_and(is_unknown);
        if claimed.is_none() && known.as_ref().is_some_and(is_unknown) && self.newer_keys.wait(is_known).await
        {
            let newer = self.bearer.lock().clone();
            claimed = self.check_bearer(newer, token, peer).await?;
        }
        // A user that is unknown here is a stranger.
        let is_good = |claimed: &bearer::Claimed| {
            claimed.expires_ms > wall_ms() && self.directory.user(&claimed.user).is_some()
        };
        let claimed = claimed.filter(is_good);
        let Some(claimed) = claimed else {
            self.wait(peer, "").await;
            self.on_failure("", peer);
            return Err(LoginError::BadToken);
        };
        self.on_login(&claimed.user, peer);
        let caller = Caller::user(&self.directory, &claimed.user, peer);
        Ok(Arc::new(caller.until(claimed.expires_ms)))
    }

    async fn check_bearer(
        &self,
        bearer: Option<Arc<bearer::Bearer>>,
        token: &[u8],
        peer: IpAddr,
    ) -> Result<Option<bearer::Claimed>, LoginError> {
        let Some(bearer) = bearer else { return Ok(None) };
        let token = token.to_vec();
        let work = move || {
            let outcome = bearer.check(&token);
            // Signatures cannot be guessed: a forged token holds no good one up.
            let is_wrong = false;
            Some(Checked { outcome, is_wrong })
        };
        self.bearer_checks.run(peer, work).await
    }

    async fn verify(
        &self,
        user: Option<Arc<User>>,
        password: &[u8],
        peer: IpAddr,
    ) -> Result<bool, LoginError> {
        let password = password.to_vec();
        let work = move || {
            let verifiers = user.map(|user| user.verifiers.clone()).unwrap_or_default();
            let outcome = background::run(|| verifiers.verifies(&password)).ok()?;
            let is_wrong = !outcome;
            Some(Checked { outcome, is_wrong })
        };
        self.checks.run(peer, work).await
    }

    async fn user_of_token(&self, token: &[u8], peer: IpAddr) -> Result<Box<str>, LoginError> {
        let known = self.directory.token(TokenHash::of(token), wall_ms());
        let Some((_, user)) = known else {
            // A token is too long to be guessed, so those that are good need not wait for the others.
            self.wait(peer, "").await;
            self.on_failure("", peer);
            return Err(LoginError::BadToken);
        };
        self.on_login(&user.name, peer);
        Ok(user.name.clone())
    }

    /// Begins a SCRAM login, and returns the answer to the client's first message.
    pub async fn begin_scram(
        &self,
        hash: Hash,
        message: &[u8],
        peer: IpAddr,
    ) -> Result<(ScramLogin, String), LoginError> {
        let first = First::read(message)?;
        let user = first.user.clone();
        self.wait(peer, &user).await;
        let known = self.directory.user(&user);
        let verifier = known.as_deref().and_then(|user| user.verifiers.scram(hash));
        // 122 bits of it are random, without a comma.
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let (exchange, answer) = first.answer(hash, verifier, &nonce, &self.secret);
        Ok((ScramLogin { exchange, user }, answer))
    }

    /// Ends a SCRAM login, and returns the last message.
    pub fn finish_scram(
        &self,
        login: ScramLogin,
        message: &[u8],
        peer: IpAddr,
    ) -> Result<(Arc<Caller>, String), LoginError> {
        let ScramLogin { exchange, user } = login;
        match exchange.finish(message) {
            Ok(answer) => {
                self.on_login(&user, peer);
                Ok((Arc::new(Caller::user(&self.directory, &user, peer)), answer))
            }
            Err(why) => {
                self.on_failure(&user, peer);
                Err(why.into())
            }
        }
    }

    /// Begins a session of a page, and returns its text, a secret.
    pub fn begin_session(&self, user: &str) -> String {
        let text = hex(&random());
        let now = wall_ms();
        let mut sessions = self.sessions.lock();
        if sessions.0.len() >= SESSIONS_MAX {
            sessions.0.retain(|_, session| session.expiry_ms > now);
        }
        if sessions.0.len() >= SESSIONS_MAX {
            let oldest = sessions.0.iter().min_by_key(|(_, session)| session.expiry_ms);
            let oldest = oldest.map(|(hash, _)| *hash);
            oldest.map(|hash| sessions.0.remove(&hash));
        }
        let session = Session {
            user: user.into(),
            digest: self.directory.user(user).map_or(0, |user| digest(&user)),
            expiry_ms: now + SESSION_MS,
        };
        sessions.0.insert(TokenHash::of(text.as_bytes()), session);
        text
    }

    /// Ends a session, if it is there.
    pub fn end_session(&self, session: &str) {
        self.sessions.lock().0.remove(&TokenHash::of(session.as_bytes()));
    }

    fn user_of_session(&self, session: &str) -> Result<Box<str>, LoginError> {
        let sessions = self.sessions.lock();
        let found = sessions.0.get(&TokenHash::of(session.as_bytes()));
        let is_same = |session: &&Session| {
            let user = self.directory.user(&session.user);
            session.expiry_ms > wall_ms() && user.is_some_and(|user| digest(&user) == session.digest)
        };
        let found = found.filter(is_same).map(|session| session.user.clone());
        found.ok_or(LoginError::BadToken)
    }

    /// Waits as long as earlier failures demand.
    async fn wait(&self, peer: IpAddr, user: &str) {
        let delay = self.guessing.delay(peer, user, wall_ms());
        if delay > Duration::ZERO {
            tokio::time::sleep(delay).await;
        }
    }

    fn on_login(&self, user: &str, peer: IpAddr) {
        if self.guessing.on_success(peer, user, wall_ms()) {
            audit::login(user, peer);
        }
    }

    fn on_failure(&self, user: &str, peer: IpAddr) {
        let user = user.get(..user.floor_char_boundary(256)).unwrap_or_default();
        self.guessing.on_failure(peer, user, wall_ms());
        audit::failed_login(user, peer);
    }

    fn is_verified(&self, user: &User, password: &[u8]) -> bool {
        let (hash, verifiers) = self.digests(user, password);
        self.verified.lock().0.get(&user.name) == Some(&(hash, verifiers))
    }

    fn remember(&self, user: &User, password: &[u8]) {
        let digests = self.digests(user, password);
        let mut verified = self.verified.lock();
        if verified.0.len() >= VERIFIED_MAX {
            verified.0.clear();
        }
        verified.0.insert(user.name.clone(), digests);
    }

    /// Returns a hash of a user and a password with the secret of this run.
    fn proof_of(&self, user: &str, password: &[u8]) -> TokenHash {
        let length = (user.len() as u64).to_le_bytes();
        TokenHash::of(&[&self.secret, &length[..], user.as_bytes(), password].concat())
    }

    /// Returns a hash of the password with the secret of this run, and one that changes with the verifiers.
    fn digests(&self, user: &User, password: &[u8]) -> ([u8; 32], u64) {
        let hash = TokenHash::of(&[&self.secret, password].concat());
        (hash.0, digest(user).into())
    }
}

/// Returns a number that changes with the verifiers and tags of a user.
fn digest(user: &User) -> u32 {
    checksum::crc32c(&user.value())
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use stafett_access::{Change, ScramVerifier, Verifiers};
    use stafett_journal::{Journal, MemoryJournal};
    use tokio::time::Instant;

    use super::*;

    const NAMES: [&str; 4] = ["ann", "bob", "kim", "eve"];

    /// Users: `ann` with all verifiers, `kim` with one as Kafka's tools make it, `bob` without a password.
    fn control() -> AccessControl {
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
        let control = AccessControl::load(&journal).unwrap();
        let of_kafka = Verifiers {
            sha256: Some(ScramVerifier::of_password(
                Hash::Sha256,
                b"secret",
                b"a salt",
                4096,
            )),
            ..Verifiers::default()
        };
        let put = |name: &str, verifiers| Change::PutUser(User::new(name, verifiers, &[]).unwrap());
        control.directory.apply([
            put("ann", Verifiers::of_password(b"secret", b"a salt of 16 byt")),
            put("bob", Verifiers::default()),
            put("kim", of_kafka),
        ]);
        control
    }

    /// An address of its own for each, so that no failure of another counts.
    fn peer(name: &str) -> IpAddr {
        std::net::Ipv4Addr::new(192, 0, 2, name.as_bytes()[0]).into()
    }

    /// Checks, and time on a clock that stands still while they work, of six wrong passwords.
    async fn cost_of_passwords(control: &AccessControl, user: &str) -> (usize, Duration) {
        let (start, before) = (Instant::now(), control.checks.begun());
        for _ in 0..6 {
            let password = b"wrong";
            let refused = control
                .login(Proof::Password { user, password }, peer(user))
                .await;
            assert_eq!(refused.err(), Some(LoginError::Refused));
        }
        (control.checks.begun() - before, start.elapsed())
    }

    async fn cost_of_scram(control: &AccessControl, hash: Hash, user: &str) -> Duration {
        let start = Instant::now();
        for _ in 0..6 {
            let first = format!("n,,n={user},r=theirs");
            let begun = control.begin_scram(hash, first.as_bytes(), peer(user)).await;
            let (login, answer) = begun.unwrap();
            let nonce = answer.split(',').next().unwrap();
            let proof = STANDARD.encode(vec![7; hash.bytes()]);
            let last = format!("c=biws,{nonce},p={proof}");
            let refused = control.finish_scram(login, last.as_bytes(), peer(user));
            let expected = LoginError::Scram(ScramError::Refused);
            assert_eq!(refused.err(), Some(expected), "{user}");
        }
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_user_is_checked_and_slowed_as_a_known_one_in_each_mechanism() {
        let control = control();
        let mut costs = Vec::new();
        for name in NAMES {
            costs.push(cost_of_passwords(&control, name).await);
        }
        assert_eq!(costs[0].0, 6);
        assert!(costs[0].1 >= Duration::from_millis(300), "guesses are slowed");
        assert!(costs.iter().all(|cost| *cost == costs[0]), "{costs:?}");
        for hash in [Hash::Sha256, Hash::Sha512] {
            let control = self::control();
            let mut costs = Vec::new();
            for name in NAMES {
                costs.push(cost_of_scram(&control, hash, name).await);
            }
            assert!(costs[0] >= Duration::from_millis(300), "guesses are slowed");
            assert!(costs.iter().all(|cost| *cost == costs[0]), "{costs:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn logins_with_one_password_at_once_are_one_check() {
        let control = Arc::new(control());
        let log_in = |password: &'static [u8]| {
            let control = Arc::clone(&control);
            async move {
                let user = "ann";
                let proof = Proof::Password { user, password };
                control.login(proof, peer(user)).await.map(drop)
            }
        };
        let before = control.checks.begun();
        let mut all = tokio::task::JoinSet::new();
        // More than wait for a turn from one address.
        (0..600).for_each(|_| drop(all.spawn(log_in(b"secret"))));
        assert!(all.join_all().await.iter().all(|outcome| *outcome == Ok(())));
        assert_eq!(control.checks.begun() - before, 1);
        assert_eq!(log_in(b"wrong").await, Err(LoginError::Refused));
        assert_eq!(log_in(b"secret").await, Ok(()));
    }
}
