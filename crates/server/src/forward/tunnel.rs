//! A WebSocket to the owner of another cell: once that has accepted it, bytes pass as they are.

use std::pin::Pin;

use axum::body::Body;
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use stafett_net::{Connection, Handover};
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};

/// Future that is done once the owner is lost.
type Lost = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Answers a client as the owner of its cell did; then its connection is that owner's.
pub(super) fn open(
    mut response: axum::http::Response<Incoming>,
    handover: &Handover,
    lost: Lost,
) -> Response {
    let upgrade = hyper::upgrade::on(&mut response);
    handover.give(Box::new(move |connection, received| {
        Box::pin(async move {
            let peer = connection.entry.peer;
            let ended = match upgrade.await {
                Ok(upgraded) => pass(connection, &received, TokioIo::new(upgraded), lost).await,
                Err(why) => Err(std::io::Error::other(why)),
            };
            if let Err(why) = ended {
                tracing::debug!(%peer, %why, "a WebSocket to another cell has ended");
            }
        })
    }));
    response.map(|_| Body::empty())
}

/// Passes bytes until one of both ends, this node stops, or the owner is lost.
async fn pass(
    mut connection: Connection,
    received: &[u8],
    mut owner: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    lost: Lost,
) -> std::io::Result<()> {
    let drain = connection.drain.clone();
    let passing = async {
        owner.write_all(received).await?;
        copy_bidirectional(&mut connection.stream, &mut owner).await
    };
    tokio::select! {
        passed = passing => passed.map(drop),
        () = drain.cancelled() => Ok(()),
        () = lost => Err(std::io::Error::other("the owner of the cell is lost")),
    }
}
