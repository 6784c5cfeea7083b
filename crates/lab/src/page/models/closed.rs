//! A closed network that is fitted to a run whose clients wait for each answer: exact mean value analysis,
//! beside the measured values, with the asymptotic bounds (Jain, chapters 33 and 34).
//!
//! Demands are those of the point with the fewest clients: the processor time of a message, and a delay for
//! all of its response time that the processors do not explain (disk, network). Group commit makes that delay
//! smaller under load, which such a network does not know.

use axum::Json;
use axum::extract::{Request, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_http::api::post;
use stafett_http::{Api, Code, Problem, body};

use super::{CLIENTS_MAX, Centre, Closed, FITS, mean_values};
use crate::experiment::Source;
use crate::page::Lab;
use crate::page::laws::{ClosedLoop, in_loop, processor_demand};
use crate::results::{OutcomeKind, Point, Run};

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        post(
            "/lab/v1/models/closed",
            "Fits a closed network to a run whose clients wait for each answer, by mean value analysis; changed demands \
             give a prediction beside it.",
        )
        .body::<Asked>()
        .answers::<Answer>(200)
        .refuses(&[Code::NoSuchRun]),
        compute,
    )
}

/// A run, and changes of the fitted values.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ClosedFit")]
struct Asked {
    run: String,
    system: String,
    /// Factor of the number of processors.
    #[serde(default = "unchanged")]
    processors: f64,
    /// Factor of the delay.
    #[serde(default = "unchanged")]
    delay: f64,
    /// Clients up to which the curve goes; half as many again as were measured if it is absent.
    clients: Option<u32>,
}

fn unchanged() -> f64 {
    1.0
}

/// Clients, with their rate and mean response time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ClosedPoint")]
struct Measured {
    clients: f64,
    rate: f64,
    response_s: f64,
}

