//! Series of points of runs.

use std::collections::{BTreeMap, BTreeSet};

use hdrhistogram::Histogram;
use stafett_http::{Code, Problem};

use super::{Answer, Question, SERIES_MAX, Series, Source, Stat, What};
use crate::page::Lab;
use crate::results::{
    OutcomeKind, Point, ProcessKind, ProcessSample, ProcessSeries, RateSample, RoleResult, histogram,
};

/// Durability of a series whose points have different ones.
const SEVERAL: &str = "several levels";

/// Values of one window of one series.
#[derive(Debug, Default)]
struct Gathered {
    latencies: Option<Histogram<u64>>,
    /// Middle and ends of the band, of windows of a second, which have no histogram.
    second: Option<(f64, Option<f64>, Option<f64>)>,
    /// Values of each second, by point: those of several roles or processes are added up.
    seconds: BTreeMap<(usize, u32), f64>,
}

#[derive(Debug, Default)]
struct Group {
    durability: Option<String>,
    windows: BTreeMap<u32, Gathered>,
    /// Places of the points that it is made of.
    points: BTreeSet<usize>,
}

pub(super) fn answer(lab: &Lab, question: &Question) -> Result<Answer, Problem> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut remarks = BTreeSet::new();
    let mut place = 0;
    for source in &question.of {
        let (run, folder) = lab.run_of(&source.run)?;
        let points = folder
            .read_points(&run)
            .map_err(|error| Problem::new(Code::Unreadable, error))?;
        for point in points.iter().filter(|point| is_wanted(point, source)) {
            place += 1;
            gather(&mut groups, question, source, (place, point));
            if !matches!(point.outcome.kind, OutcomeKind::Done) {
                let outcome = point.outcome.kind.name();
                remarks.insert(format!("point {} of {} is {outcome}", point.number, source.run));
            }
        }
    }
    groups.retain(|_, group| !group.windows.is_empty());
    if groups.len() > SERIES_MAX {
        let why = format!(
            "{} series are more than {SERIES_MAX}: name fewer points, or less in `by`",
            groups.len()
        );
        return Err(Problem::bad_request(why));
    }
    if question.what == What::ResponseTime && groups.values().any(|group| is_without_windows(group, question))
    {
        remarks.insert(
            "some latencies are kept for each second alone: of several points the first one is shown"
                .to_owned(),
        );
    }
    let ends: BTreeSet<u32> = groups
        .values()
        .flat_map(|group| group.windows.keys().copied())
        .collect();
    let series = groups
        .into_iter()
        .map(|(name, group)| shown(name, &group, &ends, question));
    let (label, unit) = question.what.words();
    Ok(Answer {
        title: question.title.clone().unwrap_or_else(|| label.to_owned()),
        label,
        unit,
        series: series.collect(),
        x: ends.into_iter().map(f64::from).collect(),
        remarks: remarks.into_iter().collect(),
    })
}

fn is_wanted(point: &Point, source: &Source) -> bool {
    let has_values = matches!(point.outcome.kind, OutcomeKind::Done | OutcomeKind::Lost);
    has_values && (source.points.is_empty() || source.points.contains(&point.number))
}

fn is_without_windows(group: &Group, question: &Question) -> bool {
    let of_seconds = group.windows.values().any(|it| it.second.is_some());
    of_seconds && (question.window_s > 1 || group.points.len() > 1)
}

/// Returns the name of the series that a source belongs to.
fn name_of(question: &Question, source: &Source, point: &Point, role: Option<&RoleResult>) -> String {
    let part = |by: &String| match by.as_str() {
        "run" => Some(source.run.clone()),
        "system" => Some(point.system.clone()),
        "role" => role.map(|role| role.name.clone()),
        "point" => Some(format!("point {}", point.number)),
        "repetition" => Some(format!("repetition {}", point.repetition)),
        "durability" => Some(point.durability.given.clone()),
        path => {
            let value = point.parameters.get(path)?;
            let short = path.rsplit('.').next().unwrap_or(path);
            Some(format!(
                "{short} {}",
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            ))
        }
    };
    let parts: Vec<String> = question.by.iter().filter_map(part).collect();
    if parts.is_empty() {
        "all".to_owned()
    } else {
        parts.join(", ")
    }
}

