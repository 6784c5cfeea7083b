//! Load from several machines: agents run the clients, one controller gives orders and puts their results
//! together.
//!
//! ```text
//! controller                                   each agent
//! ── introduction, both prove that they know the secret ──
//! Prepare(plan, seats, system)  ──────────▶    connects receivers
//!                               ◀──────────    Progress: connected
//! Begin, to all at once         ──────────▶    load, on its own clock
//!                               ◀──────────    Seconds, Progress
//! Rate, Allow, Over, End, Stop  ──────────▶
//!                               ◀──────────    Done: counts, histograms, messages one by one
//! ```
//!
//! Clocks of two hosts are never compared: every moment is of the host where it is used. A message that was
//! sent on one host and received on another counts and has no latency. An agent that vanishes, or
//! reports impossible numbers, is that point's result.
//!
//! A program with other clients ([`crate::clients`]) gets the same orders over pipes, and runs a load alone.
//!
//! - [`protocol`]: messages and frames; [`proof`]: the right to give orders
//! - [`host`], `session`: the agent
//! - `link`, [`controller`]: the controller's connections; `following`: conclusions from reports, with
//!   `phases` (the order of events), `credits` (bounds on messages in flight) and `merge` (one result out of
//!   many)
//! - [`placement`]: the seats of clients, and figures that would compare clocks

pub mod controller;
mod credits;
mod following;
pub mod host;
pub(crate) mod link;
mod merge;
mod phases;
pub mod placement;
pub mod proof;
pub mod protocol;
mod session;
#[cfg(test)]
mod simulated;

use std::fmt;

pub use controller::Crew;
pub use host::{Agent, attend};

/// Address of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAddress {
    /// Name in the experiment.
    pub name: String,
    /// `HOST:PORT`.
    pub address: String,
}

impl fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent `{}` at {}", self.name, self.address)
    }
}

const NAME_BYTES_MAX: usize = 100;

impl AgentAddress {
    /// Reads `HOST:PORT` or `NAME=HOST:PORT`; without a name it is called by its number.
    /// Fails where it is neither.
    pub fn parse(text: &str, number: usize) -> Result<Self, String> {
        let (name, address) = match text.split_once('=') {
            Some((name, address)) => (name.to_owned(), address),
            None => (number.to_string(), text),
        };
        let is_address = address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        // A file is named for it.
        let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '_' | '-');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_name) || !is_address {
            return Err(format!(
                "`{text}` is no agent: expected HOST:PORT or NAME=HOST:PORT, the name of letters, digits, `.`, `_` and `-`"
            ));
        }
        Ok(Self {
            name,
            address: address.to_owned(),
        })
    }

    /// Reads all of them; no two have the same name.
    /// Fails where one cannot be read, or two have the same name.
    pub fn parse_all(texts: &[String]) -> Result<Vec<Self>, String> {
        let mut agents: Vec<Self> = Vec::new();
        for (place, text) in texts.iter().enumerate() {
            let agent = Self::parse(text, place + 1)?;
            if agents.iter().any(|other| other.name == agent.name) {
                return Err(format!("two agents are called `{}`", agent.name));
            }
            agents.push(agent);
        }
        Ok(agents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_called_as_they_are_given_or_by_their_number() {
        let texts = ["a=10.0.0.1:7071", "host:1", "[::1]:2"].map(str::to_owned);
        let agents = AgentAddress::parse_all(&texts).unwrap();
        let names: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names, ["a", "2", "3"]);
        assert_eq!(agents[0].address, "10.0.0.1:7071");
        for wrong in [
            "",
            "host",
            "host:",
            ":5",
            "=h:1",
            "host:99999",
            "a/b=h:1",
            "ö=h:1",
        ] {
            assert!(AgentAddress::parse(wrong, 1).is_err(), "{wrong}");
        }
        let twice = ["a=h:1", "a=h:2"].map(str::to_owned);
        assert!(AgentAddress::parse_all(&twice).unwrap_err().contains("`a`"));
    }
}
