//! Seats of clients at hosts, and plans that would compare clocks of different hosts.

use std::collections::BTreeSet;

use super::AgentAddress;
use crate::experiment::{Does, Experiment, FigureKind, Plan, Role};
use crate::workload::client_placement::{RoleSeats, Seating};
use crate::workload::derived_numbers;

/// Seats all clients of a plan at agents.
/// Fails where a role names an agent that is not there.
pub fn seat(plan: &Plan, agents: &[AgentAddress]) -> Result<Seating, String> {
    let mut roles = Vec::new();
    for (name, role) in &plan.roles {
        let mut hosts = hosts(name, role, agents)?;
        if role.does == Does::Assemble {
            return Err(format!(
                "roles.{name}: sessions are assembled on this machine, and not by agents"
            ));
        }
        if role.does == Does::Filter {
            // All clients of a filter ask the same memory about every message.
            hosts.truncate(1);
        }
        roles.push(RoleSeats {
            hosts,
            together: role.copies,
        });
    }
    Ok(Seating { host: 0, roles })
}

fn hosts(name: &str, role: &Role, agents: &[AgentAddress]) -> Result<Vec<u32>, String> {
    if role.on.is_empty() {
        return Ok((0..).zip(agents).map(|(host, _)| host).collect());
    }
    let place = |wanted: &String| {
        let found = (0..).zip(agents).find(|(_, agent)| agent.name == *wanted);
        found.map(|(host, _)| host).ok_or_else(|| {
            format!("roles.{name}.on: there is no agent `{wanted}`: give it with --agent {wanted}=HOST:PORT")
        })
    };
    role.on.iter().map(place).collect()
}

/// Refuses figures of a latency that no pair of sender and receiver on one host could give.
/// An error names the figure, the role and the hosts.
pub fn check_clocks(
    experiment: &Experiment,
    plan: &Plan,
    seating: &Seating,
    agents: &[AgentAddress],
) -> Result<(), String> {
    let is_delivery = |name: &String| name == "delivery" || name.starts_with("delivery_");
    let Some(figure) = experiment
        .figures
        .iter()
        .find(|figure| figure.kind != FigureKind::Time && figure.y.iter().any(is_delivery))
    else {
        return Ok(());
    };
    for (place, (name, role)) in plan.roles.iter().enumerate() {
        let here = used(seating, place, role);
        let senders: Vec<BTreeSet<u32>> = match role.does {
            Does::Consume => derived_numbers::producers(plan, role)
                .map(|(other, producer)| used(seating, other, producer))
                .collect(),
            // A relay's messages go from one of its clients to another: two of them have to sit on one host.
            Does::Relay if usize::try_from(role.clients).is_ok_and(|clients| clients > here.len()) => {
                continue;
            }
            Does::Relay => vec![BTreeSet::new()],
            Does::Produce
            | Does::Request
            | Does::Respond
            | Does::Filter
            | Does::Assemble
            | Does::Peek
            | Does::Idle => {
                continue;
            }
        };
        let is_measured = senders.is_empty() || senders.iter().any(|hosts| !hosts.is_disjoint(&here));
        if !is_measured {
            let names: Vec<&str> = (0..)
                .zip(agents)
                .filter(|(host, _)| here.contains(host))
                .map(|(_, agent)| agent.name.as_str())
                .collect();
            return Err(format!(
                "the figure `{}` asks for the time to delivery, and of what `{name}` receives on {} nothing is sent \
                 there: that would compare the clocks of two hosts. Seat senders and receivers on one host (`on`), or \
                 draw `acknowledged` or `round_trip`",
                figure.title,
                names.join(", ")
            ));
        }
    }
    Ok(())
}

/// The hosts that a role really has clients on.
fn used(seating: &Seating, place: usize, role: &Role) -> BTreeSet<u32> {
    let seats = seating.roles.get(place);
    let hosts = seats.map(|seats| seats.hosts.as_slice()).unwrap_or_default();
    let parties = role.clients.div_ceil(role.copies.max(1));
    let parties = usize::try_from(parties).unwrap_or(usize::MAX);
    hosts.iter().copied().take(parties).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Source;

    fn agents() -> Vec<AgentAddress> {
        AgentAddress::parse_all(&["a=h:1".to_owned(), "b=h:2".to_owned()]).unwrap()
    }

    fn placed(roles: &str) -> Result<Seating, String> {
        let source = Source::new(
            "x",
            format!(
                "question = \"?\"\nsystems = [\"stafett\"]\n{roles}\n[[figures]]\ntitle = \"T\"\nkind = \"bars\"\n\
                 x = \"system\"\ny = [\"delivery_p99_us\"]\n"
            ),
        );
        let experiment = source.experiment().unwrap();
        let plan = source.plan(1.0, &std::collections::BTreeMap::new()).unwrap();
        let seating = seat(&plan, &agents())?;
        check_clocks(&experiment, &plan, &seating, &agents())?;
        Ok(seating)
    }

    #[test]
    fn clients_sit_everywhere_or_where_their_role_says() {
        let seating =
            placed("[roles.p]\ndoes = \"produce\"\nclients = 4\n[roles.c]\ndoes = \"consume\"\non = [\"b\"]")
                .unwrap();
        assert_eq!(
            seating.roles[1].hosts,
            [0, 1],
            "roles stand in the order of their names"
        );
        assert_eq!(seating.roles[0].hosts, [1]);
    }

    #[test]
    fn whatever_does_not_compare_clocks_can_be_asked_and_filters_sit_together() {
        let text = "question = \"?\"\nsystems = [\"kafka\"]\n[topics.songs]\nfilter = \"1s\"\n[roles.p]\ndoes = \"produce\"\n\
                    clients = 4\nrate = { adaptive = { first = 1, p99 = \"1s\", every = \"1s\" } }\n[roles.q]\n\
                    does = \"produce\"\nahead = 10\n[roles.c]\ndoes = \"consume\"";
        let source = Source::new("x", text);
        let plan = source.plan(1.0, &std::collections::BTreeMap::new()).unwrap();
        let plan = crate::workload::filter::before(&plan, "kafka");
        let seating = seat(&plan, &agents()).unwrap();
        let hosts: Vec<_> = plan
            .roles
            .keys()
            .map(String::as_str)
            .zip(seating.roles.iter().map(|seats| seats.hosts.len()))
            .collect();
        assert_eq!(hosts, [("c", 2), ("p", 2), ("q", 2), ("songs-filter", 1)]);
    }

    #[test]
    fn what_would_compare_clocks_is_named() {
        for roles in [
            "[roles.p]\ndoes = \"produce\"\non = [\"a\"]\n[roles.c]\ndoes = \"consume\"\non = [\"b\"]",
            "[roles.c]\ndoes = \"relay\"\nclients = 2\n[topics.t]\ncount = 2",
        ] {
            let error = placed(roles).unwrap_err();
            assert!(error.contains("`T`") && error.contains("`c`"), "{error}");
            assert!(error.contains("clocks of two hosts"), "{error}");
        }
        let error =
            placed("[roles.p]\ndoes = \"produce\"\non = [\"c\"]\n[roles.q]\ndoes = \"consume\"").unwrap_err();
        assert!(error.contains("no agent `c`"), "{error}");
    }
}
