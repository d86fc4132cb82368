//! The charts of the page, as SVG.
//!
//! They are drawn for the width of a telephone, in quarters of its pixels, and scaled to where they are
//! shown. Their colours are names: the page's style says what each is by day and in the dark.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::timeline::Timeline;
use super::words;

/// What the style sheet colours; the values are those by day.
pub(crate) const MUTED: RGBColor = RGBColor(0x5A, 0x67, 0x73);
const INK: RGBColor = RGBColor(0x1B, 0x24, 0x2C);
const GRID: RGBColor = RGBColor(0xDD, 0xE2, 0xE7);
pub(crate) const ALLOWED: RGBColor = RGBColor(0x8F, 0xB3, 0xD6);
pub(crate) const DENIED: RGBColor = RGBColor(0xC4, 0x4B, 0x37);
pub(crate) const LET_THROUGH: RGBColor = RGBColor(0x23, 0x8B, 0x80);
pub(crate) const CANDIDATE: RGBColor = RGBColor(0x86, 0x62, 0xBE);

/// Quarters of a pixel in one.
const PX: i32 = 4;
const WIDTH_PX: i32 = 320;
const HEIGHT_PX: i32 = 180;
const LABELS_PX: i32 = 22;
const MARGIN_PX: i32 = 8;
const TEXT_PX: i32 = 11;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// How two series of columns stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    /// The second on the first.
    Stacked,
    /// The first upward, the second downward.
    Opposed,
}

/// Two series over time.
pub(crate) fn over_time(
    timeline: &Timeline,
    columns: Columns,
    first: (&[u64], RGBColor),
    second: (&[u64], RGBColor),
) -> String {
    drawn(HEIGHT_PX, |area| draw_over_time(area, timeline, columns, first, second))
}

fn draw_over_time(
    area: &Area<'_>,
    timeline: &Timeline,
    columns: Columns,
    first: (&[u64], RGBColor),
    second: (&[u64], RGBColor),
) -> Drawn {
    let pairs = || first.0.iter().zip(second.0);
    let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0);
    let (up, down) = match columns {
        Columns::Stacked => (pairs().map(|(a, b)| a + b).max().unwrap_or(0), 0),
        Columns::Opposed => (most(first.0), most(second.0)),
    };
    let span = (up + down).max(1) as f64;
    // Head room, and room for the least height.
    let range =
        (if down > 0 { -(down as f64) - span * 0.04 } else { 0.0 })..up.max(1) as f64 + span * 0.04;
    // Nothing that happened is too low to be seen: a pixel at least.
    let least = span / f64::from(HEIGHT_PX - LABELS_PX - 2 * MARGIN_PX);
    let height = |count: u64| if count == 0 { 0.0 } else { (count as f64).max(least) };

    let step = count_step(up + down);
    let counts: Vec<f64> =
        (-((down / step) as i64)..=(up / step) as i64).map(|i| i as f64 * step as f64).collect();
    let widest = counts.iter().map(|count| count_label(*count).len() as i32).max().unwrap_or(1);
    let (ticks, step_ns) = time_ticks(timeline);
    let bins = first.0.len();
    let time_label = |bin: f64| {
        let since_ns = (bin * timeline.width_ns() as f64).round() as i128;
        words::tick(timeline.start_ns(0) + since_ns, step_ns)
    };
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN_PX * PX)
        .x_label_area_size(LABELS_PX * PX)
        .y_label_area_size((widest * 7 + 6) * PX)
        .build_cartesian_2d(
            Axis { range: 0.0..bins as f64, marks: ticks, label: time_label },
            Axis { range, marks: counts, label: count_label },
        )?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID.stroke_width(PX as u32))
        .light_line_style(TRANSPARENT)
        .axis_style(GRID.stroke_width(PX as u32))
        .set_all_tick_mark_size(3 * PX)
        .label_style(text(MUTED))
        .draw()?;

    // A little air between columns that are wide enough.
    let air = if bins > 60 { 0.06 } else { 0.1 };
    let rectangle = |bin: usize, from: f64, to: f64, color: RGBColor| {
        let (left, right) = (bin as f64 + air, (bin + 1) as f64 - air);
        Rectangle::new([(left, from), (right, to)], color.filled())
    };
    for (bin, (a, b)) in pairs().enumerate() {
        let (a, b) = (height(*a), height(*b));
        let (from, to) = match columns {
            Columns::Stacked => (a, a + b),
            Columns::Opposed => (0.0, -b),
        };
        let both = [(0.0, a, first.1), (from, to, second.1)];
        let seen = both.into_iter().filter(|(from, to, _)| from != to);
        chart.draw_series(seen.map(|(from, to, color)| rectangle(bin, from, to, color)))?;
    }
    Ok(())
}

