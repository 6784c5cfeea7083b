//! Kinds of settings used by live topics only.

use stafett_http::{Origins, query};
use stafett_live_topics::{DuplicateRule, LogRule, SameBy};

use super::http::sites;
use super::kind::Kind;
use stafett_model::quantity;

/// Rules of the form `PREFIX=WINDOW[,fixed][,field:NAME|,id]`, separated by spaces.
pub(crate) struct DuplicateRules;

impl Kind for DuplicateRules {
    type Value = Vec<DuplicateRule>;
    const SHAPE: &'static str = "rules or empty";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        text.split_whitespace().map(rule).collect()
    }
}

fn rule(text: &str) -> Result<DuplicateRule, String> {
    let expected = || {
        format!(
            "{text}: expected PREFIX=WINDOW[,fixed][,field:NAME|,id], such as songs/=4m or news/=30s,fixed,field:title"
        )
    };
    let (prefix, rest) = text.rsplit_once('=').ok_or_else(expected)?;
    let mut options = rest.split(',');
    let window = options.next().and_then(quantity::milliseconds);
    let mut rule = DuplicateRule {
        prefix: query::decoded(prefix).ok_or_else(expected)?.into(),
        window_ms: window.filter(|ms| *ms > 0).ok_or_else(expected)?,
        restarts: true,
        by: SameBy::Payload,
    };
    for option in options {
        match (option, option.strip_prefix("field:")) {
            ("fixed", _) => rule.restarts = false,
            ("id", _) => rule.by = SameBy::Id,
            (_, Some(name)) if !name.is_empty() => rule.by = SameBy::Field(name.into()),
            _ => return Err(expected()),
        }
    }
    Ok(rule)
}

/// Rules of the form `PREFIX=TOPIC[,PARTITIONS]`, separated by spaces.
pub(crate) struct LogRules;

impl Kind for LogRules {
    type Value = Vec<LogRule>;
    const SHAPE: &'static str = "rules or empty";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        text.split_whitespace().map(log_rule).collect()
    }
}

fn log_rule(text: &str) -> Result<LogRule, String> {
    let expected = || format!("{text}: expected PREFIX=TOPIC[,PARTITIONS], such as charts/=charts,4");
    let (prefix, rest) = text.rsplit_once('=').ok_or_else(expected)?;
    let (topic, partitions) = match rest.split_once(',') {
        Some((topic, partitions)) => (topic, partitions.parse().map_err(|_| expected())?),
        None => (rest, 1),
    };
    if topic.is_empty() || !(1..=1000).contains(&partitions) {
        return Err(expected());
    }
    Ok(LogRule {
        prefix: query::decoded(prefix).ok_or_else(expected)?.into(),
        topic: topic.into(),
        partitions,
    })
}

/// `near`, `any`, or a list of sites.
pub(crate) struct OriginList;

impl Kind for OriginList {
    type Value = Origins;
    const SHAPE: &'static str = "near, any or sites";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        match text {
            "near" => return Ok(Origins::Near),
            "any" => return Ok(Origins::Any),
            _ => {}
        }
        match sites(text) {
            Some(sites) if !sites.is_empty() => Ok(Origins::Listed(sites)),
            _ => Err(
                "expected near, any, or sites such as https://songs.example,https://other.example:8443"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_duplicates_are_read_and_what_is_none_is_refused() {
        let rules = DuplicateRules::read("songs/=4m  a%20b==30s,fixed,field:title =10s,id", None).unwrap();
        let expected = [
            ("songs/", 240_000, true, SameBy::Payload),
            ("a b=", 30_000, false, SameBy::Field("title".into())),
            ("", 10_000, true, SameBy::Id),
        ];
        let expected = expected.map(|(prefix, window_ms, restarts, by)| DuplicateRule {
            prefix: prefix.into(),
            window_ms,
            restarts,
            by,
        });
        assert_eq!(rules, expected);
        assert_eq!(DuplicateRules::read("", None), Ok(Vec::new()));
        for bad in [
            "songs",
            "songs/=",
            "songs/=0",
            "a=1s,what",
            "a=1s,field:",
            "%2=1s",
            "%ff=1s",
        ] {
            assert!(DuplicateRules::read(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn rules_of_logs_are_read_and_what_is_none_is_refused() {
        let expected = [("charts/", "charts", 1), ("a b/", "c", 4)];
        let expected = expected.map(|(prefix, topic, partitions)| LogRule {
            prefix: prefix.into(),
            topic: topic.into(),
            partitions,
        });
        assert_eq!(
            LogRules::read("charts/=charts a%20b/=c,4", None).unwrap(),
            expected
        );
        for bad in ["charts", "charts/=", "charts/=c,0", "charts/=c,x", "=,1"] {
            assert!(LogRules::read(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn origins_are_near_any_or_sites() {
        assert_eq!(OriginList::read("near", None), Ok(Origins::Near));
        assert_eq!(OriginList::read("any", None), Ok(Origins::Any));
        let sites = vec!["https://a.example".to_owned(), "http://b:8000".to_owned()];
        let listed = OriginList::read("https://a.example, http://b:8000", None);
        assert_eq!(listed, Ok(Origins::Listed(sites)));
        for bad in ["", "a.example", "https://", "https://a.example/page"] {
            assert!(OriginList::read(bad, None).is_err(), "{bad}");
        }
    }
}
