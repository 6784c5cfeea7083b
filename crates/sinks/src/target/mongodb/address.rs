//! `mongodb://USER:PASSWORD@HOST:PORT,HOST/DATABASE?authSource=admin&tls=true`.

use percent_encoding::percent_decode_str;

use crate::target::TargetError;

const PORT: u16 = 27017;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

/// Parts of an address.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) hosts: Vec<Host>,
    pub(super) login: Option<(String, String)>,
    pub(super) database: Option<String>,
    /// Database with the users.
    pub(super) auth_source: String,
    pub(super) is_tls: bool,
}

impl Host {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()?),
            _ => (text, PORT),
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        (!name.is_empty()).then(|| Self {
            name: name.to_owned(),
            port,
        })
    }
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, TargetError> {
        // The address may hold a password, and is not shown.
        let stop = |why: &str| TargetError::Stop(why.to_owned());
        let bad = || stop("the address is not mongodb://USER:PASSWORD@HOST:PORT/DATABASE");
        if url.starts_with("mongodb+srv://") {
            return Err(stop(
                "addresses mongodb+srv:// are not looked up: name the servers, mongodb://HOST,HOST",
            ));
        }
        let rest = url.strip_prefix("mongodb://").ok_or_else(bad)?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let decoded = |text: &str| match percent_decode_str(text).decode_utf8() {
            Ok(text) => Ok(text.into_owned()),
            Err(_) => Err(bad()),
        };
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                (Some((decoded(user)?, decoded(password)?)), hosts)
            }
            None => (None, authority),
        };
        let hosts: Option<Vec<Host>> = hosts.split(',').map(Host::parse).collect();
        let database = Some(decoded(database)?).filter(|name| !name.is_empty());
        let mut address = Self {
            hosts: hosts.ok_or_else(bad)?,
            login,
            auth_source: database.clone().unwrap_or_else(|| "admin".to_owned()),
            database,
            is_tls: false,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').ok_or_else(bad)?;
            match name {
                "tls" | "ssl" => address.is_tls = value == "true",
                "authSource" => address.auth_source = decoded(value)?,
                "authMechanism" if value != "SCRAM-SHA-256" => {
                    return Err(stop(
                        "the login is SCRAM-SHA-256: another authMechanism is not there",
                    ));
                }
                // Others have no effect: writes go to the primary, and a majority confirms them.
                _ => {}
            }
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_their_parts() {
        let address =
            Address::parse("mongodb://me:p%40ss@one,[::1]:7,two:9/events?tls=true&retryWrites=false")
                .unwrap();
        let hosts: Vec<_> = address
            .hosts
            .iter()
            .map(|host| (&*host.name, host.port))
            .collect();
        assert_eq!(hosts, [("one", 27017), ("::1", 7), ("two", 9)]);
        assert_eq!(address.login, Some(("me".to_owned(), "p@ss".to_owned())));
        assert_eq!(
            (address.database.as_deref(), &*address.auth_source, address.is_tls),
            (Some("events"), "events", true)
        );
        let address = Address::parse("mongodb://h/d?authSource=users").unwrap();
        assert_eq!((&*address.auth_source, address.login), ("users", None));
        assert_eq!(Address::parse("mongodb://h").unwrap().auth_source, "admin");
        for url in [
            "http://h",
            "mongodb://",
            "mongodb://h:x/",
            "mongodb+srv://h",
            "mongodb://h/?authMechanism=PLAIN",
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }
}