fn gather(
    groups: &mut BTreeMap<String, Group>,
    question: &Question,
    source: &Source,
    (place, point): (usize, &Point),
) {
    let front = question.cut.front_s.unwrap_or(point.warmup_s);
    let end = point.warmup_s + point.measured_s - question.cut.back_s;
    let counts = |from: f64, to: f64| from >= front - 0.5 && to <= end + 0.5;
    if let Some((kind, value)) = of_process(question.what) {
        let group = entry(groups, question, source, (place, point), None);
        for process in processes(point, kind) {
            for sample in &process.samples {
                if counts(sample.at_s - sample.seconds, sample.at_s) {
                    group.add(question, place, sample.at_s, value(sample));
                }
            }
        }
        return;
    }
    let wanted = |role: &&RoleResult| source.roles.is_empty() || source.roles.contains(&role.name);
    for role in point.roles.iter().filter(wanted) {
        let group = entry(groups, question, source, (place, point), Some(role));
        if question.what != What::ResponseTime {
            for sample in &role.samples {
                if counts(sample.at_s - sample.seconds, sample.at_s) {
                    group.add(question, place, sample.at_s, of_role(question.what, role, sample));
                }
            }
        } else if question.window_s > 1 && !role.windows.is_empty() {
            for window in &role.windows {
                let from = window.at_s - crate::results::WINDOW_S;
                // The last window may be short. One that the cut goes through counts where its middle does.
                let to = window.at_s.min(point.warmup_s + point.measured_s);
                let middle = f64::midpoint(from, to);
                if counts(middle, middle)
                    && let Ok(latencies) = histogram::decode(&window.histogram)
                {
                    let gathered = group.windows.entry(question.end_of(window.at_s)).or_default();
                    let all = gathered.latencies.get_or_insert_with(histogram::empty);
                    // Both have the lab's own bounds.
                    let _ = all.add(latencies);
                }
            }
        } else {
            for sample in &role.samples {
                if counts(sample.at_s - sample.seconds, sample.at_s) {
                    group.add_second(question, sample);
                }
            }
        }
    }
}

fn entry<'a>(
    groups: &'a mut BTreeMap<String, Group>,
    question: &Question,
    source: &Source,
    (place, point): (usize, &Point),
    role: Option<&RoleResult>,
) -> &'a mut Group {
    let group = groups.entry(name_of(question, source, point, role)).or_default();
    let given = &point.durability.given;
    group.durability = match group.durability.take() {
        Some(before) if before != *given => Some(SEVERAL.to_owned()),
        _ => Some(given.clone()),
    };
    group.points.insert(place);
    group
}

impl Question {
    /// Returns the end of the window in which a moment lies, in s.
    fn end_of(&self, at_s: f64) -> u32 {
        whole(at_s.round()).max(1).next_multiple_of(self.window_s)
    }
}

impl Group {
    fn add(&mut self, question: &Question, place: usize, at_s: f64, value: f64) {
        let window = self.windows.entry(question.end_of(at_s)).or_default();
        *window.seconds.entry((place, whole(at_s.round()))).or_default() += value;
    }

    /// Adds the latencies of a second; those of the first one that has any stay.
    fn add_second(&mut self, question: &Question, sample: &RateSample) {
        let middle = match question.stat {
            Stat::Median => sample.p50_us,
            Stat::Mean => sample.mean_us,
        };
        let Some(middle) = middle else { return };
        let window = self.windows.entry(question.end_of(sample.at_s)).or_default();
        let float = |it: Option<u64>| it.map(|it| it as f64);
        window
            .second
            .get_or_insert_with(|| (middle as f64, float(sample.p2_5_us), float(sample.p97_5_us)));
    }
}

fn shown(name: String, group: &Group, ends: &BTreeSet<u32>, question: &Question) -> Series {
    let mut series = Series {
        name,
        durability: group.durability.clone(),
        ..Series::default()
    };
    for end in ends {
        let found = group
            .windows
            .get(end)
            .and_then(|window| window.statistics(question));
        let (middle, low, high, count) = match found {
            Some((middle, low, high, count)) => (Some(middle), low, high, count),
            None => (None, None, None, 0),
        };
        series.values.push(middle);
        series.low.push(low);
        series.high.push(high);
        series.count.push(count);
    }
    series
}

/// Middle, ends of the band, and number of values.
type Statistics = (f64, Option<f64>, Option<f64>, u64);

