//! Scripts: a line per event, with the expected result behind an arrow.
//!
//! ```text
//! topic NAME PARTITIONS | delete NAME | passes MS | state | restart | limit MEMBERS
//! ID joins NAMES            names with commas between; ~PATTERN is a pattern; - is none
//! ID as INSTANCE joins …    as a static member
//! ID beats | ID acks        heartbeat without and with the list of its partitions, after obeying
//! ID says PARTITIONS        heartbeat with this list, obeying or not
//! ID wants NAMES            subscribes to other topics
//! ID prefers ASSIGNOR
//! ID leaves | ID pauses     permanently; as a static member that comes back
//! ID at EPOCH …             uses that epoch from here on
//! ID commits EPOCH PARTITIONS
//! ```

use super::world::{Client, World};
use crate::consumer::*;

pub(super) fn play(script: &str) {
    play_in(&mut World::default(), script);
}

pub(super) fn play_in(world: &mut World, script: &str) {
    for (number, line) in script.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (command, expected) = match line.split_once("=>") {
            Some((command, expected)) => (command.trim(), Some(expected.trim())),
            None => (line, None),
        };
        let words: Vec<_> = command.split_whitespace().collect();
        let found = perform(world, &words);
        world.check();
        if let Some(expected) = expected {
            assert_eq!(found, expected, "line {}: {line}", number + 1);
        }
    }
}

fn perform(world: &mut World, words: &[&str]) -> String {
    match words {
        ["topic", name, partitions] => world.topics.set(name, partitions.parse().unwrap()),
        ["delete", name] => world.topics.delete(name),
        ["limit", members] => world.rules.members_max = members.parse().unwrap(),
        ["restart"] => {
            super::restart::restart(world);
        }
        ["passes", ms] => {
            world.now_ms += ms.parse::<u64>().unwrap();
            let expired = world.group.on_tick(&world.rules, world.now_ms);
            let gone = expired.iter().map(|(id, why)| {
                world.clients.remove(&**id);
                format!("{id} {why:?}")
            });
            return gone.collect::<Vec<_>>().join(", ");
        }
        ["state"] => {
            let group = &world.group;
            return format!("{:?} {}/{}", group.state(), group.epoch(), group.target_epoch());
        }
        [id, "as", instance, "joins", wants] => return join(world, id, Some(instance), wants),
        [id, "joins", wants] => return join(world, id, None, wants),
        [id, "at", epoch] => world.clients.get_mut(*id).unwrap().epoch = epoch.parse().unwrap(),
        [id, "commits", epoch, partitions @ ..] => {
            let list: Vec<_> = partitions
                .iter()
                .map(|text| world.topics.partition(text))
                .collect();
            return match world.group.check_commit(id, epoch.parse().unwrap(), list) {
                Ok(()) => "fine".into(),
                Err(error) => variant(&error),
            };
        }
        [id, rest @ ..] => return report(world, id, rest),
        [] => {}
    }
    String::new()
}

fn wanted(wants: &str) -> (Vec<Box<str>>, Option<Box<str>>) {
    let words = || wants.split(',').filter(|word| *word != "-");
    let pattern = words().find_map(|word| word.strip_prefix('~')).map(Into::into);
    let names = words()
        .filter(|word| !word.starts_with('~'))
        .map(Into::into)
        .collect();
    (names, pattern)
}

fn join(world: &mut World, id: &str, instance: Option<&str>, wants: &str) -> String {
    let (names, pattern) = wanted(wants);
    let client = Client {
        instance: instance.map(Into::into),
        names,
        pattern,
        ..Client::default()
    };
    let answer = world.join(id, client);
    told(world, answer)
}

fn report(world: &mut World, id: &str, what: &[&str]) -> String {
    // A member that was removed does not know.
    let zombie = Client {
        epoch: 99,
        ..Client::default()
    };
    let client = world.clients.get(id).cloned().unwrap_or(zombie);
    let mut beat = Heartbeat {
        member: id.into(),
        epoch: client.epoch,
        instance: client.instance,
        ..Heartbeat::default()
    };
    match what {
        ["beats"] => {}
        ["acks"] => {
            world.obey(id);
            beat.owned = Some(world.clients[id].owned.clone());
        }
        ["says", partitions @ ..] => {
            let list = partitions.iter().map(|text| world.topics.partition(text));
            beat.owned = Some(list.collect());
        }
        ["wants", wants] => {
            let (names, pattern) = wanted(wants);
            beat.names = Some(names);
            beat.pattern = Some(pattern.unwrap_or_default());
        }
        ["prefers", assignor] => beat.assignor = Assignor::named(assignor),
        ["leaves"] => beat.epoch = EPOCH_LEAVE,
        ["pauses"] => beat.epoch = EPOCH_LEAVE_STATIC,
        other => panic!("unknown: {other:?}"),
    }
    let answer = world.beat(beat);
    match &answer {
        Ok(HeartbeatReply { epoch, .. }) if *epoch < 0 => {
            world.clients.remove(id);
        }
        Ok(answer) => world.hear(id, answer),
        Err(_) => {}
    }
    told(world, answer)
}

fn told(world: &World, answer: Result<HeartbeatReply, HeartbeatError>) -> String {
    let HeartbeatReply {
        epoch, assignment, ..
    } = match answer {
        Ok(answer) => answer,
        Err(error) => return variant(&error),
    };
    match assignment {
        None => epoch.to_string(),
        Some(assignment) => {
            let mut list: Vec<_> = assignment
                .as_slice()
                .iter()
                .map(|partition| format!(" {}{}", world.topics.name(partition.topic), partition.index))
                .collect();
            list.sort();
            format!("{epoch}:{}", list.concat())
        }
    }
}

fn variant(error: &impl std::fmt::Debug) -> String {
    let text = format!("{error:?}");
    text.split([' ', '(', '{']).next().unwrap().to_owned()
}
