//! Rejects requests that a web page made a browser send, unless pages of its site are allowed.
//!
//! | header | [`Policy::Api`] | [`Policy::Origins`] |
//! |---|---|---|
//! | `Origin` | absent, that of the request itself, or a listed site | absent, or an allowed site |
//! | `Sec-Fetch-Site` | absent, `none` or `same-origin`; any with a listed site | without an `Origin`: likewise |
//! | `Host` | an address, `localhost`, or a listed name | any; compared with the `Origin` |
//!
//! A browser sends no `Origin` with an image, a script or a link, but says by `Sec-Fetch-Site` that a page of
//! another site has it. A foreign name as `Host` may resolve to this machine (DNS rebinding); to a browser,
//! pages under that name then have the same origin as this server. Programs send neither `Origin` nor
//! `Sec-Fetch-Site`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use crate::code::Code;
use crate::problem::Problem;

/// Clients that may use a router.
#[derive(Debug, Clone)]
pub enum Policy {
    /// Programs, and pages of the same origin and of listed sites, by an address or a listed name.
    Api(Access),
    /// Programs, and pages of these sites.
    Origins {
        allowed: Origins,
        /// Name of the setting that allows them.
        setting: &'static str,
    },
}

/// Sites and names beside this machine's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Sites whose pages are allowed, such as `https://console.example`.
    pub origins: Vec<String>,
    /// Names of hosts, without ports.
    pub hosts: Vec<String>,
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

    /// Refuses a request that [`Self::guard`] would refuse.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        self.origin(headers).map(drop)
    }

    /// Returns the site of the page that asks. `None` for a program.
    fn origin<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a HeaderValue>, Problem> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let origin = headers.get(header::ORIGIN);
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        match self {
            Self::Api(access) => access.origin(origin, site, host),
            Self::Origins { allowed, setting } => {
                let may = match origin {
                    Some(origin) => origin.to_str().is_ok_and(|origin| allowed.has(origin, host)),
                    None => *allowed == Origins::Any || matches!(site, None | Some(b"none" | b"same-origin")),
                };
                let why = || format!("pages of this site may not use this: see the setting {setting}");
                may.then_some(origin)
                    .ok_or_else(|| Problem::new(Code::CrossSite, why()))
            }
        }
    }
}

impl Access {
    /// Returns the site of the page that asks. `None` for a program.
    fn origin<'a>(
        &self,
        origin: Option<&'a HeaderValue>,
        site: Option<&[u8]>,
        host: Option<&str>,
    ) -> Result<Option<&'a HeaderValue>, Problem> {
        let text = origin.map(|origin| origin.to_str().unwrap_or_default());
        let is_listed = text.is_some_and(|text| self.origins.iter().any(|known| known == text));
        let is_own = text.is_none_or(|text| {
            authority(text).is_some_and(|its| host.is_some_and(|host| its.eq_ignore_ascii_case(host)))
        });
        if !is_listed && (!is_own || !matches!(site, None | Some(b"none" | b"same-origin"))) {
            let why = "pages of this site may not use this: see the setting http.origins";
            return Err(Problem::new(Code::CrossSite, why));
        }
        let is_known = |host: &str| {
            let name = without_port(host);
            is_machine(host) || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
        };
        if !host.is_some_and(is_known) {
            let why = "call the broker by the address of its machine, as localhost, or by a name in the setting \
                       http.hosts";
            return Err(Problem::new(Code::BadHost, why));
        }
        Ok(origin)
    }
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
    let is_preflight = request.method() == Method::OPTIONS
        && request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match (&*policy, &origin) {
        (Policy::Api(_), Some(_)) if is_preflight => preflight(),
        _ => next.run(request).await,
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
    response
}

/// Answers the CORS preflight of a page on a listed site.
fn preflight() -> Response {
    let told = [
        (
            header::ACCESS_CONTROL_ALLOW_METHODS,
            "GET, PUT, PATCH, POST, DELETE",
        ),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, idempotency-key",
        ),
    ];
    (StatusCode::NO_CONTENT, told).into_response()
}

/// Returns true for a request of a page that came from the host that it addresses.
#[must_use]
pub fn is_own_origin(headers: &HeaderMap) -> bool {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let its = text(header::ORIGIN).and_then(authority);
    its.is_some_and(|its| text(header::HOST).is_some_and(|host| its.eq_ignore_ascii_case(host)))
}

/// Returns host and port of an origin.
fn authority(origin: &str) -> Option<&str> {
    origin.split_once("://").map(|(_, authority)| authority)
}

/// Returns true for a page from a file, from this machine, or from the host that the request addresses.
fn is_near(origin: &str, host: Option<&str>) -> bool {
    if origin == "null" || origin.starts_with("file:") {
        return true;
    }
    let Some(authority) = authority(origin) else {
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
        let refused = policy.check(&headers.collect()).err();
        refused.map(|problem| problem.code.word())
    }

    fn origins(allowed: Origins) -> Policy {
        Policy::Origins {
            allowed,
            setting: "some.origins",
        }
    }

    #[test]
    fn the_api_is_for_programs_own_pages_and_listed_sites_by_known_hosts() {
        let own = Policy::Api(Access::default());
        let listed = Policy::Api(Access {
            origins: vec!["https://console.example".to_owned()],
            hosts: vec!["broker.example".to_owned()],
        });
        for (host, is_own, is_listed) in [
            ("127.0.0.1:7070", true, true),
            ("[::1]:7070", true, true),
            ("LocalHost", true, true),
            ("192.0.2.7", true, true),
            ("Broker.example:7070", false, true),
            ("broker.example.evil", false, false),
            ("localhost.example.org", false, false),
            ("", false, false),
            ("[x", false, false),
        ] {
            let refused = |is_good: bool| (!is_good).then_some("bad_host");
            assert_eq!(code(&own, &[("host", host)]), refused(is_own), "{host}");
            assert_eq!(code(&listed, &[("host", host)]), refused(is_listed), "{host}");
        }
        assert_eq!(code(&own, &[]), Some("bad_host"));
        for (origin, site, is_own, is_listed) in [
            (None, Some("none"), true, true),
            (None, Some("same-origin"), true, true),
            (None, Some("same-site"), false, false),
            (None, Some("cross-site"), false, false),
            (None, Some("x"), false, false),
            (Some("http://127.0.0.1:7070"), None, true, true),
            (Some("http://127.0.0.1:7070"), Some("same-origin"), true, true),
            (Some("http://127.0.0.1:7070"), Some("cross-site"), false, false),
            (Some("http://127.0.0.1:8000"), None, false, false),
            (Some("http://localhost:7070"), Some("same-site"), false, false),
            (Some("null"), None, false, false),
            (Some("file://"), None, false, false),
            (Some(""), None, false, false),
            (Some("https://console.example"), Some("cross-site"), false, true),
            (
                Some("https://console.example.evil"),
                Some("cross-site"),
                false,
                false,
            ),
        ] {
            let origin = origin.map(|origin| ("origin", origin));
            let site = site.map(|site| ("sec-fetch-site", site));
            let host = Some(("host", "127.0.0.1:7070"));
            let headers: Vec<_> = [host, origin, site].into_iter().flatten().collect();
            let refused = |is_good: bool| (!is_good).then_some("cross_site");
            assert_eq!(code(&own, &headers), refused(is_own), "{headers:?}");
            assert_eq!(code(&listed, &headers), refused(is_listed), "{headers:?}");
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
