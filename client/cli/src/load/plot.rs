//! SVG plot of a report: throughput over time above the distribution of batch latencies.

use std::error::Error;

use plotters::{
    backend::SVGBackend,
    chart::ChartBuilder,
    coord::{Shift, combinators::IntoLogRange},
    drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea},
    element::{EmptyElement, PathElement, Rectangle, Text},
    series::LineSeries,
    style::{
        BLACK, Color, IntoFont, RGBColor, ShapeStyle, WHITE,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    report::{Bin, Report},
    timeline::Rate,
};

/// Pixels.
const WIDTH: u32 = 1000;
const HEIGHT: u32 = 760;
const TITLE_SIZE: i32 = 18;
const CAPTION_SIZE: i32 = 16;
const LABEL_SIZE: i32 = 13;
const MARK_SIZE: i32 = 12;

const FONT: &str = "sans-serif";
const BLUE: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);
const RED: RGBColor = RGBColor(0xb4, 0x33, 0x1f);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as plotters::prelude::DrawingBackend>::ErrorType>>;

/// Returns the text of the SVG file.
pub(crate) fn svg(report: &Report) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        area.fill(&WHITE)?;
        let area = area.titled(&format!("forebay load, {}", report.title()), (FONT, TITLE_SIZE))?;
        let (above, below) = area.split_vertically((HEIGHT - TITLE_SIZE as u32) / 2);
        throughput(&above, &report.throughput)?;
        latencies(&below, report)?;
        area.present()?;
    }
    Ok(text)
}

fn throughput<'a>(area: &Area<'a>, rates: &[Rate]) -> Drawn<'a> {
    let peak = rates.iter().map(|rate| rate.bytes_per_second).fold(0.0, f64::max);
    let (unit_bytes, unit) = if peak >= 1e9 { (1e9, "GB/s") } else { (1e6, "MB/s") };
    let top = if peak > 0.0 { 1.1 * peak / unit_bytes } else { 1.0 };
    let end = rates.last().map_or(1.0, |rate| rate.to_seconds);
    let mut chart = ChartBuilder::on(area)
        .caption("Throughput over time", (FONT, CAPTION_SIZE))
        .margin(10)
        .margin_right(30)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .max_light_lines(1)
        .label_style((FONT, LABEL_SIZE))
        .x_desc("time since the warm-up, s")
        .y_desc(format!("Arrow bodies, {unit}"))
        .y_labels(6)
        .draw()?;
    // A rate covers its whole interval, so the line has steps.
    let steps = rates.iter().flat_map(|rate| {
        let height = rate.bytes_per_second / unit_bytes;
        [(rate.from_seconds, height), (rate.to_seconds, height)]
    });
    chart.draw_series(LineSeries::new(steps, ShapeStyle::from(BLUE).stroke_width(2)))?;
    Ok(())
}

fn latencies<'a>(area: &Area<'a>, report: &Report) -> Drawn<'a> {
    let bins = &report.batch_latency_distribution;
    let total = bins.iter().map(|bin| bin.batches).sum::<u64>().max(1) as f64;
    let share = |bin: &Bin| 100.0 * bin.batches as f64 / total;
    let milliseconds = |seconds: f64| seconds * 1e3;
    // Without batches only the axes are drawn.
    let from = bins.first().map_or(0.1, |bin| milliseconds(bin.from_seconds));
    let to = bins.last().map_or(10.0, |bin| milliseconds(bin.to_seconds));
    let top = 1.25 * bins.iter().map(share).fold(1.0, f64::max);
    let since = if report.rate_batches_per_second.is_some() { "since it was scheduled" } else { "since its request" };
    let mut chart = ChartBuilder::on(area)
        .caption("Distribution of the batch latencies", (FONT, CAPTION_SIZE))
        .margin(10)
        .margin_right(30)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d((from..to).log_scale(), 0.0..top)?;
    chart
        .configure_mesh()
        .max_light_lines(1)
        .label_style((FONT, LABEL_SIZE))
        .x_desc(format!("time until a batch arrived, {since}, ms"))
        .y_desc("share of the batches, %")
        .x_label_formatter(&|milliseconds| axis_label(*milliseconds))
        .y_labels(6)
        .draw()?;
    let bar = |bin: &Bin| {
        let corners = [(milliseconds(bin.from_seconds), 0.0), (milliseconds(bin.to_seconds), share(bin))];
        Rectangle::new(corners, BLUE.mix(0.6).filled())
    };
    chart.draw_series(bins.iter().filter(|bin| bin.batches > 0).map(bar))?;
    let marks = marks(report, (from, to), top);
    for mark in &marks {
        chart.draw_series([PathElement::new([(mark.at, 0.0), (mark.at, mark.height)], RED.stroke_width(1))])?;
    }
    for Mark { name, at, height } in marks {
        // Near the end of the axis there is more space on the left. The backbackground hides other marks.
        let is_left = (at / from).ln() > 0.75 * (to / from).ln();
        let (anchor, sign) = if is_left { (HPos::Right, -1) } else { (HPos::Left, 1) };
        let style = (FONT, MARK_SIZE).into_font().color(&BLACK).pos(Pos::new(anchor, VPos::Center));
        let width = name.chars().count() as i32 * MARK_SIZE * 6 / 10;
        let background =
            Rectangle::new([(sign * 2, -MARK_SIZE / 2), (sign * width, MARK_SIZE / 2)], WHITE.mix(0.85).filled());
        chart.draw_series([EmptyElement::at((at, height)) + background + Text::new(name, (sign * 4, 0), style)])?;
    }
    Ok(())
}

/// Labelled quantile.
struct Mark {
    name: String,
    /// Milliseconds.
    at: f64,
    height: f64,
}

/// Returns the marks, at descending heights so that labels do not overlap.
fn marks(report: &Report, (from, to): (f64, f64), top: f64) -> Vec<Mark> {
    let times = &report.batch_latency;
    let quantiles = [
        ("p50", times.p50_seconds),
        ("p90", times.p90_seconds),
        ("p99", times.p99_seconds),
        ("p99.9", times.p99_9_seconds),
        ("max", times.max_seconds),
    ];
    let mark = |(row, (name, seconds)): (usize, (&str, Option<f64>))| {
        let milliseconds = seconds? * 1e3;
        Some(Mark {
            name: format!("{name} {} ms", axis_label(milliseconds)),
            at: milliseconds.clamp(from, to),
            height: top * (0.97 - 0.06 * row as f64),
        })
    };
    quantiles.into_iter().enumerate().filter_map(mark).collect()
}

/// Formats milliseconds to three significant digits: 0.00123, 85.3, 1230.
fn axis_label(milliseconds: f64) -> String {
    if milliseconds <= 0.0 {
        return "0".to_owned();
    }
    let decimals = (2 - milliseconds.log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{milliseconds:.decimals$}");
    if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
