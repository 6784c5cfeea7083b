//! Limits of virtual hosts.

use stafett_access::{Caller, Limit, Limited};
use stafett_amqp_wire::Method;
use stafett_amqp_wire::methods::{Channel, Connection, channel, connection};

use crate::support::Server;

#[tokio::test]
async fn a_channel_beyond_those_that_a_virtual_host_may_have_is_refused() {
    let server = Server::start().await;
    let access = server.broker.access();
    let of = Limited::Namespace("/".into());
    let limits = [(Limit::Channels, Some(2))];
    access.set_limits(&Caller::internal(), of, &limits).await.unwrap();
    // It opens a first channel.
    let mut client = server.client(true).await;
    client.send(2, channel::Open::default()).await;
    let opened = client.method().await;
    assert!(
        matches!(opened, Method::Channel(Channel::OpenOk(_))),
        "{opened:?}"
    );
    client.send(3, channel::Open::default()).await;
    let closed = client.method().await;
    let Method::Connection(Connection::Close(connection::Close {
        reply_code,
        reply_text,
        ..
    })) = closed
    else {
        panic!("{closed:?}");
    };
    let expected =
        "NOT_ALLOWED - number of channels opened in vhost '/' has reached the maximum allowed limit of (2)";
    assert_eq!((reply_code, &*reply_text), (530, expected));
}
