//! Queueing models (R. Jain, *The Art of Computer Systems Performance Analysis*, 1991, chapters 31, 32 and
//! 34), and their fit to a run. Times are in seconds, rates per second.

mod closed;
mod stations;

use axum::Json;
use axum::extract::{Request, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_http::api::post;
use stafett_http::{Api, Code, Problem, body};

pub use self::stations::{Centre, Closed, Measured, Station, Steady, fit, mean_values};
use self::stations::{difference, one};
use super::Lab;
use crate::results::{OutcomeKind, Point};

const SERVERS_MAX: u32 = 1024;
const ROOM_MAX: u32 = 100_000;
const CLIENTS_MAX: u32 = 10_000;
const VALUES_MAX: usize = 1000;
/// Share by which a model may miss measured values.
const FITS: f64 = 0.2;

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        post(
            "/lab/v1/models",
            "Computes a queueing model, and fits it to a run.",
        )
        .body::<Asked>()
        .answers::<Answer>(200)
        .refuses(&[Code::NoSuchRun]),
        compute,
    )
    .with(closed::routes)
}

/// A model to compute.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// Open model: a station, and rates of arrivals.
    station: Option<Station>,
    #[serde(default)]
    rates: Vec<f64>,
    /// Closed model: centres, think time and clients.
    #[serde(default)]
    centres: Vec<Centre>,
    #[serde(default)]
    think_s: f64,
    clients: Option<u32>,
    /// A run to which a station is fitted: its rate of service is looked for.
    fit: Option<Fit>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fit {
    run: String,
    system: String,
    #[serde(default = "one")]
    servers: u32,
    room: Option<u32>,
    /// Latency: `delivery`, `acknowledged` or `round_trip`.
    latency: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Answer {
    /// Rate of one server, as it was given or fitted.
    service_rate: Option<f64>,
    /// Steady states at the rates; null where the queue would grow without bound.
    open: Vec<Option<Steady>>,
    closed: Vec<Closed>,
    measured: Vec<Measured>,
    /// The largest difference to a measured point in the middle half of the rates, as a share.
    difference: Option<f64>,
    /// False if the model does not fit: its difference is above 20 %.
    fits: Option<bool>,
}

async fn compute(State(lab): State<Lab>, request: Request) -> Result<Json<Answer>, Problem> {
    let asked: Asked = body::json(request).await?;
    check(&asked)?;
    let mut station = asked.station;
    let mut measured = Vec::new();
    if let Some(wanted) = &asked.fit {
        let (run, folder) = lab.run_of(&wanted.run)?;
        let points = folder
            .read_points(&run)
            .map_err(|error| Problem::new(Code::Unreadable, error))?;
        measured = of_points(&points, wanted);
        station = fit(wanted.servers, wanted.room, &measured);
        if station.is_none() {
            let why = format!("the run has no points of {} with this latency", wanted.system);
            return Err(Problem::bad_request(why));
        }
    }
    let rates = if asked.rates.is_empty() {
        measured.iter().map(|it| it.rate).collect()
    } else {
        asked.rates
    };
    let open = station.map_or_else(Vec::new, |station| {
        rates.iter().map(|rate| station.steady(*rate)).collect()
    });
    let difference = station.and_then(|station| difference(&station, &measured));
    Ok(Json(Answer {
        service_rate: station.map(|station| station.service_rate),
        open,
        closed: mean_values(&asked.centres, asked.think_s, asked.clients.unwrap_or(0)),
        measured,
        difference,
        fits: difference.map(|difference| difference <= FITS),
    }))
}

fn check(asked: &Asked) -> Result<(), Problem> {
    let is_time = |value: f64| value.is_finite() && (0.0..=1e6).contains(&value);
    let servers = [
        asked.station.map(|it| it.servers),
        asked.fit.as_ref().map(|it| it.servers),
    ];
    let rooms = [
        asked.station.and_then(|it| it.room),
        asked.fit.as_ref().and_then(|it| it.room),
    ];
    let rows = [
        (
            servers.iter().flatten().all(|it| (1..=SERVERS_MAX).contains(it)),
            "servers are 1 to 1024",
        ),
        (
            rooms.iter().flatten().all(|it| (1..=ROOM_MAX).contains(it)),
            "room is 1 to 100000",
        ),
        (
            asked
                .station
                .is_none_or(|it| it.service_rate.is_finite() && it.service_rate > 0.0),
            "service_rate is above 0",
        ),
        (
            asked.rates.len() <= VALUES_MAX && asked.rates.iter().all(|it| it.is_finite() && *it > 0.0),
            "rates are at most 1000, each above 0",
        ),
        (
            asked.clients.is_none_or(|it| it <= CLIENTS_MAX),
            "clients are at most 10000",
        ),
        (
            asked.centres.len() <= 20
                && asked
                    .centres
                    .iter()
                    .all(|it| is_time(it.demand_s) && it.servers <= SERVERS_MAX),
            "centres are at most 20, with times of at least 0",
        ),
        (is_time(asked.think_s), "think_s is a time"),
        (
            asked.clients.is_none()
                || asked.think_s + asked.centres.iter().map(|it| it.demand_s).sum::<f64>() > 0.0,
            "a closed network takes some time",
        ),
    ];
    match rows.iter().find(|(holds, _)| !holds) {
        Some((_, text)) => Err(Problem::bad_request(text)),
        None => Ok(()),
    }
}

/// Rates and mean response times of points that were measured whole.
fn of_points(points: &[Point], wanted: &Fit) -> Vec<Measured> {
    let latency = format!("{}_mean_us", wanted.latency);
    let of = |point: &Point| {
        let metrics = &point.metrics;
        let rate = metrics
            .get("consume_rate")
            .or_else(|| metrics.get("produce_rate"))?;
        Some(Measured {
            rate: *rate,
            response_s: metrics.get(&latency)? / 1e6,
        })
    };
    let whole = points
        .iter()
        .filter(|point| point.system == wanted.system && point.outcome.kind == OutcomeKind::Done);
    let mut measured: Vec<Measured> = whole.filter_map(of).collect();
    measured.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} is not {expected}");
    }

    #[test]
    fn a_gateway_of_the_textbook_has_the_response_time_of_its_example() {
        // Jain, example 31.1: 125 packets per second, 2 ms each; and the loss of 13 buffers.
        let gateway = Station {
            service_rate: 500.0,
            servers: 1,
            room: None,
        };
        let steady = gateway.steady(125.0).unwrap();
        near(steady.utilisation, 0.25);
        near(steady.present, 1.0 / 3.0);
        near(steady.response_s, 0.002_666_7);
        assert_eq!(
            gateway.steady(500.0),
            None,
            "a full server never empties its queue"
        );
        let bounded = Station {
            room: Some(13),
            ..gateway
        };
        near(bounded.steady(125.0).unwrap().lost, 1.117_6e-8);
    }

    #[test]
    fn several_servers_wait_as_the_formula_of_erlang_says() {
        // Five servers, arrivals 0.167 a minute, 20 minutes of service each: a utilisation of two thirds.
        let terminals = Station {
            service_rate: 0.05,
            servers: 5,
            room: None,
        };
        let steady = terminals.steady(1.0 / 6.0).unwrap();
        near(steady.utilisation, 2.0 / 3.0);
        near(steady.response_s, 23.920);
        let loose = Station {
            room: Some(2000),
            ..terminals
        };
        near(loose.steady(1.0 / 6.0).unwrap().response_s, steady.response_s);
    }

    #[test]
    fn the_closed_network_of_the_textbook_has_its_values() {
        // Jain, example 34.2: processor 0.125 s, two disks with 0.3 and 0.2 s, 4 s to think.
        let centre = |name: &str, demand_s: f64, servers| Centre {
            name: name.to_owned(),
            demand_s,
            servers,
        };
        let centres = [
            centre("cpu", 2.0, 1),
            centre("disk a", 3.0, 1),
            centre("disk b", 1.0, 1),
        ];
        let rows = mean_values(&centres, 4.0, 20);
        near(rows[0].rate, 0.1);
        near(rows[0].response_s, 6.0);
        near(rows[1].response_s, 7.4);
        near(rows[19].rate, 0.3333);
        // One server is the same whichever way it is computed, and two servers are between one and a delay.
        let one = mean_values(&[centre("x", 1.0, 1)], 1.0, 8);
        let two = mean_values(&[centre("x", 1.0, 2)], 1.0, 8);
        let delay = mean_values(&[centre("x", 1.0, 0)], 1.0, 8);
        near(one[7].rate, 1.0);
        assert!((1.99..2.0).contains(&two[7].rate));
        near(delay[7].rate, 4.0);
        assert!(one[2].response_s > two[2].response_s && two[2].response_s > delay[2].response_s);
    }

    #[test]
    fn a_fit_finds_the_rate_that_made_the_points() {
        let made = Station {
            service_rate: 1000.0,
            servers: 2,
            room: None,
        };
        let measured: Vec<Measured> = (1..10)
            .map(|tenth| {
                let rate = 200.0 * f64::from(tenth);
                Measured {
                    rate,
                    response_s: made.steady(rate).unwrap().response_s,
                }
            })
            .collect();
        let found = fit(2, None, &measured).unwrap();
        near(found.service_rate, 1000.0);
        near(1.0 + difference(&found, &measured).unwrap(), 1.0);
        assert!(difference(&fit(1, None, &measured).unwrap(), &measured).unwrap() > FITS);
        assert_eq!(fit(1, None, &[]), None);
    }
}