/// Bounds that no number of clients can pass.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ClosedBound")]
struct Bound {
    clients: u32,
    rate_max: f64,
    response_s_min: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ClosedAnswer")]
struct Answer {
    /// Name, `demand_s` and `servers` of each.
    #[schemars(with = "Vec<serde_json::Value>")]
    centres: Vec<Centre>,
    think_s: f64,
    measured: Vec<Measured>,
    /// The network as it was fitted.
    fitted: Vec<Closed>,
    /// The same with the changes that were asked for.
    predicted: Vec<Closed>,
    bounds: Vec<Bound>,
    /// Clients from which on the bottleneck decides.
    knee: f64,
    /// The largest difference to a measured response time, as a share.
    difference: Option<f64>,
    /// False if it is above 20 %.
    fits: Option<bool>,
}

async fn compute(State(lab): State<Lab>, request: Request) -> Result<Json<Answer>, Problem> {
    let asked: Asked = body::json(request).await?;
    let is_factor = |value: f64| (0.01..=100.0).contains(&value);
    if !is_factor(asked.processors)
        || !is_factor(asked.delay)
        || asked.clients.is_some_and(|it| it > CLIENTS_MAX)
    {
        let why = format!("factors are 0.01 to 100, and clients at most {CLIENTS_MAX}");
        return Err(Problem::bad_request(why));
    }
    let (run, folder) = lab.run_of(&asked.run)?;
    let computed = tokio::task::spawn_blocking(move || {
        let points = folder
            .read_points(&run)
            .map_err(|error| Problem::new(Code::Unreadable, error))?;
        answer(&asked, &run, &points)
    });
    computed
        .await
        .map_err(|error| Problem::new(Code::Unreadable, error))?
        .map(Json)
}

fn answer(asked: &Asked, run: &Run, points: &[Point]) -> Result<Answer, Problem> {
    let source = Source::new(run.name.clone(), run.source.clone());
    let mut found: Vec<(ClosedLoop, f64)> = Vec::new();
    for point in points {
        if point.system != asked.system || point.outcome.kind != OutcomeKind::Done {
            continue;
        }
        let Ok(plan) = source.plan(run.scale, &point.parameters) else {
            continue;
        };
        let first = point.roles.iter().find_map(|role| in_loop(role, &plan));
        if let Some((closed, (_, demand_s))) = first.zip(processor_demand(point)) {
            found.push((closed, demand_s));
        }
    }
    found.sort_by(|(one, _), (other, _)| one.clients.total_cmp(&other.clients));
    let Some((least, demand_s)) = found.first().copied() else {
        let why = format!(
            "no point of {} has clients in a closed loop with a window and measured processors",
            asked.system
        );
        return Err(Problem::bad_request(why));
    };
    let cores = run.environment.cores.max(1);
    let centres = centres(demand_s, least.response_s, cores);
    let most = found.last().map_or(1.0, |(closed, _)| closed.clients);
    let up_to = asked
        .clients
        .unwrap_or_else(|| whole(most * 1.5))
        .clamp(1, CLIENTS_MAX);
    let changed = centres_changed(&centres, asked);
    let fitted = mean_values(&centres, least.think_s, up_to);
    let measured = found.iter().map(|(closed, _)| Measured {
        clients: closed.clients,
        rate: closed.rate,
        response_s: closed.response_s,
    });
    let measured: Vec<Measured> = measured.collect();
    let difference = difference(&fitted, &measured);
    let whole_s: f64 = centres.iter().map(|centre| centre.demand_s).sum();
    // Of several servers each message takes one: the bottleneck's time is shared by all.
    let bottleneck_s = demand_s / f64::from(cores);
    let bounds = (1..=up_to).map(|clients| Bound {
        clients,
        rate_max: (1.0 / bottleneck_s).min(f64::from(clients) / (whole_s + least.think_s)),
        response_s_min: whole_s.max(f64::from(clients) * bottleneck_s - least.think_s),
    });
    Ok(Answer {
        think_s: least.think_s,
        bounds: bounds.collect(),
        predicted: mean_values(&changed, least.think_s, up_to),
        knee: (whole_s + least.think_s) / bottleneck_s,
        fitted,
        measured,
        difference,
        fits: difference.map(|difference| difference <= FITS),
        centres,
    })
}

fn centres(demand_s: f64, response_s: f64, cores: u32) -> Vec<Centre> {
    vec![
        Centre {
            name: "processors".to_owned(),
            demand_s,
            servers: cores,
        },
        Centre {
            name: "delay".to_owned(),
            demand_s: (response_s - demand_s).max(0.0),
            servers: 0,
        },
    ]
}

fn centres_changed(centres: &[Centre], asked: &Asked) -> Vec<Centre> {
    let change = |centre: &Centre| match centre.servers {
        0 => Centre {
            demand_s: centre.demand_s * asked.delay,
            ..centre.clone()
        },
        servers => Centre {
            servers: whole((f64::from(servers) * asked.processors).round()).max(1),
            ..centre.clone()
        },
    };
    centres.iter().map(change).collect()
}

/// The largest difference of response times, as a share of the measured one.
fn difference(fitted: &[Closed], measured: &[Measured]) -> Option<f64> {
    let of = |point: &Measured| {
        let at = whole(point.clients.round()).max(1);
        let row = fitted.iter().find(|row| row.clients == at)?;
        Some((row.response_s / point.response_s - 1.0).abs())
    };
    measured.iter().filter_map(of).reduce(f64::max)
}

/// Converts a whole number; others saturate.
fn whole(number: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts to integers saturate"
    )]
    let number = number as u32;
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_of_one_client_has_its_response_time_and_more_of_them_wait() {
        let centres = centres(0.002, 0.010, 2);
        let rows = mean_values(&centres, 0.0, 40);
        let measured = |at: usize| Measured {
            clients: at as f64,
            rate: rows[at - 1].rate,
            response_s: rows[at - 1].response_s,
        };
        assert!((rows[0].response_s - 0.010).abs() < 1e-9);
        assert!(
            rows[39].rate > 990.0 && rows[39].rate < 1000.0,
            "two processors, 2 ms each"
        );
        assert!(difference(&rows, &[measured(1), measured(20)]).unwrap() < 1e-9);
        let slow = Measured {
            response_s: 0.020,
            ..measured(1)
        };
        assert!((difference(&rows, &[slow]).unwrap() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn changes_concern_the_centres_that_they_name() {
        let asked: Asked =
            serde_json::from_str(r#"{"run": "r", "system": "s", "processors": 2, "delay": 0.5}"#).unwrap();
        let changed = centres_changed(&centres(0.002, 0.010, 2), &asked);
        assert_eq!((changed[0].servers, changed[1].servers), (4, 0));
        assert!((changed[1].demand_s - 0.004).abs() < 1e-9);
    }
}
