//! A WebSocket to the owner of another cell: once that has accepted it, bytes pass as they are.

use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use stafett_http::slot;
use stafett_net::stall::StallGuard;
use stafett_net::{Connection, Handover, WRITE_PACE};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy, split};
use tokio::time::timeout;

/// Time for the last words of the owner, once the client has left.
const END_MAX: Duration = Duration::from_secs(3);

/// Future that is done once the owner is lost.
type Lost = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Asks the owner of a cell for a WebSocket, and answers as it does. Then the connection is that owner's.
pub(super) async fn open(
    mut owner: SendRequest<Body>,
    request: Request,
    mut lost: Lost,
) -> hyper::Result<Response> {
    let handover: Option<Handover> = request.extensions().get().cloned();
    let mut response = tokio::select! {
        response = owner.send_request(request) => response?,
        () = &mut lost => return Ok(slot::closed().into_response()),
    };
    let is_accepted = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let Some(handover) = handover.filter(|_| is_accepted) else {
        return Ok(response.map(Body::new));
    };
    let upgrade = hyper::upgrade::on(&mut response);
    handover.give(Box::new(move |connection, received| {
        Box::pin(async move {
            let peer = connection.entry.peer;
            let ended = match upgrade.await {
                Ok(upgraded) => pass(connection, &received, TokioIo::new(upgraded), lost).await,
                Err(why) => Err(io::Error::other(why)),
            };
            if let Err(why) = ended {
                tracing::debug!(%peer, %why, "a WebSocket to another cell has ended");
            }
        })
    }));
    Ok(response.map(|_| Body::empty()))
}

/// Passes bytes until one side ends, this node stops, the owner is lost, or the client reads nothing for as
/// long as any client may.
async fn pass(
    connection: Connection,
    received: &[u8],
    owner: impl AsyncRead + AsyncWrite,
    lost: Lost,
) -> io::Result<()> {
    let Connection {
        stream, drain, entry, ..
    } = connection;
    let client = StallGuard::passing(stream, WRITE_PACE.grace, entry);
    let ((mut from_client, mut to_client), (mut from_owner, mut to_owner)) = (split(client), split(owner));
    let mut up = pin!(async {
        to_owner.write_all(received).await?;
        to_owner.flush().await?;
        copy(&mut from_client, &mut to_owner).await?;
        to_owner.shutdown().await
    });
    let mut down = pin!(async {
        copy(&mut from_owner, &mut to_client).await?;
        to_client.shutdown().await
    });
    tokio::select! {
        biased;
        ended = &mut down => ended,
        ended = &mut up => {
            ended?;
            timeout(END_MAX, down).await.unwrap_or(Ok(()))
        }
        () = drain.cancelled() => Ok(()),
        () = lost => Err(io::Error::other("the owner of the cell is lost")),
    }
}
