//! Authentication of clients: the SASL mechanisms PLAIN, AMQPLAIN and ANONYMOUS, and EXTERNAL, which is the
//! user of a client's certificate.
//!
//! While no user is an administrator there is `guest` with the password `guest`, from this machine only, and
//! an anonymous client is `guest`.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytestring::ByteString;
use stafett_access::Caller;
use stafett_amqp_wire::{Table, Value};
use stafett_broker::{AccessControl, LoginError, Proof};

/// Returns the offered mechanisms in the order of preference. `is_open`: clients need no name; `is_known`:
/// the certificate of the client is of a user.
pub(crate) fn mechanisms(peer: IpAddr, is_open: bool, is_known: bool) -> &'static str {
    match (is_open && is_here(peer), is_known) {
        (true, false) => "PLAIN AMQPLAIN ANONYMOUS",
        (true, true) => "EXTERNAL PLAIN AMQPLAIN ANONYMOUS",
        (false, false) => "PLAIN AMQPLAIN",
        (false, true) => "EXTERNAL PLAIN AMQPLAIN",
    }
}

pub(crate) const GUEST: &str = "guest";
pub(crate) const EXTERNAL: &str = "EXTERNAL";

/// Reasons why a client is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// The mechanism is unknown.
    UnknownMechanism,
    /// The response does not fit the mechanism.
    Malformed,
    /// Wrong user name or password.
    WrongCredentials { user: String },
    /// The user may connect from this machine only.
    NotFromHere { user: String },
    /// Too many logins are waiting: nothing is known of the credentials.
    Busy,
}

/// User name and password, as received.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub user: String,
    pub password: Vec<u8>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "credentials of {:?}", self.user)
    }
}

/// A user that has logged in.
#[derive(Debug, Clone)]
pub(crate) struct LoggedIn {
    pub user: ByteString,
    pub caller: Arc<Caller>,
}

/// Returns the credentials in a response.
pub(crate) fn credentials(mechanism: &str, response: &[u8]) -> Result<Credentials, AuthError> {
    match mechanism {
        "PLAIN" => plain(response).ok_or(AuthError::Malformed),
        "AMQPLAIN" => {
            let (user, password) = amqplain(response).ok_or(AuthError::Malformed)?;
            let user = std::str::from_utf8(&user).map_err(|_| AuthError::Malformed)?;
            Ok(Credentials {
                user: user.to_owned(),
                password: password.to_vec(),
            })
        }
        // The response is trace information for the log (RFC 4505) and has no meaning.
        "ANONYMOUS" => Ok(Credentials {
            user: GUEST.to_owned(),
            password: GUEST.as_bytes().to_vec(),
        }),
        _ => Err(AuthError::UnknownMechanism),
    }
}

/// Returns true for an address of this machine.
pub(crate) fn is_here(peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback()
}

/// Takes the user of a certificate.
pub(crate) fn trust(trusted: Option<&Arc<Caller>>) -> Result<LoggedIn, AuthError> {
    let caller = trusted.ok_or(AuthError::UnknownMechanism)?;
    Ok(LoggedIn {
        user: caller.name().unwrap_or_default().into(),
        caller: Arc::clone(caller),
    })
}

/// Checks credentials. While no user is an administrator, `guest` may do everything, from this machine.
pub(crate) async fn log_in(
    access: &AccessControl,
    credentials: &Credentials,
    peer: IpAddr,
) -> Result<LoggedIn, AuthError> {
    let Credentials { user, password } = credentials;
    let is_guest = access.is_open() && access.directory().user(user).is_none();
    if is_guest && is_default(credentials) {
        let user = guest(credentials, peer)?;
        let caller = access.anonymous(peer);
        return Ok(LoggedIn { user, caller });
    }
    let user = user.as_str();
    match access.login(Proof::Password { user, password }, peer).await {
        // A token as password names the user itself.
        Ok(caller) => Ok(LoggedIn {
            user: caller.name().unwrap_or(user).into(),
            caller,
        }),
        Err(LoginError::Busy) => Err(AuthError::Busy),
        Err(LoginError::Refused | LoginError::BadToken | LoginError::Scram(_)) => {
            Err(AuthError::WrongCredentials {
                user: user.to_owned(),
            })
        }
    }
}

fn is_default(credentials: &Credentials) -> bool {
    credentials.user == GUEST && credentials.password == GUEST.as_bytes()
}

/// Checks the credentials of `guest`.
pub(crate) fn guest(credentials: &Credentials, peer: IpAddr) -> Result<ByteString, AuthError> {
    let user = &credentials.user;
    if !is_default(credentials) {
        return Err(AuthError::WrongCredentials { user: user.clone() });
    }
    if !is_here(peer) {
        return Err(AuthError::NotFromHere { user: user.clone() });
    }
    Ok(ByteString::from_static(GUEST))
}

/// Value of the header `Authorization`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Basic {
    Credentials {
        user: String,
        password: String,
    },
    /// Another scheme than `Basic`.
    OtherScheme,
    Malformed,
}

