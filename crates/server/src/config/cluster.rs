//! Kinds of settings of clusters.

use std::fmt;

use stafett_cluster::{Location, Login};

use super::kind::Kind;

/// The address of a database. It is shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct DatabaseAddress(String);

impl DatabaseAddress {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&stafett_cluster::without_password(&self.0))
    }
}

/// An address, or empty for no database.
pub(crate) struct OptionalDatabase;

impl Kind for OptionalDatabase {
    type Value = Option<DatabaseAddress>;
    const SHAPE: &'static str = "address or empty";
    const SHOW: fn(&str) -> String = |text| match text {
        "" => String::new(),
        text => stafett_cluster::without_password(text),
    };

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        if text.is_empty() {
            return Ok(None);
        }
        match stafett_cluster::check_address(text) {
            Ok(()) => Ok(Some(DatabaseAddress(text.to_owned()))),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Names of groups, and prefixes that end with `*`.
pub(crate) struct GroupList;

impl Kind for GroupList {
    type Value = Vec<String>;
    const SHAPE: &'static str = "names and prefixes";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        let names = text.split(',').map(str::trim).filter(|_| !text.is_empty());
        let names: Vec<String> = names.map(Into::into).collect();
        let is_odd = |c: char| c == '*' || c.is_control();
        let is_good =
            |name: &str| !name.is_empty() && !name.strip_suffix('*').unwrap_or(name).contains(is_odd);
        if names.iter().all(|name| is_good(name)) {
            Ok(names)
        } else {
            Err("expected names of groups, or prefixes with * at their end, such as orders,web-*".to_owned())
        }
    }
}

/// The place of an object store, or empty for none.
pub(crate) struct OptionalObjects;

impl Kind for OptionalObjects {
    type Value = Option<Location>;
    const SHAPE: &'static str = "address or empty";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        if text.is_empty() {
            return Ok(None);
        }
        Location::parse(text).map(Some).map_err(|error| error.to_string())
    }
}

/// The place of a login, or empty.
pub(crate) struct OptionalLogin;

impl Kind for OptionalLogin {
    type Value = Option<Login>;
    const SHAPE: &'static str = "env:NAME, file:PATH or empty";
    // A text that is no place may be the login itself.
    const SHOW: fn(&str) -> String = |text| match Self::read(text, None) {
        Ok(_) => text.to_owned(),
        Err(why) => why,
    };

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        match Login::parse(text) {
            _ if text.is_empty() => Ok(None),
            login if login.is_plain() => Err(format!("expected {}", Self::SHAPE)),
            login => Ok(Some(login)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_names_and_prefixes() {
        let read = |text| GroupList::read(text, None);
        assert_eq!(read(""), Ok(Vec::new()));
        let names = ["orders", "web-*", "*"].map(Into::into);
        assert_eq!(read("orders, web-*,*"), Ok(names.into()));
        for bad in ["a,,b", ",", "*a", "a*b*", "a**", "a\nb", "a\0*"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