impl Gathered {
    fn statistics(&self, question: &Question) -> Option<Statistics> {
        let band = question.band;
        if let Some(all) = &self.latencies {
            let of = |percentile: f64| all.value_at_quantile(percentile / 100.0) as f64;
            let middle = match question.stat {
                Stat::Median => of(50.0),
                Stat::Mean => all.mean(),
            };
            return Some((
                middle,
                band.map(|(low, _)| of(low)),
                band.map(|(_, high)| of(high)),
                all.len(),
            ));
        }
        if let Some((middle, low, high)) = self.second {
            return Some((
                middle,
                low.filter(|_| band.is_some()),
                high.filter(|_| band.is_some()),
                1,
            ));
        }
        let mut values: Vec<f64> = self.seconds.values().copied().collect();
        values.sort_by(f64::total_cmp);
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let middle = match question.stat {
            Stat::Median => quantile(&values, 50.0)?,
            Stat::Mean => mean,
        };
        let ends = band.filter(|_| values.len() > 1);
        Some((
            middle,
            ends.and_then(|(low, _)| quantile(&values, low)),
            ends.and_then(|(_, high)| quantile(&values, high)),
            values.len() as u64,
        ))
    }
}

/// Returns the value of a percentile: the one at its rank.
fn quantile(sorted: &[f64], percentile: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * percentile / 100.0).ceil();
    let at = whole(rank).saturating_sub(1) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied()
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

fn of_role(what: What, role: &RoleResult, sample: &RateSample) -> f64 {
    let sends = matches!(role.does.as_str(), "produce" | "relay" | "request");
    let seconds = if sample.seconds > 0.0 { sample.seconds } else { 1.0 };
    let count = match what {
        What::Clients => return f64::from(sample.clients),
        What::TimedOut => sample.timed_out,
        What::Failed => sample.failed,
        What::Reconnects => sample.reconnects,
        What::Throughput
        | What::ResponseTime
        | What::BrokerCpu
        | What::ClientCpu
        | What::BrokerMemory
        | What::NetworkIn
        | What::NetworkOut
        | What::DiskRead
        | What::DiskWritten => {
            if sends {
                sample.acknowledged
            } else {
                sample.received
            }
        }
    };
    count as f64 / seconds
}

/// Processes of a kind; `None` for one of any kind, as its samples are of the whole machine.
fn processes(point: &Point, kind: Option<ProcessKind>) -> Vec<&ProcessSeries> {
    let of = |kind| point.processes.iter().filter(move |process| process.kind == kind);
    match kind {
        Some(kind) => of(kind).collect(),
        None => of(ProcessKind::Broker)
            .chain(of(ProcessKind::Client))
            .take(1)
            .collect(),
    }
}

type OfProcess = (Option<ProcessKind>, fn(&ProcessSample) -> f64);

fn of_process(what: What) -> Option<OfProcess> {
    let found: OfProcess = match what {
        What::BrokerCpu => (Some(ProcessKind::Broker), |it| {
            per_second(it, it.cpu_user_s + it.cpu_system_s)
        }),
        What::ClientCpu => (Some(ProcessKind::Client), |it| {
            per_second(it, it.cpu_user_s + it.cpu_system_s)
        }),
        What::BrokerMemory => (Some(ProcessKind::Broker), |it| {
            it.memory_bytes as f64 / f64::from(1 << 20)
        }),
        What::NetworkIn => (None, |it| per_second(it, it.network_received_bytes as f64)),
        What::NetworkOut => (None, |it| per_second(it, it.network_sent_bytes as f64)),
        What::DiskRead => (Some(ProcessKind::Broker), |it| {
            per_second(it, it.disk_read_bytes as f64)
        }),
        What::DiskWritten => (Some(ProcessKind::Broker), |it| {
            per_second(it, it.disk_written_bytes as f64)
        }),
        What::ResponseTime
        | What::Throughput
        | What::Clients
        | What::TimedOut
        | What::Failed
        | What::Reconnects => return None,
    };
    Some(found)
}

fn per_second(sample: &ProcessSample, sum: f64) -> f64 {
    sum / if sample.seconds > 0.0 { sample.seconds } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_at_their_ranks() {
        let values: Vec<f64> = (1..=40).map(f64::from).collect();
        assert_eq!(quantile(&values, 50.0), Some(20.0));
        assert_eq!(quantile(&values, 2.5), Some(1.0));
        assert_eq!(quantile(&values, 97.5), Some(39.0));
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&[], 50.0), None);
    }
}