/// Returns the token of `Bearer TOKEN`.
pub(crate) fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then_some(token.trim_ascii())
}

/// Parses `Basic BASE64`, of `user:password` (RFC 7617).
pub(crate) fn basic(header: &[u8]) -> Basic {
    let scheme = header.split_at_checked(6);
    let Some((_, encoded)) = scheme.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"basic ")) else {
        return Basic::OtherScheme;
    };
    let decoded = STANDARD.decode(encoded.trim_ascii()).ok();
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = text.as_deref().and_then(|text| text.split_once(':'));
    match pair {
        Some((user, password)) => Basic::Credentials {
            user: user.to_owned(),
            password: password.to_owned(),
        },
        None => Basic::Malformed,
    }
}

/// Parses `[authorization] NUL user NUL password` (RFC 4616).
fn plain(response: &[u8]) -> Option<Credentials> {
    let mut parts = response.splitn(3, |byte| *byte == 0);
    let _authorization = parts.next()?;
    let user = std::str::from_utf8(parts.next()?).ok()?.to_owned();
    let password = parts.next()?.to_vec();
    Some(Credentials { user, password })
}

/// Parses a table without its length, with `LOGIN` and `PASSWORD`.
fn amqplain(response: &[u8]) -> Option<(bytes::Bytes, bytes::Bytes)> {
    let table = Table::decode(bytes::Bytes::copy_from_slice(response)).ok()?;
    let text = |name| match table.get(name) {
        Some(Value::LongString(text)) => Some(text),
        _ => None,
    };
    Some((text("LOGIN")?, text("PASSWORD")?))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use stafett_amqp_wire::TableBuilder;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn authenticate(mechanism: &str, response: &[u8], peer: IpAddr) -> Result<ByteString, AuthError> {
        guest(&credentials(mechanism, response)?, peer)
    }

    #[test]
    fn basic_credentials_are_read() {
        let guest = || Basic::Credentials {
            user: "guest".to_owned(),
            password: "gu:est".to_owned(),
        };
        for (header, expected) in [
            ("Basic Z3Vlc3Q6Z3U6ZXN0", guest()),
            ("basic  Z3Vlc3Q6Z3U6ZXN0", guest()),
            ("Basic Z3Vlc3Q=", Basic::Malformed),
            ("Basic !!", Basic::Malformed),
            ("Basic ", Basic::Malformed),
            ("Basic", Basic::OtherScheme),
            ("Bearer Z3Vlc3Q6Z3U6ZXN0", Basic::OtherScheme),
            ("", Basic::OtherScheme),
        ] {
            assert_eq!(basic(header.as_bytes()), expected, "{header}");
        }
    }

    #[test]
    fn guest_comes_in_from_this_machine_with_both_mechanisms() {
        assert_eq!(
            authenticate("PLAIN", b"\0guest\0guest", HERE).as_deref(),
            Ok("guest")
        );
        let table = TableBuilder::new()
            .with("LOGIN", "guest")
            .with("PASSWORD", "guest")
            .finish();
        let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        for from in [HERE, IpAddr::V6(Ipv6Addr::LOCALHOST), mapped] {
            assert_eq!(
                authenticate("AMQPLAIN", table.as_bytes(), from).as_deref(),
                Ok("guest")
            );
        }
    }

    #[test]
    fn an_anonymous_client_is_guest_where_guest_may_come_from() {
        assert_eq!(
            authenticate("ANONYMOUS", b"me@example.org", HERE).as_deref(),
            Ok("guest")
        );
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        assert!(mechanisms(HERE, true, false).contains("ANONYMOUS"));
        assert!(!mechanisms(elsewhere, true, false).contains("ANONYMOUS"));
        assert!(!mechanisms(HERE, false, true).contains("ANONYMOUS"));
        let refused = AuthError::NotFromHere {
            user: "guest".to_owned(),
        };
        assert_eq!(authenticate("ANONYMOUS", b"", elsewhere), Err(refused));
    }

    #[test]
    fn nobody_else_comes_in_and_guest_not_from_elsewhere() {
        let wrong = |user: &str| {
            Err(AuthError::WrongCredentials {
                user: user.to_owned(),
            })
        };
        assert_eq!(authenticate("PLAIN", b"\0guest\0guess", HERE), wrong("guest"));
        assert_eq!(authenticate("PLAIN", b"\0admin\0guest", HERE), wrong("admin"));
        assert_eq!(authenticate("PLAIN", b"guest", HERE), Err(AuthError::Malformed));
        assert_eq!(
            authenticate("PLAIN", b"\0\xff\0guest", HERE),
            Err(AuthError::Malformed)
        );
        assert_eq!(
            authenticate("AMQPLAIN", b"\x05LOGIN", HERE),
            Err(AuthError::Malformed)
        );
        assert_eq!(
            authenticate("EXTERNAL", b"", HERE),
            Err(AuthError::UnknownMechanism)
        );
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let refused = authenticate("PLAIN", b"\0guest\0guest", elsewhere);
        assert_eq!(
            refused,
            Err(AuthError::NotFromHere {
                user: "guest".to_owned()
            })
        );
    }
}
