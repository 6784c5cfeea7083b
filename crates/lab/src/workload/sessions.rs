//! Sessions after P5 (section 2.1): messages with a key in common, which an app assembles and passes on.
//!
//! A producer has some sessions under way at once, and sends their messages in turn. All of them go to one
//! partition, the next ones to the next partition. A session ends by its last message, or where that does not
//! say so, by a time-out.

use crate::experiment::{Does, Plan, Session};

/// Place of a message among the sessions of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Number of the session.
    pub session: u64,
    /// True of the message that ends it.
    pub is_end: bool,
    /// Number of the sessions that are under way together.
    pub group: u64,
}

impl Session {
    /// Returns the place of the message with this number.
    pub fn fragment(&self, sequence: u64) -> Fragment {
        let (open, fragments) = (u64::from(self.open.max(1)), u64::from(self.fragments.max(1)));
        let group = sequence / (open * fragments);
        let within = sequence % (open * fragments);
        let session = group * open + within % open;
        Fragment {
            session,
            is_end: within / open + 1 == fragments && !self.is_unended(session),
            group,
        }
    }

    /// Returns true of a session whose last message does not end it.
    fn is_unended(&self, session: u64) -> bool {
        // Evenly spread: the whole part of the share grows by one.
        let up_to = |count: u64| (count as f64 * self.unended).floor();
        up_to(session + 1) > up_to(session)
    }
}

/// The plan as its clients play it: producers of a set that is assembled send there, for readers get the
/// records that the app passes on.
pub fn arranged(plan: &Plan) -> Plan {
    let mut arranged = plan.clone();
    for assembler in plan.roles.values().filter(|role| role.does == Does::Assemble) {
        let session = assembler.session.clone().unwrap_or_default();
        for role in arranged.roles.values_mut() {
            if role.does == Does::Produce && role.topics == assembler.topics {
                role.via.clone_from(&assembler.topics);
                role.topics.clone_from(&assembler.to);
                role.session = Some(session.clone());
            }
        }
    }
    arranged
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiment::Source;

    #[test]
    fn sessions_that_are_under_way_together_end_together() {
        let session = Session {
            fragments: 3,
            open: 2,
            unended: 0.25,
            ..Session::default()
        };
        let mut sessions: BTreeMap<u64, Vec<Fragment>> = BTreeMap::new();
        for sequence in 0..24 {
            let fragment = session.fragment(sequence);
            sessions.entry(fragment.session).or_default().push(fragment);
        }
        assert_eq!(sessions.len(), 8);
        for (number, fragments) in &sessions {
            assert_eq!(fragments.len(), 3);
            assert!(fragments.iter().all(|fragment| fragment.group == number / 2));
            let ends: Vec<bool> = fragments.iter().map(|fragment| fragment.is_end).collect();
            assert_eq!(ends, [false, false, number % 4 != 3], "session {number}");
        }
    }

    #[test]
    fn producers_of_an_assembled_set_send_for_its_readers() {
        let text = "question = \"?\"\nsystems = [\"stafett\"]\n[topics.fragments]\n[topics.whole]\n\
                    [roles.p]\ndoes = \"produce\"\ntopics = \"fragments\"\n\
                    [roles.a]\ndoes = \"assemble\"\ntopics = \"fragments\"\nto = \"whole\"\n\
                    [roles.c]\ndoes = \"consume\"\ntopics = \"whole\"";
        let plan = Source::new("x", text).plan(1.0, &BTreeMap::new()).unwrap();
        let arranged = arranged(&plan);
        assert_eq!(arranged.roles["p"].via.as_deref(), Some("fragments"));
        assert_eq!(arranged.roles["p"].topics.as_deref(), Some("whole"));
        assert_eq!(arranged.roles["p"].session, Some(Session::default()));
        assert_eq!(arranged.roles["c"], plan.roles["c"]);
        assert_eq!(arranged.roles["a"], plan.roles["a"]);
    }
}
