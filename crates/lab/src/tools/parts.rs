//! What every load tool can be told of: one role that sends, and one that receives from the same set, or none. All else
//! is refused by its name, before anything runs.

use std::time::Duration;

use crate::experiment::{Content, Delivery, Does, Plan, Rate, Role, Size, TopicKind, Topics};

/// The parts of a plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) senders: (&'a str, &'a Role),
    pub(super) receivers: Option<(&'a str, &'a Role)>,
    pub(super) topics: &'a Topics,
    /// The name of the set.
    pub(super) set: &'a str,
    /// Of every message.
    pub(super) size_bytes: u64,
    /// Messages per second of all senders together; without it they send as fast as they can.
    pub(super) rate: Option<f64>,
}

/// Whole seconds, as tools count, and at least one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) warmup_s: u32,
    pub(super) measured_s: u32,
    pub(super) zero: Zero,
}

/// When the time of a load begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zero {
    /// When the tool says.
    Told,
    /// When each of the programs has told of messages.
    AllHaveTold,
}

impl Times {
    pub(super) fn of(plan: &Plan, zero: Zero) -> Self {
        Self {
            warmup_s: whole(plan.run.warmup.0),
            measured_s: whole(plan.run.duration.0),
            zero,
        }
    }

    pub(super) fn all_s(self) -> u32 {
        self.warmup_s.saturating_add(self.measured_s)
    }
}

fn whole(time: Duration) -> u32 {
    let up = u64::from(time.subsec_nanos() > 0);
    u32::try_from(time.as_secs() + up).unwrap_or(u32::MAX).max(1)
}

impl<'a> Parts<'a> {
    /// # Errors
    /// Names what `tool` cannot be told.
    pub(super) fn of(plan: &'a Plan, tool: &str) -> Result<Self, String> {
        let mut senders = None;
        let mut receivers = None;
        for (name, role) in &plan.roles {
            let slot = match role.does {
                Does::Produce => &mut senders,
                Does::Consume => &mut receivers,
                Does::Relay | Does::Request | Does::Respond | Does::Filter | Does::Idle => {
                    let does = role.does.name();
                    return Err(format!(
                        "{tool} sends and receives, and cannot `{does}` (`{name}`)"
                    ));
                }
            };
            if slot.replace((name.as_str(), role)).is_some() {
                let does = role.does.name();
                return Err(format!(
                    "{tool} has one role that does `{does}`, and there are several"
                ));
            }
            if let Some(setting) = unknown(role) {
                return Err(format!("{tool} has no `{setting}` (`{name}`)"));
            }
        }
        let senders: (&str, &Role) =
            senders.ok_or_else(|| format!("{tool} needs a role that does `produce`"))?;
        let set_of = |role: &'a Role| {
            let only = || plan.topics.keys().next().map(String::as_str);
            role.topics.as_deref().or_else(only).unwrap_or_default()
        };
        let set = set_of(senders.1);
        if receivers.is_some_and(|(_, role): (&str, &Role)| set_of(role) != set) {
            return Err(format!(
                "{tool} receives from where it sends to, and not from elsewhere"
            ));
        }
        let topics = plan
            .topics
            .get(set)
            .ok_or_else(|| format!("there is no [topics.{set}]"))?;
        if topics.kind == TopicKind::Live {
            return Err(format!("{tool} has no live topics"));
        }
        if topics.zipf > 0.0 {
            return Err(format!("{tool} has no `zipf`"));
        }
        Ok(Self {
            senders,
            receivers,
            topics,
            set,
            size_bytes: size(senders.1, tool)?,
            rate: rate(senders.1, tool)?,
        })
    }
}

/// The first setting that no tool has.
fn unknown(role: &Role) -> Option<&'static str> {
    let settings = [
        ("duplicates", role.duplicates > 0.0),
        ("copies", role.copies != 1),
        ("ahead", role.ahead.is_some()),
        ("users", role.users != 1),
        ("follows", role.follows.is_some()),
        ("on", !role.on.is_empty()),
        ("commit", role.commit.is_some()),
        ("work", role.work.is_some()),
        ("total", role.total.is_some()),
        ("after", role.after.is_some()),
        ("arrive", role.arrive.is_some()),
        ("kill", role.kill.is_some()),
        (
            "delivery = \"exactly-once\"",
            role.delivery == Delivery::ExactlyOnce,
        ),
        ("content = { file }", matches!(role.content, Content::File(_))),
    ];
    settings
        .into_iter()
        .find_map(|(name, is_set)| is_set.then_some(name))
}

fn size(role: &Role, tool: &str) -> Result<u64, String> {
    match &role.size {
        Size::Fixed(bytes) => Ok(bytes.0),
        Size::Distributed(_) => Err(format!(
            "{tool} has one size for all messages, and no distribution of sizes"
        )),
    }
}

fn rate(role: &Role, tool: &str) -> Result<Option<f64>, String> {
    let lacks = |what: &str| Err(format!("{tool} has no rate that is `{what}`"));
    match &role.rate {
        Rate::Closed => Ok(None),
        Rate::Fixed(rate) => Ok(Some(*rate)),
        Rate::Poisson(_) => lacks("poisson"),
        Rate::Steps(_) => lacks("steps"),
        Rate::Adaptive(_) => lacks("adaptive"),
    }
}
