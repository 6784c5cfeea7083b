//! The state machine, as scripts.
//!
//! A line is what somebody does; the lines with `>` behind it are all that is said because of it.
//!
//! ```text
//! join NAME [as ID] [static INSTANCE] [knows A,B] [likes TEXT] [for PURPOSE] [session MS] [rebalance MS] [v4] [v9]
//! sync ID GENERATION [ID=TEXT …] [static INSTANCE] [believes STRATEGY]
//! beat ID GENERATION [static INSTANCE] │ commit ID GENERATION │ leave ID … │ leave static INSTANCE
//! +MS │ restart
//! ```
//!
//! Whoever joins without `as` gets its name as its id.

use std::collections::HashMap;

use super::super::effects::{Answer, Effects, Store, Wait};
use super::*;

struct Script {
    group: ClassicGroup,
    now: Moment,
    waits: HashMap<Wait, String>,
    next: u64,
    stored: Vec<u8>,
    said: Vec<String>,
    members_max: usize,
    delay: u32,
}

/// Runs a script, and gives the group as it is then.
fn run(text: &str) -> ClassicGroup {
    let mut script = Script {
        group: ClassicGroup::default(),
        now: Moment(1000),
        waits: HashMap::new(),
        next: 0,
        stored: Vec::new(),
        said: Vec::new(),
        members_max: 3,
        delay: 50,
    };
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .peekable();
    while let Some(line) = lines.next() {
        let mut expected = Vec::new();
        while let Some(said) = lines.next_if(|next| next.starts_with('>')) {
            expected.push(said[1..].trim().to_owned());
        }
        script.perform(line);
        script.said.sort();
        expected.sort();
        assert_eq!(script.said, expected, "after `{line}` at {:?}", script.now);
        script.said.clear();
    }
    script.group
}