/// An axis with marks of our own choice.
struct Axis<L> {
    range: std::ops::Range<f64>,
    marks: Vec<f64>,
    label: L,
}

impl<L> Ranged for Axis<L> {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let part = (value - self.range.start) / (self.range.end - self.range.start);
        from + (part * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Every mark is a bold one.
        if hint.weight().allow_light_points() { Vec::new() } else { self.marks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.clone()
    }
}

impl<L: Fn(f64) -> String> ValueFormatter<f64> for Axis<L> {
    fn format_ext(&self, value: &f64) -> String {
        (self.label)(*value)
    }
}

/// A row of a chart of bars: a label, and a bar for each of its counts.
pub(crate) struct Bars {
    pub(crate) label: String,
    pub(crate) counts: Vec<(u64, RGBColor)>,
}

/// Bars from left to right, with labels before or above them.
pub(crate) fn bars(rows: &[Bars], is_label_above: bool) -> String {
    let of_row = |row: &Bars| {
        let bars_px = row.counts.len() as i32 * (BAR_PX + 2);
        if is_label_above { bars_px + LABEL_PX + 6 } else { bars_px + 6 }
    };
    let height_px = rows.iter().map(of_row).sum::<i32>() + 2 * MARGIN_PX;
    drawn(height_px, |area| {
        let most = rows.iter().flat_map(|row| row.counts.iter().map(|(count, _)| *count)).max();
        let most = most.unwrap_or(0).max(1);
        let mut top_px = MARGIN_PX;
        for row in rows {
            draw_row(area, row, top_px, most, is_label_above)?;
            top_px += of_row(row);
        }
        Ok(())
    })
}

const BAR_PX: i32 = 12;
const LABEL_PX: i32 = 15;
/// What labels before bars, and counts behind them, take.
const BEFORE_PX: i32 = 82;
const BEHIND_PX: i32 = 62;

fn draw_row(area: &Area<'_>, row: &Bars, top_px: i32, most: u64, is_label_above: bool) -> Drawn {
    let bars_px = row.counts.len() as i32 * (BAR_PX + 2) - 2;
    let place = |x_px: i32, y_px: i32| (x_px * PX, y_px * PX);
    let middle = |h_pos| Pos::new(h_pos, VPos::Center);
    let (left_px, first_px, label) = if is_label_above {
        let at = place(0, top_px + LABEL_PX / 2);
        (0, top_px + LABEL_PX, (at, text(INK).pos(middle(HPos::Left))))
    } else {
        let at = place(BEFORE_PX - 8, top_px + bars_px / 2);
        (BEFORE_PX, top_px, (at, text(MUTED).pos(middle(HPos::Right))))
    };
    area.draw(&Text::new(row.label.clone(), label.0, label.1))?;
    let room = f64::from((WIDTH_PX - left_px - BEHIND_PX) * PX);
    for (i, (count, color)) in row.counts.iter().enumerate() {
        let y_px = first_px + i as i32 * (BAR_PX + 2);
        // As in the columns, what is not 0 is seen.
        let least = if *count == 0 { 0.0 } else { f64::from(PX) };
        let length = (room * *count as f64 / most as f64).max(least).round() as i32;
        let (x0, y0) = place(left_px, y_px);
        if length > 0 {
            let bar = [(x0, y0), (x0 + length, y0 + BAR_PX * PX)];
            area.draw(&Rectangle::new(bar, color.filled()))?;
        }
        let style = text(if *count == 0 { MUTED } else { INK }).pos(middle(HPos::Left));
        let at = (x0 + length + 5 * PX, y0 + BAR_PX * PX / 2);
        area.draw(&Text::new(words::number(*count), at, style))?;
    }
    Ok(())
}

fn text(color: RGBColor) -> TextStyle<'static> {
    // plotters takes a font's size for that of its box, 1.24 of what SVG calls the size.
    ("sans-serif", f64::from(TEXT_PX * PX) * 1.24).into_font().color(&color)
}

fn drawn(height_px: i32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut svg = String::new();
    let size = ((WIDTH_PX * PX) as u32, (height_px * PX) as u32);
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let done = draw(&area).and_then(|()| area.present());
    done.expect("a string takes all that is drawn");
    drop(area);
    svg
}

/// The distance of the marks for counts up to `most`: 1, 2 or 5 and zeros, for four or fewer.
fn count_step(most: u64) -> u64 {
    let mut step = 1_u64;
    // 5 zeros at most for each of the factors 10 in a `u64`.
    for factor in [2, 5, 10].into_iter().cycle() {
        if most / step <= 4 {
            return step;
        }
        let decade = 10_u64.pow(step.ilog10());
        step = decade.saturating_mul(factor);
    }
    step
}

