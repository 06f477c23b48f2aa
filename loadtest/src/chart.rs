//! A chart of latency against rate, as SVG.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;

use crate::{report::Report, tally::Latency, thousandths::Thousandths};

const WIDTH: u64 = 800;
const HEIGHT: u64 = 450;

/// Room for the axes' labels.
const MARGIN: u64 = 60;

const LINES: u64 = 5;

/// A curve: its name, colour and figure.
type Curve = (&'static str, &'static str, fn(&Latency) -> Thousandths);

const CURVES: [Curve; 3] = [
    ("p50", "#1b6ca8", |latency| latency.p50),
    ("p90", "#3a9188", |latency| latency.p90),
    ("p99", "#c8553d", |latency| latency.p99),
];

/// Writes a chart of these reports, which should be of one sweep.
pub fn write(file: &Path, reports: &[Report]) -> anyhow::Result<()> {
    fs::write(file, draw(reports)).with_context(|| format!("{} cannot be written", file.display()))
}

pub fn draw(reports: &[Report]) -> String {
    let mut reports: Vec<&Report> = reports.iter().collect();
    reports.sort_by_key(|report| report.rate);
    let rates = reports.iter().map(|report| report.rate);
    let rate_max = rates.max().unwrap_or_default();
    let p99s = reports.iter().map(|report| report.latency.p99);
    let latency_max = p99s.max().unwrap_or_default();
    let title = reports.first().map_or("", |report| report.name.as_str());
    let axes = Axes {
        rate_max,
        latency_max,
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    text(
        &mut svg,
        (WIDTH / 2, MARGIN / 2),
        &format!("{title}: latency (ms) against rate (per second)"),
    );
    axes.draw(&mut svg);
    for (turn, (name, colour, figure)) in (0..).zip(CURVES) {
        let points = reports.iter().map(|report| {
            let (x, y) = axes.place(report.rate, figure(&report.latency));
            format!("{x},{y}")
        });
        let points: Vec<String> = points.collect();
        let points = points.join(" ");
        // Writing to a text does not fail.
        let _written = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"{colour}\">{name}</text>",
            MARGIN + 10,
            MARGIN + 15 * turn
        );
    }
    svg.push_str("</svg>\n");
    svg
}

struct Axes {
    rate_max: Thousandths,
    latency_max: Thousandths,
}

impl Axes {
    fn place(&self, rate: Thousandths, latency: Thousandths) -> (u64, u64) {
        let along = |value: Thousandths, max: Thousandths, length: u64| {
            value.0.min(max.0) * length / max.0.max(1)
        };
        let x = MARGIN + along(rate, self.rate_max, WIDTH - 2 * MARGIN);
        let y = HEIGHT - MARGIN - along(latency, self.latency_max, HEIGHT - 2 * MARGIN);
        (x, y)
    }

    fn draw(&self, svg: &mut String) {
        for line in 0..=LINES {
            let part = |max: Thousandths| Thousandths(max.0 * line / LINES);
            let (rate, latency) = (part(self.rate_max), part(self.latency_max));
            let (x, y) = self.place(rate, latency);
            let (left, right) = (MARGIN, WIDTH - MARGIN);
            // Writing to a text does not fail.
            let _written = writeln!(svg, "<path d=\"M{left} {y} H{right}\" stroke=\"#ddd\"/>");
            text(svg, (x, HEIGHT - MARGIN / 2), &format!("{rate:.0}"));
            text(svg, (MARGIN / 2, y), &format!("{latency:.1}"));
        }
    }
}

fn text(svg: &mut String, (x, y): (u64, u64), content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    // Writing to a text does not fail.
    let _written = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{content}</text>"
    );
}