impl Script {
    #[expect(clippy::too_many_lines, reason = "a table of commands")]
    fn perform(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let option = |name| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1).copied()
        };
        let instance = option("static").map(Box::<str>::from);
        let mut effects = Effects::default();
        match words[0] {
            "join" => {
                let wait = self.wait(words[1]);
                let names = option("knows").unwrap_or("range").split(',');
                let metadata = Bytes::copy_from_slice(option("likes").unwrap_or("").as_bytes());
                let number = |name, or| option(name).map_or(or, |text| text.parse().unwrap());
                let join = Join {
                    member: option("as").unwrap_or("").into(),
                    new_id: words[1].into(),
                    instance,
                    client_id: "client".into(),
                    client_host: "host".into(),
                    purpose: option("for").unwrap_or("consumer").into(),
                    strategies: names
                        .filter(|name| !name.is_empty())
                        .map(|name| Strategy {
                            name: name.into(),
                            metadata: metadata.clone(),
                        })
                        .collect(),
                    session_ms: number("session", 10_000),
                    rebalance_ms: number("rebalance", 60_000),
                    must_know_id: words.contains(&"v4") || words.contains(&"v9"),
                    may_skip_assignment: words.contains(&"v9"),
                };
                let limits = JoinLimits {
                    members_max: self.members_max,
                    initial_delay_ms: self.delay,
                };
                self.group.join(join, wait, self.now, &limits, &mut effects);
            }
            "sync" => {
                let wait = self.wait(words[1]);
                let given = words.iter().filter_map(|word| word.split_once('='));
                let sync = Sync {
                    member: words[1].into(),
                    instance,
                    generation: words[2].parse().unwrap(),
                    purpose: None,
                    strategy: option("believes").map(Into::into),
                    assignments: given
                        .map(|(id, text)| (id.into(), Bytes::copy_from_slice(text.as_bytes())))
                        .collect(),
                };
                self.group.sync(sync, wait, self.now, &mut effects);
            }
            "beat" => {
                let beat =
                    self.group
                        .heartbeat(words[1], instance.as_deref(), words[2].parse().unwrap(), self.now);
                self.said.push(said(&beat));
            }
            "commit" => {
                let epoch = words[2].parse().unwrap();
                let member = words[1].trim_matches('-');
                let by = CommittedBy {
                    member,
                    instance: instance.as_deref(),
                    epoch,
                };
                let checked = self.group.check_commit(&by, self.now);
                self.said.push(said(&checked));
            }
            "leave" => {
                let ids = if instance.is_some() {
                    vec![""]
                } else {
                    words[1..].to_vec()
                };
                let leaves: Vec<_> = ids
                    .iter()
                    .map(|id| Leave {
                        member: (*id).into(),
                        instance: instance.clone(),
                    })
                    .collect();
                let left = self.group.leave(&leaves, self.now, &mut effects);
                self.said.extend(left.iter().map(said));
            }
            "restart" => {
                self.group = ClassicGroup::decode(&self.stored, self.now).unwrap();
                self.waits.clear();
            }
            other => {
                let end = Moment(self.now.0 + other[1..].parse::<u64>().unwrap());
                while let Some(due) = self.group.deadline().filter(|due| *due <= end) {
                    self.now = due;
                    let mut effects = Effects::default();
                    self.group.tick(self.now, &mut effects);
                    assert!(
                        self.group.deadline().is_none_or(|next| next > due),
                        "time goes on"
                    );
                    self.follow(effects);
                }
                self.now = end;
            }
        }
        self.follow(effects);
        self.check();
    }

    fn wait(&mut self, name: &str) -> Wait {
        let wait = Wait(self.next);
        self.next += 1;
        self.waits.insert(wait, name.to_owned());
        wait
    }

    fn follow(&mut self, effects: Effects) {
        for (wait, answer) in effects.answers {
            let who = self.waits.remove(&wait).expect("who waits is answered once");
            let text = match answer {
                Answer::Join(Ok(joined)) => {
                    let strategy = joined.strategy.unwrap_or_default();
                    let members: Vec<_> = joined.members.iter().map(|member| &*member.id).collect();
                    let members = if members.is_empty() {
                        String::new()
                    } else {
                        format!(" [{}]", members.join(" "))
                    };
                    let skips = if joined.skip_assignment { " skips" } else { "" };
                    let (id, generation, leader) = (joined.member, joined.generation, joined.leader);
                    let id = if *id == *who {
                        String::new()
                    } else {
                        format!(" as {id}")
                    };
                    format!("{who} joined{id} {generation} {strategy} led by {leader}{members}{skips}")
                }
                Answer::Join(Err(NotJoined { error, member })) => {
                    format!("{who} not joined as `{member}`: {error:?}")
                }
                Answer::Sync(Ok(synced)) => {
                    format!("{who} gets `{}`", String::from_utf8_lossy(&synced.assignment))
                }
                Answer::Sync(Err(error)) => format!("{who} gets nothing: {error:?}"),
            };
            self.said.push(text);
        }
        if effects.store == Store::Whole {
            self.stored.clear();
            self.group.encode(&mut self.stored);
            self.said.push("stored".into());
        }
    }

    /// What always holds.
    fn check(&self) {
        let group = &self.group;
        let waiting = group
            .members
            .values()
            .flat_map(|member| [member.joining, member.syncing]);
        let waiting: Vec<_> = waiting.flatten().collect();
        assert_eq!(
            waiting.len(),
            self.waits.len(),
            "whoever is not answered is known to wait"
        );
        if let Some(leader) = &group.leader {
            assert!(group.members.contains_key(leader), "the leader is a member");
        }
        for (instance, id) in &group.instances {
            assert_eq!(group.members[id].instance.as_ref(), Some(instance));
        }
        let empty = group.members.is_empty();
        assert!(!group.is_empty() || empty, "an empty group has no members");
    }
}

fn said(result: &Result<(), GroupError>) -> String {
    match result {
        Ok(()) => "ok".into(),
        Err(error) => format!("{error:?}"),
    }
}

/// Two members in their first generation, with what they were given.
const TWO: &str = "
    join a
    +10
    join b
    +39
    +1
    +50
    > a joined 1 range led by a [a b]
    > b joined 1 range led by a
    sync b 1
    sync a 1 a=x b=y
    > a gets `x`
    > b gets `y`
    > stored
";

fn after_two(script: &str) -> ClassicGroup {
    run(&format!("{TWO}{script}"))
}

#[test]
fn the_first_generation_waits_a_moment_for_more_members() {
    let group = after_two("beat a 1\n> ok\nbeat b 1\n> ok\n");
    assert_eq!((group.generation(), group.members.len()), (1, 2));
    assert!(group.is_stable());
}

#[test]
fn a_member_that_comes_starts_a_generation_that_waits_for_all() {
    after_two(
        "join c
        beat a 1
        > Rebalancing
        join a as a
        join b as b
        > a joined 2 range led by a [a b c]
        > b joined 2 range led by a
        > c joined 2 range led by a
        beat a 2
        > ok
        commit a 2
        > Rebalancing
        sync a 2 a=1 b=2 c=3
        > a gets `1`
        > stored
        sync c 2
        > c gets `3`
        commit a 2
        > ok
        commit b 1
        > OtherGeneration",
    );
}

