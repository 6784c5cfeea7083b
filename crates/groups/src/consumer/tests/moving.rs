//! Number of moved partitions and of rounds when members join and leave.

use super::world::{Client, World};
use crate::consumer::*;

fn world(members: usize, partitions: u32) -> World {
    let mut world = World::default();
    world.topics.set("t", partitions);
    for member in 0..members {
        world.join(&format!("m{member:02}"), wants("t")).unwrap();
    }
    world.settle();
    world
}

fn wants(name: &str) -> Client {
    Client {
        names: vec![name.into()],
        ..Client::default()
    }
}

fn loads(world: &World) -> Vec<usize> {
    let mut loads: Vec<_> = world
        .group
        .members()
        .map(|member| member.assigned.len())
        .collect();
    loads.sort_unstable();
    loads
}

fn moved(before: &World, after: &World) -> usize {
    let members = after.clients.iter();
    members
        .map(|(id, client)| {
            let had = before
                .clients
                .get(id)
                .map(|client| client.owned.clone())
                .unwrap_or_default();
            client
                .owned
                .as_slice()
                .iter()
                .filter(|partition| !had.contains(**partition))
                .count()
        })
        .sum()
}

#[test]
fn a_member_that_comes_takes_its_share_and_nothing_else_moves() {
    let before = world(49, 500);
    let mut after = world(49, 500);
    after.join("new", wants("t")).unwrap();
    let rounds = after.settle();
    assert_eq!(loads(&after), vec![10; 50]);
    assert_eq!(moved(&before, &after), 10);
    assert!(rounds <= 2, "{rounds}");
}

#[test]
fn what_a_leaving_member_had_is_shared_and_nothing_else_moves() {
    let before = world(50, 500);
    let mut after = world(50, 500);
    after
        .beat(Heartbeat {
            member: "m07".into(),
            epoch: EPOCH_LEAVE,
            ..Heartbeat::default()
        })
        .unwrap();
    after.clients.remove("m07");
    let rounds = after.settle();
    let loads = loads(&after);
    assert_eq!((loads[0], loads[48]), (10, 11));
    assert_eq!(moved(&before, &after), 10);
    assert!(rounds <= 1, "{rounds}");
}
