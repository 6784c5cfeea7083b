//! Queueing models: stations with servers and room, closed networks, and a station that fits measured points.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A service station with Poisson arrivals and exponential times of service (M/M/m, M/M/m/B).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Station {
    /// Rate of one server.
    pub service_rate: f64,
    pub servers: u32,
    /// Messages that find room, those in service included; no bound if it is absent.
    pub room: Option<u32>,
}

/// Steady state of a station.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Steady {
    /// Arrivals.
    pub rate: f64,
    /// Share of the servers' time.
    pub utilisation: f64,
    /// Messages at the station, on average.
    pub present: f64,
    /// Mean time at the station, of those that found room.
    pub response_s: f64,
    /// Share of arrivals without room.
    pub lost: f64,
}

impl Station {
    /// Returns the steady state at a rate of arrivals; `None` if there is none, since the queue grows.
    pub fn steady(&self, rate: f64) -> Option<Steady> {
        let servers = f64::from(self.servers);
        let load = rate / self.service_rate;
        match self.room {
            Some(room) => Some(self.bounded(rate, room)),
            None if load / servers >= 1.0 => None,
            None => {
                // Erlang's B by its recursion, which does not overflow, and C from it.
                let blocked = (1..=self.servers).fold(1.0, |before, number| {
                    load * before / (f64::from(number) + load * before)
                });
                let utilisation = load / servers;
                let waits = blocked / (1.0 - utilisation + utilisation * blocked);
                let response_s = (1.0 + waits / (servers * (1.0 - utilisation))) / self.service_rate;
                Some(Steady {
                    rate,
                    utilisation,
                    present: rate * response_s,
                    response_s,
                    lost: 0.0,
                })
            }
        }
    }

    fn bounded(&self, rate: f64, room: u32) -> Steady {
        let room = room.max(self.servers);
        let load = rate / self.service_rate;
        // Relative probabilities of n messages, scaled so that the largest is 1.
        let mut logarithms = vec![0.0_f64];
        let mut logarithm = 0.0;
        for number in 1..=room {
            logarithm += (load / f64::from(number.min(self.servers))).ln();
            logarithms.push(logarithm);
        }
        let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logarithms.iter().map(|it| (it - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let present = weights
            .iter()
            .zip(0_u32..)
            .map(|(it, n)| it * f64::from(n))
            .sum::<f64>()
            / sum;
        let lost = weights.last().copied().unwrap_or(0.0) / sum;
        let goodput = rate * (1.0 - lost);
        Steady {
            rate,
            utilisation: goodput / (self.service_rate * f64::from(self.servers)),
            present,
            response_s: present / goodput,
            lost,
        }
    }
}

/// Part of a closed network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Centre {
    pub name: String,
    /// Time of service for a message.
    pub demand_s: f64,
    /// Servers with one queue; 0 for a delay without a queue.
    #[serde(default = "one")]
    pub servers: u32,
}

pub(super) fn one() -> u32 {
    1
}

/// A closed network with a number of clients.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Closed {
    pub clients: u32,
    pub rate: f64,
    pub response_s: f64,
    /// Share of each centre's time, or clients at a delay.
    pub utilisation: Vec<f64>,
    /// Messages at each centre.
    pub present: Vec<f64>,
}

/// Mean value analysis, exact: one row for each number of clients from 1 on.
pub fn mean_values(centres: &[Centre], think_s: f64, clients: u32) -> Vec<Closed> {
    // Probability of n messages at each centre, for the number of clients before; only of several servers.
    let mut chances: Vec<Vec<f64>> = centres.iter().map(|_| vec![1.0]).collect();
    let mut present = vec![0.0; centres.len()];
    let mut rows = Vec::new();
    for number in 1..=clients {
        let times: Vec<f64> = centres
            .iter()
            .zip(present.iter().zip(&chances))
            .map(|(centre, (waiting, chances))| match centre.servers {
                0 => centre.demand_s,
                1 => centre.demand_s * (1.0 + waiting),
                servers => {
                    let slowed = chances.iter().zip(1_u32..).map(|(chance, found)| {
                        f64::from(found) * centre.demand_s / f64::from(found.min(servers)) * chance
                    });
                    slowed.sum()
                }
            })
            .collect();
        let response_s: f64 = times.iter().sum();
        let rate = f64::from(number) / (think_s + response_s);
        present = times.iter().map(|time| rate * time).collect();
        for (centre, chances) in centres
            .iter()
            .zip(&mut chances)
            .filter(|(centre, _)| centre.servers > 1)
        {
            let mut next: Vec<f64> = vec![0.0];
            let moved = chances.iter().zip(1_u32..).map(|(chance, found)| {
                rate * centre.demand_s / f64::from(found.min(centre.servers)) * chance
            });
            next.extend(moved);
            let others: f64 = next.iter().sum();
            // Rounding may take a little more than there is.
            if let Some(none) = next.first_mut() {
                *none = (1.0 - others).max(0.0);
            }
            *chances = next;
        }
        let utilisation = centres.iter().map(|centre| match centre.servers {
            0 => rate * centre.demand_s,
            servers => rate * centre.demand_s / f64::from(servers),
        });
        rows.push(Closed {
            clients: number,
            rate,
            response_s,
            utilisation: utilisation.collect(),
            present: present.clone(),
        });
    }
    rows
}

/// Rate and mean response time of a measured point, in s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Measured {
    pub rate: f64,
    pub response_s: f64,
}

/// Returns the rate of service with the least squares of relative differences to the measured points. `None`
/// without points.
pub fn fit(servers: u32, room: Option<u32>, measured: &[Measured]) -> Option<Station> {
    let fastest = measured.iter().map(|it| it.rate).fold(0.0, f64::max);
    let shortest = measured
        .iter()
        .map(|it| it.response_s)
        .fold(f64::INFINITY, f64::min);
    if fastest <= 0.0 || !shortest.is_finite() || shortest <= 0.0 {
        return None;
    }
    let station = |service_rate: f64| Station {
        service_rate,
        servers,
        room,
    };
    let squares = |service_rate: f64| {
        let of = |it: &Measured| {
            let steady = station(service_rate).steady(it.rate);
            steady.map_or(1e6, |steady| (steady.response_s / it.response_s - 1.0).powi(2))
        };
        measured.iter().map(of).sum::<f64>()
    };
    let least = fastest / f64::from(servers) * (1.0 + 1e-6);
    let most = (2.0 / shortest).max(least * 4.0);
    let step = |number: u32| least * (most / least).powf(f64::from(number) / 400.0);
    let best = (0..=400_u32).min_by(|a, b| squares(step(*a)).total_cmp(&squares(step(*b))))?;
    let (mut low, mut high) = (step(best.saturating_sub(1)), step((best + 1).min(400)));
    for _ in 0..60 {
        let (first, second) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if squares(first) < squares(second) {
            high = second;
        } else {
            low = first;
        }
    }
    Some(station(f64::midpoint(low, high)))
}

/// Returns the largest difference in the middle half of the rates.
pub(super) fn difference(station: &Station, measured: &[Measured]) -> Option<f64> {
    let quarter = measured.len() / 4;
    let middle = measured.get(quarter..measured.len() - quarter)?;
    let of = |it: &Measured| match station.steady(it.rate) {
        Some(steady) => (steady.response_s / it.response_s - 1.0).abs(),
        None => f64::INFINITY,
    };
    middle
        .iter()
        .map(of)
        .max_by(f64::total_cmp)
        .filter(|it| it.is_finite())
}
