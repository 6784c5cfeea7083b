//! Served APIs: every listed API answers in every listed version.

use std::collections::HashMap;

use stafett_kafka_wire::messages::*;
use stafett_kafka_wire::{ApiKey, DecodeLimits, Message, Request, frame};

use crate::group_offsets::commit;
use crate::peer::{Client, Server};
use crate::rights::{close, logged_in};

/// Sends a default request. Any readable answer is correct.
async fn ask<R: Request>(server: &Server, version: i16) {
    let mut client = server.client().await;
    client.send(version, &R::default()).await;
    let what = format!("{} {version}", R::KEY.name());
    let payload = client.frame().await;
    let payload = payload.expect(&what);
    let answer = frame::read_response::<R>(payload, version, DecodeLimits::default());
    assert!(answer.is_ok(), "{what} cannot be read");
}

/// Returns the versions that a broker lists.
pub(crate) async fn named(client: &mut Client) -> HashMap<ApiKey, (i16, i16)> {
    let response = client.call(0, &ApiVersionsRequest::default()).await;
    let rows = response.api_keys.into_iter();
    rows.map(|row| {
        let api = ApiKey::ALL.iter().find(|api| api.code() == row.api_key);
        (*api.unwrap(), (row.min_version, row.max_version))
    })
    .collect()
}

#[tokio::test]
async fn the_documentation_says_of_every_api_what_is_served() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(folder.join("../../docs/protocol-support.md")).unwrap();
    let server = Server::start().await;
    let named = named(&mut server.client().await).await;
    for api in ApiKey::ALL {
        let versions = api.versions();
        let range = if !named.contains_key(api) {
            "no".to_owned()
        } else if versions.min == versions.max {
            versions.min.to_string()
        } else {
            versions.to_string()
        };
        let row = format!("| {} | {range} ", api.name());
        let is_there = text.lines().any(|line| line.starts_with(&row));
        assert!(is_there, "docs/protocol-support.md has no row {row}");
    }
}

macro_rules! ask_for_each {
    ($($api:ident $request:ident $response:ident;)*) => {
        #[tokio::test]
        async fn every_api_that_is_named_is_answered_in_every_version() {
            let server = Server::start().await;
            let named = named(&mut server.client().await).await;
            $(
                // A produce request that wants no answer gets none.
                if named.contains_key(&ApiKey::$api) && ApiKey::$api != ApiKey::Produce {
                    for version in $request::VERSIONS {
                        ask::<$request>(&server, version).await;
                    }
                }
            )*
        }

        #[tokio::test]
        async fn no_api_that_is_named_tells_a_name_to_a_user_without_rules() {
            let server = Server::start().await;
            let mut open = server.client().await;
            open.create("hidden-topic", 1).await;
            let committed = open.call(9, &commit("hidden-group", "hidden-topic", 0, 7)).await;
            assert_eq!(committed.topics[0].partitions[0].error_code, 0);
            let named = named(&mut open).await;
            assert!(tells::<ListGroupsRequest>(&mut open).await, "what others may see is found");
            close(&server);
            $(
                if named.contains_key(&ApiKey::$api) && ApiKey::$api != ApiKey::Produce {
                    let mut ann = logged_in(&server, "ann").await;
                    assert!(!tells::<$request>(&mut ann).await, "{}", ApiKey::$api.name());
                }
            )*
        }
    };
}

/// Returns true if the answer to a default request, which asks for all in many APIs, has one of the names.
async fn tells<R: Request>(client: &mut Client) -> bool {
    client.send(R::VERSIONS.max, &R::default()).await;
    // Some end the connection.
    let payload = client.frame().await.unwrap_or_default();
    payload.windows(7).any(|bytes| bytes == b"hidden-")
}

stafett_kafka_wire::for_each_api!(ask_for_each);
