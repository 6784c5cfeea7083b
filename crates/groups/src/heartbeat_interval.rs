//! Heartbeat interval of members of consumer groups.
//!
//! A member learns of a change with its heartbeat, so the interval bounds the duration of a rebalance. The
//! interval grows with the number of members, to bound the heartbeats per second. A member that waits for
//! partitions to be released by others gets a shorter one, as far as that bound allows.

use super::consumer::Rules;

/// Shortest interval of a member that waits for partitions, in ms.
const WAITING_MS: u32 = 200;

/// Returns the ms until the next heartbeat, for `members` members of this broker, which together send at most
/// `per_second` heartbeats a second.
pub(super) fn heartbeat_ms(rules: &Rules, waits: bool, members: usize, per_second: u32) -> u32 {
    let members = u64::try_from(members).unwrap_or(u64::MAX);
    let all = members.saturating_mul(1000) / u64::from(per_second.max(1));
    let least = if waits { WAITING_MS } else { rules.heartbeat_ms_min };
    u32::try_from(all)
        .unwrap_or(u32::MAX)
        .max(least)
        .min(rules.heartbeat_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::RuleOverrides;

    #[test]
    fn few_members_report_often_and_many_as_often_as_all_together_may() {
        let rules = Rules::default();
        for (waits, members, expected) in [
            (false, 1, 1000),
            (true, 1, 200),
            (true, 1000, 500),
            (false, 2000, 1000),
            (true, 2000, 1000),
            (false, 4000, 2000),
            (false, 10_000, 5000),
            (true, usize::MAX, 5000),
        ] {
            let told = heartbeat_ms(&rules, waits, members, 2000);
            assert_eq!(told, expected, "{members} members, waits: {waits}");
        }
    }

    #[test]
    fn what_is_set_for_a_group_holds_but_for_a_member_that_waits() {
        let set = RuleOverrides {
            session_ms: None,
            heartbeat_ms: Some(7000),
        };
        let rules = set.over(Rules::default());
        assert_eq!(heartbeat_ms(&rules, false, 1, 2000), 7000);
        assert_eq!(heartbeat_ms(&rules, false, 1_000_000, 2000), 7000);
        assert_eq!(heartbeat_ms(&rules, true, 1, 2000), 200);
    }
}
