//! Kinds of settings used by the HTTP listener only.

use super::kind::Kind;

/// Web sites, separated by commas.
pub(crate) struct SiteList;

impl Kind for SiteList {
    type Value = Vec<String>;
    const SHAPE: &'static str = "sites or empty";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        let expected = "expected sites such as https://console.example,https://other.example:8443";
        sites(text).ok_or_else(|| expected.to_owned())
    }
}

/// Returns the sites of a list. `None` if one is malformed.
pub(super) fn sites(text: &str) -> Option<Vec<String>> {
    let is_site = |site: &&str| {
        let host = site
            .strip_prefix("https://")
            .or_else(|| site.strip_prefix("http://"));
        host.is_some_and(|host| !host.is_empty() && !host.contains('/'))
    };
    listed(text, is_site)
}

/// Address of a page, or empty.
pub(crate) struct OptionalSite;

impl Kind for OptionalSite {
    type Value = Option<String>;
    const SHAPE: &'static str = "address or empty";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"));
        let is_good = rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace));
        if text.is_empty() {
            Ok(None)
        } else if is_good {
            Ok(Some(text.to_owned()))
        } else {
            Err("expected an address such as https://prometheus.example".to_owned())
        }
    }
}

/// Actions of the console's pages. True: they only show.
pub(crate) struct PageActions;

impl Kind for PageActions {
    type Value = bool;
    const SHAPE: &'static str = "all or none";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<bool, String> {
        match text {
            "all" => Ok(false),
            "none" => Ok(true),
            _ => Err("expected all or none".to_owned()),
        }
    }
}

/// Names of hosts, separated by commas.
pub(crate) struct HostList;

impl Kind for HostList {
    type Value = Vec<String>;
    const SHAPE: &'static str = "names or empty";

    fn read(text: &str, _: Option<(u64, u64)>) -> Result<Self::Value, String> {
        let is_host = |host: &&str| {
            let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
            !host.is_empty() && host.chars().all(is_letter)
        };
        let expected = "expected names without ports, such as broker,broker.example";
        listed(text, is_host).ok_or_else(|| expected.to_owned())
    }
}

fn listed(text: &str, is_good: impl Fn(&&str) -> bool) -> Option<Vec<String>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let all_good = parts.iter().all(is_good);
    all_good.then(|| parts.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_page_is_one_of_the_web() {
        let good = "http://p.example:9090/graph";
        assert_eq!(OptionalSite::read(good, None), Ok(Some(good.to_owned())));
        assert_eq!(OptionalSite::read("", None), Ok(None));
        for bad in [
            "p.example",
            "javascript:alert(1)",
            "https://",
            "https://a b",
            "ftp://a",
        ] {
            assert!(OptionalSite::read(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn sites_and_hosts_are_lists_with_commas() {
        let pair = |one: &str, other: &str| Ok(vec![one.to_owned(), other.to_owned()]);
        let sites = SiteList::read("https://a.example, http://b:8000", None);
        assert_eq!(sites, pair("https://a.example", "http://b:8000"));
        assert_eq!(
            HostList::read("broker,b.example", None),
            pair("broker", "b.example")
        );
        assert_eq!(SiteList::read("", None), Ok(Vec::new()));
        assert_eq!(HostList::read("", None), Ok(Vec::new()));
        for bad in [
            "a.example",
            "https://",
            "https://a.example/page",
            ",",
            "any",
            "null",
        ] {
            assert!(SiteList::read(bad, None).is_err(), "{bad}");
        }
        for bad in ["a:7070", "a b", ",", "https://a", "*"] {
            assert!(HostList::read(bad, None).is_err(), "{bad}");
        }
    }
}
