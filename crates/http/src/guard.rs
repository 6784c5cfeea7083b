//! Rejects requests that a web page made a browser send, unless pages of its site are allowed.
//!
//! | header | [`Policy::Programs`] | [`Policy::Origins`] |
//! |---|---|---|
//! | `Origin` | absent | absent, or an allowed site |
//! | `Sec-Fetch-Site` | absent or `none` | without an `Origin`: also `same-origin` |
//! | `Host` | an address or `localhost` | any; compared with the `Origin` |
//!
//! A browser sends no `Origin` with an image, a script or a link, but says by `Sec-Fetch-Site` that a page of
//! another site has it. A foreign name as `Host` may resolve to this machine (DNS rebinding); to a browser,
//! pages under that name then have the same origin as this server.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;

/// Clients that may use a router.
#[derive(Debug, Clone)]
pub enum Policy {
    /// Programs, and no web pages.
    Programs,
    /// Programs, and pages of these sites.
    Origins {
        allowed: Origins,
        /// Name of the setting that allows them.
        setting: &'static str,
    },
}

/// Sites whose web pages are allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Origins {
    /// Pages from this machine, from files, and from the host that the request addresses.
    #[default]
    Near,
    /// As `Near`, and pages of these sites.
    Listed(Vec<String>),
    Any,
}

impl Policy {
    /// Guards all routes that have been added. Lets allowed pages read the responses.
    pub fn guard<S: Clone + Send + Sync + 'static>(self, routes: Router<S>) -> Router<S> {
        routes.route_layer(middleware::from_fn_with_state(Arc::new(self), check))
    }

    /// Returns the site of the page that asks. `None` for a program.
    fn origin<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a HeaderValue>, Problem> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let origin = headers.get(header::ORIGIN);
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        match self {
            Self::Programs if origin.is_some() || !matches!(site, None | Some(b"none")) => {
                Err(refusal("cross_site", "web pages may not use this, programs may"))
            }
            Self::Programs if !host.is_some_and(is_machine) => {
                let why = "call the broker by the address of its machine, or as localhost";
                Err(refusal("bad_host", why))
            }
            Self::Programs => Ok(None),
            Self::Origins { allowed, setting } => {
                let may = match origin {
                    Some(origin) => origin.to_str().is_ok_and(|origin| allowed.has(origin, host)),
                    None => *allowed == Origins::Any || matches!(site, None | Some(b"none" | b"same-origin")),
                };
                let why = || format!("pages of this site may not use this: see the setting {setting}");
                may.then_some(origin).ok_or_else(|| refusal("cross_site", why()))
            }
        }
    }
}

fn refusal(code: &'static str, why: impl Display) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, code, why)
}

impl Origins {
    fn has(&self, origin: &str, host: Option<&str>) -> bool {
        match self {
            Self::Any => true,
            Self::Near => is_near(origin, host),
            Self::Listed(listed) => is_near(origin, host) || listed.iter().any(|known| known == origin),
        }
    }
}

async fn check(State(policy): State<Arc<Policy>>, request: Request, next: Next) -> Response {
    let origin = match policy.origin(request.headers()) {
        Ok(origin) => origin.cloned(),
        Err(problem) => return problem.into_response(),
    };
    let mut response = next.run(request).await;
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// Returns true for a page from a file, from this machine, or from the host that the request addresses.
fn is_near(origin: &str, host: Option<&str>) -> bool {
    if origin == "null" || origin.starts_with("file:") {
        return true;
    }
    let Some((_, authority)) = origin.split_once("://") else {
        return false;
    };
    host == Some(authority) || matches!(without_port(authority), "localhost" | "127.0.0.1" | "::1")
}

/// Returns true for an address or `localhost`, with or without a port.
fn is_machine(host: &str) -> bool {
    let name = without_port(host);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn without_port(authority: &str) -> &str {
    let (rest, end) = match authority.strip_prefix('[') {
        Some(rest) => (rest, ']'),
        None => (authority, ':'),
    };
    rest.split(end).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    /// Returns the code of the refusal.
    fn code(policy: &Policy, headers: &[(&'static str, &'static str)]) -> Option<&'static str> {
        let headers = headers.iter().map(|(name, value)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        policy
            .origin(&headers.collect())
            .err()
            .map(|problem| problem.code)
    }

    fn origins(allowed: Origins) -> Policy {
        Policy::Origins {
            allowed,
            setting: "some.origins",
        }
    }

    #[test]
    fn programs_may_ask_and_pages_may_not() {
        let programs = Policy::Programs;
        for host in ["127.0.0.1:7070", "[::1]:7070", "LocalHost", "192.0.2.7"] {
            assert_eq!(code(&programs, &[("host", host)]), None, "{host}");
        }
        for host in ["example.org:7070", "localhost.example.org", "", "[x"] {
            let refused = code(&programs, &[("host", host)]);
            assert_eq!(refused, Some("bad_host"), "{host}");
        }
        assert_eq!(code(&programs, &[]), Some("bad_host"));
        for (header, refused) in [
            (("origin", "null"), Some("cross_site")),
            (("origin", "http://127.0.0.1"), Some("cross_site")),
            (("sec-fetch-site", "same-origin"), Some("cross_site")),
            (("sec-fetch-site", "none"), None),
        ] {
            assert_eq!(code(&programs, &[("host", "127.0.0.1"), header]), refused);
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused_unless_they_are_listed() {
        let near = origins(Origins::Near);
        let listed = origins(Origins::Listed(vec!["https://songs.example".to_owned()]));
        for (origin, is_near, is_listed) in [
            ("null", true, true),
            ("file://", true, true),
            ("http://localhost:8000", true, true),
            ("http://[::1]:8000", true, true),
            ("http://broker.example:7070", true, true),
            ("https://songs.example", false, true),
            ("https://localhost.evil.example", false, false),
            ("https://songs.example.evil", false, false),
        ] {
            // The origin decides, whatever the browser says of its relation to this server.
            let headers = [
                ("host", "broker.example:7070"),
                ("origin", origin),
                ("sec-fetch-site", "cross-site"),
            ];
            assert_eq!(code(&near, &headers).is_none(), is_near, "{origin}");
            assert_eq!(code(&listed, &headers).is_none(), is_listed, "{origin}");
            assert_eq!(code(&origins(Origins::Any), &headers), None);
        }
        assert_eq!(code(&near, &[]), None, "a program");
    }

    #[test]
    fn an_image_on_a_page_of_another_site_is_refused_although_it_has_no_origin() {
        for (site, refused) in [
            ("none", None),
            ("same-origin", None),
            ("same-site", Some("cross_site")),
            ("cross-site", Some("cross_site")),
        ] {
            let headers = [("host", "127.0.0.1:7070"), ("sec-fetch-site", site)];
            assert_eq!(code(&origins(Origins::Near), &headers), refused, "{site}");
            assert_eq!(code(&origins(Origins::Any), &headers), None, "{site}");
        }
    }
}
