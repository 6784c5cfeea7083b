//! Kinds of settings of clusters.

use std::fmt;

use stafett_cluster::postgres;

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
        f.write_str(&postgres::without_password(&self.0))
    }
}

/// An address, or empty for no database.
pub(crate) struct OptionalDatabase;

impl Kind for OptionalDatabase {
    type Value = Option<DatabaseAddress>;
    const SHAPE: &'static str = "address or empty";
    const SHOW: fn(&str) -> String = |text| match text {
        "" => String::new(),
        text => postgres::without_password(text),
    };

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        if text.is_empty() {
            return Ok(None);
        }
        match postgres::check_address(text) {
            Ok(()) => Ok(Some(DatabaseAddress(text.to_owned()))),
            Err(error) => Err(error.to_string()),
        }
    }
}
