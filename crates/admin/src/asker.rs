//! Rejects requests that a web page made a browser send: any `Origin`, a `Sec-Fetch-Site` other than `none`,
//! or a `Host` that is absent or neither an address nor `localhost` (DNS rebinding).

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::refuse;

pub(crate) async fn check(request: Request, next: Next) -> Response {
    match refusal(request.headers()) {
        Some(why) => refuse(StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    }
}

fn refusal(headers: &HeaderMap) -> Option<&'static str> {
    let site = headers.get("sec-fetch-site");
    if headers.contains_key(header::ORIGIN) || site.is_some_and(|site| site != "none") {
        return Some("not from a web page");
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    // A foreign name may resolve to this machine; to a browser, pages under that name then have the same
    // origin as this server.
    if host.is_some_and(is_a_machine) {
        None
    } else {
        Some("ask by the address of this machine, or as localhost")
    }
}

/// Returns true for an address or `localhost`, with or without a port.
fn is_a_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn programs_may_ask_and_pages_may_not() {
        let with = |pairs: &[(HeaderName, &'static str)]| {
            let headers = pairs.iter().cloned();
            refusal(
                &headers
                    .map(|(name, value)| (name, HeaderValue::from_static(value)))
                    .collect(),
            )
        };
        for host in ["127.0.0.1:7070", "[::1]:7070", "LocalHost", "192.0.2.7"] {
            assert_eq!(with(&[(header::HOST, host)]), None, "{host}");
        }
        for host in ["example.org:7070", "localhost.example.org", "", "[x"] {
            assert!(with(&[(header::HOST, host)]).is_some(), "{host}");
        }
        assert!(with(&[]).is_some());
        let here = (header::HOST, "127.0.0.1");
        let site = || HeaderName::from_static("sec-fetch-site");
        assert!(with(&[here.clone(), (header::ORIGIN, "null")]).is_some());
        assert!(with(&[here.clone(), (site(), "same-origin")]).is_some());
        assert_eq!(with(&[here, (site(), "none")]), None);
    }
}
