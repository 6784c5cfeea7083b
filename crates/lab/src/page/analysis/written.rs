//! An answer as a chart that stands alone, as CSV, or as data and commands of gnuplot.

use std::fmt::Write as _;

use stafett_charts::{Axis, LineChart, LinePoint, Mark, STYLE, Width};

use super::{Answer, Series};

/// Height of a line of the legend, in CSS pixels.
const LINE: usize = 20;
const WIDTH: usize = 760;
const HEIGHT: usize = 340;

/// One row for each window of each series.
pub(super) fn csv(answer: &Answer) -> String {
    let mut out = "series,durability,at_s,value,low,high,count\n".to_owned();
    for series in &answer.series {
        let durability = series.durability.as_deref().unwrap_or_default();
        for (at, row) in answer.x.iter().zip(rows(series)) {
            let (Some(value), low, high, count) = row else {
                continue;
            };
            // Writing to a text does not fail.
            let _ = writeln!(
                out,
                "{},{},{at},{value},{},{},{count}",
                quoted(&series.name),
                quoted(durability),
                number(low),
                number(high)
            );
        }
    }
    out
}

type Row = (Option<f64>, Option<f64>, Option<f64>, u64);

fn rows(series: &Series) -> impl Iterator<Item = Row> {
    let ends = series.low.iter().zip(&series.high);
    let all = series.values.iter().zip(ends).zip(&series.count);
    all.map(|((value, (low, high)), count)| (*value, *low, *high, *count))
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Data blocks, and the commands that draw them: `gnuplot FILE` makes `analysis.png`.
pub(super) fn gnuplot(answer: &Answer, is_log: bool) -> String {
    let text = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut out = String::new();
    for (place, series) in answer.series.iter().enumerate() {
        let _ = writeln!(out, "$data{place} << EOD\n# at_s value low high");
        for (at, (value, low, high, _)) in answer.x.iter().zip(rows(series)) {
            let Some(value) = value else { continue };
            let (low, high) = (low.unwrap_or(value), high.unwrap_or(value));
            let _ = writeln!(out, "{at} {value} {low} {high}");
        }
        out.push_str("EOD\n");
    }
    let unit = if answer.unit.is_empty() {
        String::new()
    } else {
        format!(" ({})", answer.unit)
    };
    out.push_str("set terminal pngcairo size 1200,600\nset output \"analysis.png\"\nset grid\n");
    let _ = writeln!(out, "set title {}", text(&answer.title));
    let _ = writeln!(
        out,
        "set xlabel \"time (s)\"\nset ylabel {}",
        text(&format!("{}{unit}", answer.label))
    );
    out.push_str(if is_log {
        "set logscale y\n"
    } else {
        "set yrange [0:*]\n"
    });
    let lines = answer.series.iter().enumerate().map(|(place, series)| {
        let name = text(&series.name);
        format!(
            "$data{place} using 1:3:4 with filledcurves fs transparent solid 0.2 lc {colour} notitle, \\\n     \
             $data{place} using 1:2 with lines lc {colour} title {name}",
            colour = place + 1
        )
    });
    let lines: Vec<String> = lines.collect();
    if !lines.is_empty() {
        let _ = writeln!(out, "plot {}", lines.join(", \\\n     "));
    }
    out
}

/// A chart with its legend; bars are the band.
pub(super) fn svg(answer: &Answer, is_log: bool) -> String {
    let lines = answer.series.iter().enumerate().map(|(place, series)| {
        let points = answer
            .x
            .iter()
            .zip(rows(series))
            .filter_map(|(at, (value, low, high, _))| {
                Some(LinePoint {
                    x: *at,
                    y: value?,
                    interval: low.zip(high),
                    says: String::new(),
                })
            });
        stafett_charts::Series::curve(Mark::new(place, 0), points.collect())
    });
    let lines: Vec<stafett_charts::Series> = lines.collect();
    let points = || lines.iter().flat_map(|series| &series.points);
    let tops = points().flat_map(|point| {
        let (low, high) = point.interval.unwrap_or((point.y, point.y));
        [low, point.y, high]
    });
    let chart = LineChart {
        title: answer.title.clone(),
        x: Axis::linear("time", "s", points().map(|point| point.x)),
        y: Axis::scaled(is_log, answer.label, answer.unit, tops.collect::<Vec<_>>()),
        series: lines.clone(),
        shaded: Vec::new(),
        low: false,
    };
    let drawn = chart.draw(Width::Desktop);
    let height = HEIGHT + LINE * (answer.series.len() + 1);
    let mut legend = String::new();
    for (place, series) in answer.series.iter().enumerate() {
        let y = HEIGHT + LINE * (place + 1);
        let durability = series
            .durability
            .as_deref()
            .map_or_else(String::new, |level| format!(" ({level})"));
        let name = escaped(&format!("{}{durability}", series.name));
        let _ = write!(
            legend,
            "<rect x=\"12\" y=\"{}\" width=\"16\" height=\"4\" fill=\"var(--c{})\"/>\
             <text x=\"36\" y=\"{y}\" font-size=\"13\" font-family=\"sans-serif\" fill=\"var(--ink)\">{name}</text>",
            y - 7,
            place % 8
        );
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\
         <style>{STYLE}</style><rect width=\"{WIDTH}\" height=\"{height}\" fill=\"var(--paper)\"/>\
         <svg width=\"{WIDTH}\" height=\"{HEIGHT}\">{drawn}</svg>{legend}</svg>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let series = |name: &str, values: Vec<Option<f64>>| Series {
            name: name.to_owned(),
            durability: Some("os".to_owned()),
            low: values.iter().map(|it| it.map(|it| it - 1.0)).collect(),
            high: values.iter().map(|it| it.map(|it| it + 1.0)).collect(),
            count: values.iter().map(|it| u64::from(it.is_some())).collect(),
            values,
        };
        Answer {
            title: "A \"title\"".to_owned(),
            label: "response time",
            unit: "µs",
            x: vec![10.0, 20.0],
            series: vec![
                series("one, two", vec![Some(5.0), Some(7.0)]),
                series("<b>", vec![None, Some(3.0)]),
            ],
            remarks: Vec::new(),
        }
    }

    #[test]
    fn rows_are_windows_and_gaps_are_left_out() {
        let expected = "series,durability,at_s,value,low,high,count\n\"one, two\",os,10,5,4,6,1\n\
                        \"one, two\",os,20,7,6,8,1\n<b>,os,20,3,2,4,1\n";
        assert_eq!(csv(&answer()), expected);
    }

    #[test]
    fn gnuplot_gets_data_and_commands() {
        let text = gnuplot(&answer(), false);
        assert!(
            text.contains("$data1 << EOD\n# at_s value low high\n20 3 2 4\nEOD\n"),
            "{text}"
        );
        assert!(text.contains("set title \"A \\\"title\\\"\"\n"), "{text}");
        assert!(
            text.contains("set yrange [0:*]") && text.ends_with("title \"<b>\"\n"),
            "{text}"
        );
    }

    #[test]
    fn a_chart_stands_alone_and_names_its_series() {
        let drawn = svg(&answer(), true);
        assert!(
            drawn.starts_with("<svg xmlns=") && drawn.contains("one, two (os)"),
            "{drawn}"
        );
        assert!(
            drawn.contains("&lt;b&gt; (os)") && !drawn.contains("<b>"),
            "{drawn}"
        );
    }
}
