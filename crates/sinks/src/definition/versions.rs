//! Versions of records, as a definition declares them.

use std::collections::BTreeSet;

use toml::Value;

use super::DefinitionError;
use super::steps::verbs;
use crate::fields::Fields;
use crate::transform::Step;
use crate::versions::{VersionOf, Versions};

/// Prefix of a version that is in a header.
const HEADER: &str = "header:";
/// Versions that are raised, at most.
const RAISES_MAX: usize = 1000;

/// Reads `versions`. `None` if there is none.
pub(super) fn read(fields: &mut Fields) -> Result<Option<Step>, DefinitionError> {
    if !fields.has("versions") {
        return Ok(None);
    }
    let mut versions = fields.below("versions")?;
    let of = versions.required("field")?;
    let of = match of.strip_prefix(HEADER) {
        Some(name) => VersionOf::Header(name.to_owned()),
        None => VersionOf::Field(of),
    };
    let known = versions.count("known")?.unwrap_or(0);
    if known == 0 {
        return Err(versions.bad(
            "known",
            "it has to be the newest version that the columns are made for",
        ));
    }
    let newer_pass = versions.word("on_newer", &[("poison", false), ("pass", true)])?;
    let list = match versions.take("raise") {
        None => Vec::new(),
        Some(Value::Array(list)) if list.len() <= RAISES_MAX => list,
        Some(_) => return Err(versions.bad("raise", "it has to be a list of at most 1000 versions")),
    };
    let (mut raises, mut seen) = (Vec::with_capacity(list.len()), BTreeSet::new());
    for (place, value) in list.into_iter().enumerate() {
        let mut raise = Fields::new(format!("versions.raise.{place}"), value)?;
        let from = raise.count("from")?.unwrap_or(0);
        if from == 0 || from >= known || !seen.insert(from) {
            return Err(raise.bad(
                "from",
                format!("it has to be a version below {known}, and another one each time"),
            ));
        }
        raises.push((from, verbs(raise)?));
    }
    versions.end()?;
    Ok(Some(Step::Versions(Versions {
        of,
        known,
        newer_pass: newer_pass.unwrap_or(false),
        raises,
    })))
}

#[cfg(test)]
mod tests {
    use crate::computed::tests::place_and_record;
    use crate::definition::Definition;
    use crate::document::Document;
    use crate::transform::Verdict;

    const WHOLE: &str = r#"
        [sink.a]
        from = "t"
        to = "webhook"
        url = "env:U"
        [sink.a.versions]
        field = "v"
        known = 3
        [[sink.a.versions.raise]]
        from = 1
        rename = { date = "dateTime" }
        cast = { dateTime = "midnight" }
        [[sink.a.versions.raise]]
        from = 2
        set = { platform = "'unknown'" }
        [[sink.a.transform]]
        drop = ["message"]
    "#;

    fn raised(definition: &str, value: &str) -> Result<String, String> {
        let sink = Definition::parse(definition).unwrap().remove(0);
        let (place, record) = place_and_record();
        let mut document = Document::parse(value).unwrap();
        let source = place.holding(&record);
        assert_eq!(sink.steps[0].apply(&mut document, source)?, Verdict::Keep);
        let mut out = Vec::new();
        document.write(&mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn records_of_all_versions_get_one_form() {
        for (value, expected) in [
            (
                r#"{"date":"2026-11-22"}"#,
                r#"{"dateTime":"2026-11-22T00:00:00Z","platform":"unknown","v":3}"#,
            ),
            (
                r#"{"v":2,"dateTime":"x"}"#,
                r#"{"dateTime":"x","platform":"unknown","v":3}"#,
            ),
            (r#"{"v":3,"platform":"tv"}"#, r#"{"v":3,"platform":"tv"}"#),
        ] {
            assert_eq!(raised(WHOLE, value).unwrap(), expected, "{value}");
        }
    }

    #[test]
    fn a_record_that_cannot_be_raised_is_poison() {
        for (value, why) in [
            (r#"{"v":4}"#, "version 4 is newer than 3"),
            (r#"{"v":0}"#, "version 0 has no way to the next one"),
            (r#"{"v":"x"}"#, "\"x\" is no version"),
            (
                r#"{"date":"today"}"#,
                "from version 1: dateTime: \"today\" cannot be cast",
            ),
        ] {
            assert_eq!(raised(WHOLE, value).unwrap_err(), why);
        }
        let passing = WHOLE.replace("known = 3", "known = 3\non_newer = \"pass\"");
        assert_eq!(raised(&passing, r#"{"v":4}"#).unwrap(), r#"{"v":4}"#);
    }

    #[test]
    fn mistakes_are_refused() {
        for (old, new, why) in [
            (
                "known = 3",
                "",
                "sink.a.versions.known: it has to be the newest version that the columns are made for",
            ),
            (
                "from = 2",
                "from = 1",
                "versions.raise.1.from: it has to be a version below 3, and another one each time",
            ),
            (
                "from = 2",
                "from = 3",
                "versions.raise.1.from: it has to be a version below 3, and another one each time",
            ),
            (
                "set = { platform",
                "lookup = { platform",
                "versions.raise.1.lookup: a version is raised by keep, drop, rename, cast, flatten, set and time",
            ),
        ] {
            let changed = WHOLE.replace(old, new);
            assert_ne!(changed, WHOLE);
            assert_eq!(Definition::parse(&changed).unwrap_err().to_string(), why);
        }
    }
}
