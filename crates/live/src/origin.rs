//! Decides whether a web page may use live topics. Clients other than browsers send no `Origin` and are
//! allowed.

use axum::http::{HeaderMap, HeaderValue, header};

use crate::settings::Origins;

/// Returns the allowed origin for the response headers. `None` without an `Origin` header; an error if it is
/// not allowed.
pub fn check(headers: &HeaderMap, allowed: &Origins) -> Result<Option<HeaderValue>, Refused> {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(None);
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let may = origin.to_str().is_ok_and(|origin| match allowed {
        Origins::Any => true,
        Origins::Near => is_near(origin, host),
        Origins::Listed(listed) => is_near(origin, host) || listed.iter().any(|known| known == origin),
    });
    if may {
        Ok(Some(origin.clone()))
    } else {
        Err(Refused)
    }
}

/// The origin is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// Returns true for a page from a file, from this machine, or from the host that the request addresses.
fn is_near(origin: &str, host: Option<&str>) -> bool {
    if origin == "null" || origin.starts_with("file:") {
        return true;
    }
    let Some((_, authority)) = origin.split_once("://") else {
        return false;
    };
    let name = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => authority.split(':').next(),
    };
    host == Some(authority) || matches!(name, Some("localhost" | "127.0.0.1" | "::1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(origin: &'static str, allowed: &Origins) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("broker.example:7070"));
        headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        check(&headers, allowed).is_ok()
    }

    #[test]
    fn pages_of_other_sites_are_refused_unless_they_are_listed() {
        let listed = Origins::Listed(vec!["https://songs.example".to_owned()]);
        for (origin, near, in_list) in [
            ("null", true, true),
            ("file://", true, true),
            ("http://localhost:8000", true, true),
            ("http://[::1]:8000", true, true),
            ("http://broker.example:7070", true, true),
            ("https://songs.example", false, true),
            ("https://localhost.evil.example", false, false),
            ("https://songs.example.evil", false, false),
        ] {
            assert_eq!(may(origin, &Origins::Near), near, "{origin}");
            assert_eq!(may(origin, &listed), in_list, "{origin}");
            assert!(may(origin, &Origins::Any));
        }
        assert_eq!(check(&HeaderMap::new(), &Origins::Near), Ok(None));
    }
}