/// `1500` as it is, `15k`, `1.5M`: short, for the side of a chart.
fn count_label(count: f64) -> String {
    let count = count.abs();
    for (unit, letter) in [(1e9, "G"), (1e6, "M"), (1e4, "k")] {
        if count >= unit {
            let unit = if letter == "k" { 1e3 } else { unit };
            return format!("{}{letter}", (count / unit * 10.0).round() / 10.0);
        }
    }
    format!("{count}")
}

const S: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * S;

/// Distances of marks that people count time in.
const STEPS_NS: [u64; 34] = [
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    S,
    2 * S,
    5 * S,
    10 * S,
    15 * S,
    30 * S,
    60 * S,
    120 * S,
    300 * S,
    600 * S,
    900 * S,
    1_800 * S,
    3_600 * S,
    7_200 * S,
    10_800 * S,
    21_600 * S,
    43_200 * S,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
    140 * DAY,
    700 * DAY,
];

/// As many as have room side by side.
const MAX_TICKS: u64 = 5;

/// Where the marks of a time axis are, in bins, and how far apart they are.
fn time_ticks(timeline: &Timeline) -> (Vec<f64>, u64) {
    let width_ns = timeline.width_ns();
    let (start_ns, end_ns) = (timeline.start_ns(0), timeline.start_ns(timeline.bins()));
    let span_ns = (end_ns - start_ns) as u64;
    let step_ns = STEPS_NS.into_iter().find(|step_ns| span_ns / step_ns <= MAX_TICKS);
    let step_ns = step_ns.unwrap_or(span_ns / MAX_TICKS + 1);
    let step = i128::from(step_ns);
    let first_ns = start_ns + (super::timeline::MONDAY_NS - start_ns).rem_euclid(step);
    let ticks = (0..).map(|i| first_ns + i * step).take_while(|at_ns| *at_ns < end_ns);
    (ticks.map(|at_ns| (at_ns - start_ns) as f64 / width_ns as f64).collect(), step_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_few_and_round() {
        for (most, step) in [
            (0, 1),
            (4, 1),
            (5, 2),
            (9, 2),
            (10, 5),
            (24, 5),
            (25, 10),
            (1234, 500),
            (49_999, 10_000),
        ] {
            assert_eq!(count_step(most), step, "{most}");
        }
        assert!(u64::MAX / count_step(u64::MAX) <= 4);
        for (count, label) in [(-20.0, "20"), (1500.0, "1500"), (15_000.0, "15k"), (1.5e6, "1.5M")]
        {
            assert_eq!(count_label(count), label);
        }
    }

    #[test]
    fn times_are_marked_at_round_ones() {
        let mut timeline = Timeline::of_seconds();
        for second in [0, 3 * 86_400] {
            timeline.move_to((1_431_857_103 + second) * S); // 2015-05-17 10:05:03 UTC
        }
        let (ticks, step_ns) = time_ticks(&timeline);
        assert_eq!((step_ns, timeline.width_ns()), (DAY, 3_600 * S));
        let shown: Vec<String> = ticks
            .iter()
            .map(|bin| timeline.start_ns(0) + (bin * timeline.width_ns() as f64) as i128)
            .map(|at_ns| words::tick(at_ns, step_ns))
            .collect();
        assert_eq!(shown, ["18 May", "19 May", "20 May"]);
    }

    #[test]
    fn whatever_is_not_0_is_visible() {
        let mut timeline = Timeline::of_seconds();
        [1, 2].into_iter().for_each(|second| timeline.move_to(second * S));
        let count = |svg: &str, color: &str| svg.matches(&format!("fill=\"{color}\"")).count();
        let bins = timeline.bins();
        let (mut denied, mut allowed) = (vec![0; bins], vec![0; bins]);
        (denied[0], allowed[0]) = (1, 1_000_000);
        let svg = over_time(&timeline, Columns::Stacked, (&denied, DENIED), (&allowed, ALLOWED));
        assert_eq!((count(&svg, "#C44B37"), count(&svg, "#8FB3D6")), (1, 1), "{svg}");
        assert!(!svg.contains("height=\"0\""), "{svg}");
        let rows =
            [0, 1, 1_000_000].map(|n| Bars { label: "<&>".into(), counts: vec![(n, DENIED)] });
        let svg = bars(&rows, true);
        assert_eq!(count(&svg, "#C44B37"), 2, "{svg}");
        assert!(svg.contains("&lt;&amp;&gt;") && !svg.contains("<&"), "{svg}");
    }
}
