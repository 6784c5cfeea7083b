//! Requests that turn their connection into a WebSocket.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use stafett_net::{Handover, Next};
use stafett_ws::handshake;

use crate::code::Code;
use crate::problem::Problem;
use crate::slot;

/// A valid request for a WebSocket.
#[derive(Debug)]
pub struct Upgrade {
    handover: Handover,
    accept: HeaderValue,
    protocol: Option<&'static str>,
}

impl Upgrade {
    /// Returns true for the headers of a request for a WebSocket. Some clients offer other protocols with any
    /// request, such as Java's with `h2c`.
    #[must_use]
    pub fn is_wanted(headers: &HeaderMap) -> bool {
        let offers = headers.get_all(header::UPGRADE).iter();
        let mut protocols = offers
            .filter_map(|offer| offer.to_str().ok())
            .flat_map(|offer| offer.split(','));
        protocols.any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket"))
    }

    /// Reads a request; the first subprotocol of the client that is among `known` is chosen. The error is the
    /// answer to a request that is not valid.
    pub fn read(request: &Request, known: &[&'static str]) -> Result<Self, Box<Response>> {
        let accept = handshake::accept(request.method(), request.headers()).map_err(|why| {
            let told = [
                (header::UPGRADE, "websocket"),
                (header::SEC_WEBSOCKET_VERSION, "13"),
            ];
            Box::new((told, Problem::new(Code::NoWebsocket, why)).into_response())
        })?;
        let handover = request.extensions().get::<Handover>().cloned();
        Ok(Self {
            handover: handover.ok_or_else(|| Box::new(slot::closed().into_response()))?,
            accept,
            protocol: handshake::subprotocol(request.headers(), known),
        })
    }

    /// Returns the chosen subprotocol.
    #[must_use]
    pub fn protocol(&self) -> Option<&'static str> {
        self.protocol
    }

    /// Answers the request; its connection goes on as `next`.
    #[must_use]
    pub fn accept(self, next: Next) -> Response {
        self.handover.give(next);
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        if let Some(protocol) = self.protocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_protocols_that_a_client_offers_are_no_websocket() {
        for (offers, expected) in [
            (vec!["websocket"], true),
            (vec!["WebSocket"], true),
            (vec!["h2c, websocket"], true),
            (vec!["h2c", "websocket"], true),
            (vec!["h2c"], false),
            (vec!["websockets"], false),
            (vec![], false),
        ] {
            let mut headers = HeaderMap::new();
            for offer in &offers {
                headers.append(header::UPGRADE, HeaderValue::from_static(offer));
            }
            assert_eq!(Upgrade::is_wanted(&headers), expected, "{offers:?}");
        }
    }
}