#[test]
fn a_dynamic_member_comes_twice_and_is_counted_once() {
    run("join a v4
        > a not joined as `a`: MemberIdRequired
        join a as a v4
        +50
        > a joined 1 range led by a [a]
        sync a 1 a=x
        > a gets `x`
        > stored");
}

#[test]
fn an_id_that_nobody_comes_with_is_forgotten() {
    let group = run("join a v4
        > a not joined as `a`: MemberIdRequired
        +10000
        join a as a
        > a not joined as `a`: UnknownMember");
    assert!(group.is_empty() && group.pending_members() == 0);
}

#[test]
fn a_generation_waits_for_ids_that_were_given_out_but_not_for_ever() {
    after_two(
        "join c v4
        > c not joined as `c`: MemberIdRequired
        join a as a
        join b as b
        +10000
        > a joined 2 range led by a [a b]
        > b joined 2 range led by a",
    );
}

#[test]
fn a_silent_member_is_sent_away() {
    let group = after_two(
        "+5000
        beat a 1
        > ok
        +5000
        beat a 1
        > Rebalancing
        join a as a
        > a joined 2 range led by a [a]
        beat b 1
        > UnknownMember",
    );
    assert_eq!(group.members.len(), 1);
}

#[test]
fn a_group_whose_members_are_all_silent_is_empty() {
    let group = after_two("+10000\n> stored\ncommit - -1\n> ok");
    assert!(group.is_empty());
    assert_eq!((group.generation(), group.strategy()), (2, None));
    assert_eq!(group.purpose(), Some("consumer"));
}

#[test]
fn who_does_not_join_in_time_is_left_behind() {
    run("join a rebalance 5000
        join b rebalance 5000
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync a 1
        > a gets ``
        > stored
        sync b 1
        > b gets ``
        join a as a rebalance 5000
        +4000
        beat b 1
        > Rebalancing
        +1000
        > a joined 2 range led by a [a]
        beat b 2
        > UnknownMember");
}

#[test]
fn a_member_that_leaves_is_gone_at_once() {
    after_two(
        "leave b
        > ok
        leave b
        > UnknownMember
        join a as a
        > a joined 2 range led by a [a]
        leave a
        > ok
        > stored",
    );
}

#[test]
fn when_the_leader_leaves_another_leads() {
    after_two(
        "leave a
        > ok
        join b as b
        > b joined 2 range led by b [b]",
    );
}

#[test]
fn members_who_have_no_strategy_in_common_do_not_meet() {
    after_two(
        "join c knows roundrobin
        > c not joined as ``: NoCommonStrategy
        join c for connect
        > c not joined as ``: NoCommonStrategy
        join a as a knows roundrobin
        > a not joined as `a`: NoCommonStrategy
        beat a 1
        > ok",
    );
    run("join a knows ,
        > a not joined as ``: NoCommonStrategy");
}

#[test]
fn the_strategy_that_most_like_best_wins() {
    run("join a knows x,y,z
        join b knows y,x
        join c knows y,z,x
        +150
        > a joined 1 y led by a [a b c]
        > b joined 1 y led by a
        > c joined 1 y led by a
        sync a 1 believes x
        > a gets nothing: NoCommonStrategy");
}

#[test]
fn a_member_that_missed_its_answer_gets_it_again() {
    after_two(
        "join b as b
        > b joined 1 range led by a
        sync b 1
        > b gets `y`
        join a as a
        join b as b
        > a joined 2 range led by a [a b]
        > b joined 2 range led by a
        join a as a
        > a joined 2 range led by a [a b]",
    );
}

#[test]
fn a_member_that_asks_twice_is_answered_twice() {
    run("join a
        join b
        join a as a
        > a not joined as `a`: Rebalancing
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync b 1
        sync b 1
        > b gets nothing: Rebalancing
        sync a 1 b=y
        > a gets ``
        > b gets `y`
        > stored");
}

#[test]
fn members_that_wait_for_the_leader_hear_that_the_group_changes() {
    run("join a
        join b
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync b 1
        join c
        > b gets nothing: Rebalancing
        sync a 1 a=x
        > a gets nothing: Rebalancing
        join a as a
        join b as b
        > a joined 2 range led by a [a b c]
        > b joined 2 range led by a
        > c joined 2 range led by a");
}

#[test]
fn a_leader_that_never_decides_is_sent_away() {
    run("join a rebalance 5000 session 6000
        join b rebalance 5000 session 6000
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync b 1
        +3000
        beat a 1
        > ok
        +2000
        > b gets nothing: Rebalancing
        join b as b
        > b joined 2 range led by b [b]");
}

#[test]
fn a_full_group_takes_nobody_and_says_so() {
    after_two(
        "join c
        join d
        join a as a
        join b as b
        > b not joined as ``: Full
        > a joined 2 range led by a [a c d]
        > c joined 2 range led by a
        > d joined 2 range led by a
        join e
        > e not joined as ``: Full
        join e v4
        > e not joined as ``: Full
        join a as a
        > a joined 2 range led by a [a c d]",
    );
    run("join a v4
        > a not joined as `a`: MemberIdRequired
        join b v4
        > b not joined as `b`: MemberIdRequired
        join c v4
        > c not joined as `c`: MemberIdRequired
        join d v4
        > d not joined as ``: Full
        join a as a v4");
}

#[test]
fn a_static_member_comes_back_without_a_new_generation() {
    run("join a static one
        join b static two
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync a 1 a=x b=y
        > a gets `x`
        > stored
        sync b 1
        > b gets `y`
        join b2 static two
        > b2 joined 1 range led by a
        > stored
        sync b2 1
        > b2 gets `y`
        beat b 1 static two
        > FencedInstance
        beat b 1
        > UnknownMember
        beat b2 1 static two
        > ok");
}

#[test]
fn a_static_leader_that_comes_back_is_told_not_to_decide() {
    run("join a static one v9
        join b static two v9
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync a 1 a=x b=y
        > a gets `x`
        > stored
        sync b 1
        > b gets `y`
        join a2 static one v9
        > a2 joined 1 range led by a2 [a2 b] skips
        > stored
        join a3 static one v4
        > a3 joined 1 range led by a2
        > stored");
}

#[test]
fn a_static_member_that_comes_back_changed_starts_a_generation() {
    run("join a static one knows x,y
        join b static two knows x,y
        +100
        > a joined 1 x led by a [a b]
        > b joined 1 x led by a
        sync a 1 a=x b=y
        > a gets `x`
        > stored
        sync b 1
        > b gets `y`
        join b2 static two knows y
        beat a 1
        > Rebalancing
        join a as a static one knows x,y
        > a joined 2 y led by a [a b2]
        > b2 joined 2 y led by a");
}

#[test]
fn a_static_member_that_is_away_for_a_moment_stays() {
    run("join a static one rebalance 5000
        join b static two rebalance 5000
        +100
        > a joined 1 range led by a [a b]
        > b joined 1 range led by a
        sync a 1 a=x b=y
        > a gets `x`
        > stored
        sync b 1
        > b gets `y`
        join a as a static one rebalance 5000
        +5000
        > a joined 2 range led by a [a b]
        sync a 2 a=x b=z
        > a gets `x`
        > stored
        join b2 static two
        > b2 joined 2 range led by a
        > stored
        sync b2 2
        > b2 gets `z`");
}

#[test]
fn a_second_self_fences_the_first_while_it_waits() {
    run("join a static one
        +10
        join a2 static one
        > a not joined as `a`: FencedInstance
        +90
        > a2 joined 1 range led by a2 [a2]
        sync a 1 static one
        > a gets nothing: FencedInstance
        sync a2 1 a2=z static one
        > a2 gets `z`
        > stored
        leave static one
        > ok
        > stored
        leave static one
        > UnknownMember");
}

#[test]
fn a_zombie_of_an_old_generation_does_nothing() {
    after_two(
        "leave b
        > ok
        join a as a
        > a joined 2 range led by a [a]
        sync a 1 a=z
        > a gets nothing: OtherGeneration
        beat a 1
        > OtherGeneration
        sync b 1
        > b gets nothing: UnknownMember
        commit b 1
        > UnknownMember
        commit - -1
        > UnknownMember
        sync a 2 a=z
        > a gets `z`
        > stored",
    );
}

#[test]
fn members_go_on_after_a_restart() {
    let group = after_two(
        "+5000
        restart
        +9999
        beat a 1
        > ok
        beat b 1
        > ok
        sync b 1
        > b gets `y`
        join b as b
        > b joined 1 range led by a
        commit a 1
        > ok",
    );
    assert!(group.is_stable());
}

#[test]
fn a_restart_within_a_rebalance_goes_back_to_the_last_generation() {
    after_two(
        "join c
        restart
        beat a 1
        > ok
        join c as c
        > c not joined as `c`: UnknownMember",
    );
}

#[test]
fn what_is_stored_reads_back_and_cut_ones_do_not() {
    let group = after_two("");
    let mut bytes = Vec::new();
    group.encode(&mut bytes);
    let again = ClassicGroup::decode(&bytes, Moment(0)).unwrap();
    let mut second = Vec::new();
    again.encode(&mut second);
    assert_eq!(bytes, second);
    for cut in 0..bytes.len() {
        assert!(
            ClassicGroup::decode(&bytes[..cut], Moment(0)).is_none(),
            "cut at {cut}"
        );
    }
}
