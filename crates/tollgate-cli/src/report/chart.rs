//! Draws the charts of the page as SVG.
//!
//! A chart is drawn for the width of a phone and scaled. The style sheet colours each class by day and in
//! the dark.

use maud::{Markup, html};

use super::timeline::{DAY, MONDAY_NS, S, Timeline};
use super::words;
use crate::escape::Escaped;
use crate::text::grouped;

/// The classes of bars and columns.
pub(crate) const ALLOWED: &str = "allowed";
pub(crate) const DENIED: &str = "denied";
pub(crate) const LET_THROUGH: &str = "let-through";
pub(crate) const CANDIDATE: &str = "candidate";

// All lengths are in pixels.
const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 180.0;
const MARGIN: f64 = 8.0;
/// The height of the labels below the columns.
const TIME_LABELS: f64 = 22.0;
/// The width of a character of a label, at most.
const CHAR: f64 = 7.0;

/// How two series of columns are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    /// The second stands on the first.
    Stacked,
    /// The first goes upward, the second downward.
    Opposed,
}

/// Draws two series of columns over time.
pub(crate) fn over_time(
    timeline: &Timeline,
    columns: Columns,
    counts: &[[u64; 2]],
    classes: [&str; 2],
) -> Markup {
    let max = |of: fn(&[u64; 2]) -> u64| counts.iter().map(of).max().unwrap_or(0);
    let (up, down) = match columns {
        Columns::Stacked => (max(|[a, b]| a + b), 0),
        Columns::Opposed => (max(|[a, _]| *a), max(|[_, b]| *b)),
    };
    let marks = count_marks(up, down);
    let widest = marks.iter().map(|mark| count_label(*mark).len()).max().unwrap_or(1);
    let (left, right) = (MARGIN + widest as f64 * CHAR + 6.0, WIDTH - MARGIN);
    let (top, bottom) = (MARGIN, HEIGHT - MARGIN - TIME_LABELS);

    // Room above the highest column and below the lowest.
    let span = (up + down).max(1) as f64;
    let highest = up.max(u64::from(down == 0)) as f64 + span * 0.04;
    let lowest = if down > 0 { -(down as f64) - span * 0.04 } else { 0.0 };
    let y = |count: f64| top + (highest - count) / (highest - lowest) * (bottom - top);
    let x = |bin: f64| left + bin / counts.len() as f64 * (right - left);
    // A count that is not 0 is at least one pixel high.
    let pixel = (highest - lowest) / (bottom - top);
    let height = |count: u64| if count == 0 { 0.0 } else { (count as f64).max(pixel) };
    let gap = if counts.len() > 60 { 0.06 } else { 0.1 };
    let column = |bin: usize, from: f64, to: f64, class: &str| {
        let width = (1.0 - 2.0 * gap) / counts.len() as f64 * (right - left);
        rect(x(bin as f64 + gap), y(from.max(to)), width, (y(from) - y(to)).abs(), class)
    };
    let (ticks, step_ns) = time_ticks(timeline);
    let time_label = |bin: f64| {
        let since_ns = (bin * timeline.width_ns() as f64).round() as i128;
        words::tick(timeline.start_ns(0) + since_ns, step_ns)
    };
    svg(
        HEIGHT,
        html! {
            @for mark in marks {
                line x1=(left) x2=(right) y1=(round(y(mark))) y2=(round(y(mark))) {}
                (text(left - 4.0, y(mark), "end muted", &count_label(mark)))
            }
            @for bin in ticks {
                @let label = time_label(bin);
                // Half of the label must not leave the chart.
                @let half = label.chars().count() as f64 * CHAR / 2.0;
                line x1=(round(x(bin))) x2=(round(x(bin))) y1=(bottom) y2=(bottom + 3.0) {}
                (text(x(bin).clamp(half, WIDTH - half), bottom + 14.0, "middle muted", &label))
            }
            @for (bin, counts) in counts.iter().enumerate() {
                @let [a, b] = counts.map(height);
                @let (from, to) = if columns == Columns::Stacked { (a, a + b) } else { (0.0, -b) };
                @if a > 0.0 { (column(bin, 0.0, a, classes[0])) }
                @if b > 0.0 { (column(bin, from, to, classes[1])) }
            }
        },
    )
}

/// A row of a bar chart: a label, and a bar for each count with its class.
pub(crate) struct Bars {
    pub(crate) label: String,
    pub(crate) counts: Vec<(u64, &'static str)>,
}

/// Draws bars from left to right, with labels above them.
pub(crate) fn bars(rows: &[Bars]) -> Markup {
    const BAR: f64 = 12.0;
    const GAP: f64 = 2.0;
    const ROW_GAP: f64 = 6.0;
    const LABEL: f64 = 15.0;
    /// The width of a count after its bar.
    const COUNT: f64 = 62.0;
    let counts = rows.iter().flat_map(|row| row.counts.iter().map(|(count, _)| *count));
    let max = counts.max().unwrap_or(0).max(1) as f64;
    // A count that is not 0 is at least one pixel long.
    let length = |count: u64| match count {
        0 => 0.0,
        count => ((WIDTH - COUNT) * count as f64 / max).max(1.0),
    };
    let mut y = MARGIN;
    let mut content = Vec::new();
    for Bars { label, counts } in rows {
        content.push(text(0.0, y + LABEL / 2.0, "", label));
        y += LABEL;
        for (count, class) in counts {
            let class_of_text = if *count == 0 { "muted" } else { "" };
            let length = length(*count);
            content.push(html! { @if *count > 0 { (rect(0.0, y, length, BAR, class)) } });
            content.push(text(length + 5.0, y + BAR / 2.0, class_of_text, &grouped(*count)));
            y += BAR + GAP;
        }
        y += ROW_GAP;
    }
    svg(y + MARGIN, html! { @for part in content { (part) } })
}

fn svg(height: f64, content: Markup) -> Markup {
    html! { svg viewBox=(format!("0 0 {WIDTH} {height}")) { (content) } }
}

fn rect(x: f64, y: f64, width: f64, height: f64, class: &str) -> Markup {
    let [x, y, width, height] = [x, y, width, height].map(round);
    html! { rect x=(x) y=(y) width=(width) height=(height) class=(class) {} }
}

fn text(x: f64, y: f64, class: &str, text: &str) -> Markup {
    html! { text x=(round(x)) y=(round(y)) class=(class) { (text) } }
}

/// Rounds a coordinate to a hundredth of a pixel.
fn round(length: f64) -> f64 {
    (length * 100.0).round() / 100.0
}

/// Returns the distance of the marks for counts up to `max`: 1, 2 or 5 with zeros, for at most four marks.
fn count_step(max: u64) -> u64 {
    let steps =
        (0..20).flat_map(|zeros| [1, 2, 5].map(|digit| 10_u64.pow(zeros).saturating_mul(digit)));
    steps.into_iter().find(|step| max / step <= 4).unwrap_or(u64::MAX)
}

/// Returns the marks of an axis that goes `up` above zero and `down` below it. Each half that has room for a label has
/// one besides zero.
fn count_marks(up: u64, down: u64) -> Vec<f64> {
    let step = count_step(up + down);
    let half = |count: u64| {
        // The lengths of two labels, as a share of the axis.
        let has_room = count as f64 > (up + down) as f64 * 0.1;
        let steps = (1..=count / step).map(|i| i * step);
        match count / step {
            0 if has_room => vec![round_below(count)],
            _ => steps.collect(),
        }
    };
    let [above, below] = [up, down].map(half);
    let below = below.into_iter().rev().map(|count| -(count as f64));
    below.chain([0.0]).chain(above.into_iter().map(|count| count as f64)).collect()
}

/// Rounds a count down to one digit with zeros.
fn round_below(count: u64) -> u64 {
    let power = 10_u64.pow(count.max(1).ilog10());
    count / power * power
}

/// Escapes an id and cuts it so that it and `suffix` are not wider than a chart.
pub(crate) fn fitted(id: &str, suffix: &str) -> String {
    const DOTS: &str = "...";
    let id = Escaped(id).to_string();
    let width = |text: &str| text.chars().map(char_width).sum::<f64>();
    let room = WIDTH - width(suffix);
    if width(&id) <= room {
        return id + suffix;
    }
    let mut left = room - width(DOTS);
    let is_inside = |(_, c): &(usize, char)| {
        left -= char_width(*c);
        left >= 0.0
    };
    let end = id.char_indices().take_while(is_inside).last().map_or(0, |(at, c)| at + c.len_utf8());
    format!("{}{DOTS}{suffix}", &id[..end])
}

/// Returns the width of a character of a label, at most: in the widest of the common fonts.
fn char_width(c: char) -> f64 {
    match c {
        '!'
        | '\''
        | '('
        | ')'
        | ','
        | '-'..='/'
        | ':'
        | ';'
        | 'I'
        | 'J'
        | '['
        | ']'
        | 'f'
        | 'i'
        | 'j'
        | 'l'
        | 'r'
        | 't'
        | '|'
        | ' ' => 4.5,
        'M' | 'W' | 'm' | '%' | '@' => 11.5,
        ' '..='~' => CHAR + 1.0,
        // Letters of one column of a terminal, and all others, such as those of CJK.
        '\u{a0}'..='\u{10ff}' => 10.0,
        _ => 12.0,
    }
}

/// Formats a count in few characters: `1500`, `15k`, `1.5M`.
fn count_label(count: f64) -> String {
    let count = count.abs();
    for (from, unit, letter) in [(1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")] {
        if count >= from {
            return format!("{}{letter}", (count / unit * 10.0).round() / 10.0);
        }
    }
    format!("{count}")
}

/// The distances of marks on a time axis.
#[rustfmt::skip]
const STEPS_NS: [u64; 39] = [
    10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000, 100_000_000, 200_000_000, 500_000_000,
    S, 2 * S, 5 * S, 10 * S, 15 * S, 30 * S,
    60 * S, 120 * S, 300 * S, 600 * S, 900 * S, 1_800 * S,
    3_600 * S, 7_200 * S, 10_800 * S, 21_600 * S, 43_200 * S,
    DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY, 140 * DAY, 700 * DAY,
];

/// Marks on a time axis at most, so that their labels have room.
const MAX_TICKS: u64 = 5;

/// Returns the marks of a time axis, in bins, and their distance.
fn time_ticks(timeline: &Timeline) -> (Vec<f64>, u64) {
    let width_ns = timeline.width_ns();
    let (start_ns, end_ns) = (timeline.start_ns(0), timeline.start_ns(timeline.bins()));
    let span_ns = (end_ns - start_ns) as u64;
    let has_room = |step_ns: &u64| {
        let label = words::tick(start_ns + 1, *step_ns).chars().count() as u64;
        let max = ((WIDTH - 3.0 * MARGIN) / ((label + 1) as f64 * CHAR)) as u64;
        span_ns / step_ns <= max.min(MAX_TICKS)
    };
    let step_ns = STEPS_NS.into_iter().find(has_room);
    let step_ns = step_ns.unwrap_or(span_ns / MAX_TICKS + 1);
    let step = i128::from(step_ns);
    let first_ns = start_ns + (MONDAY_NS - start_ns).rem_euclid(step);
    let ticks = (0..).map(|i| first_ns + i * step).take_while(|at_ns| *at_ns < end_ns);
    (ticks.map(|at_ns| (at_ns - start_ns) as f64 / width_ns as f64).collect(), step_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_marks_are_few_and_round() {
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
    fn time_marks_are_round() {
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

    /// Returns the vertical positions of the marks with labels of counts, and their labels.
    fn marks(svg: &str) -> Vec<(f64, String)> {
        let texts = svg.split("<text ").filter(|text| text.contains("class=\"end muted\""));
        let number = |text: &str| {
            text.split("y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        let label = |text: &str| text.split(['>', '<']).nth(1).unwrap().to_owned();
        texts.map(|text| (number(text), label(text))).collect()
    }

    #[test]
    fn each_half_of_an_axis_has_a_mark() {
        let mut timeline = Timeline::of_seconds();
        timeline.move_to(S);
        let (top, bottom) = (MARGIN, HEIGHT - MARGIN - TIME_LABELS);
        for (up, down) in [
            (1, 0),
            (3, 0),
            (9, 0),
            (1999, 0),
            (0, 1),
            (0, 7),
            (1, 1),
            (400, 1000),
            (1000, 400),
            (3, 5),
            (130, 499),
        ] {
            let svg = over_time(&timeline, Columns::Opposed, &[[up, down]], [DENIED, LET_THROUGH])
                .into_string();
            let marks = marks(&svg);
            let zero = marks.iter().find(|(_, label)| label == "0").unwrap().0;
            for (count, edge) in [(up, top), (down, bottom)] {
                let farthest = marks.iter().filter(|(y, _)| (y - zero) * (edge - zero) > 0.0);
                let farthest = farthest.map(|(y, _)| (y - zero).abs()).fold(0.0, f64::max);
                let length = (edge - zero).abs();
                // Where there is no room for two labels, zero's is enough.
                assert!(
                    farthest >= length * 0.45 || length < 20.0,
                    "{up} up, {down} down: {marks:?}"
                );
                assert!(count > 0 || length < 10.0, "{up} up, {down} down: an empty half");
            }
            let mut places: Vec<f64> = marks.iter().map(|(y, _)| *y).collect();
            places.sort_by(f64::total_cmp);
            assert!(
                places.windows(2).all(|two| two[1] - two[0] >= 9.0),
                "{up} up, {down} down: {marks:?}"
            );
        }
    }

    #[test]
    fn labels_of_times_do_not_overlap() {
        for (mut timeline, span_ns) in [
            (Timeline::of_nanoseconds(), 50_000),
            (Timeline::of_nanoseconds(), 50_000_000),
            (Timeline::of_seconds(), 90 * S),
            (Timeline::of_seconds(), 3 * DAY),
        ] {
            [0, span_ns].into_iter().for_each(|since| timeline.move_to(1_431_857_103 * S + since));
            let counts = vec![[1, 1]; timeline.bins()];
            let svg =
                over_time(&timeline, Columns::Stacked, &counts, [DENIED, ALLOWED]).into_string();
            let texts =
                svg.split("<text x=\"").skip(1).filter(|text| text.contains("middle muted"));
            let places: Vec<(f64, f64)> = texts
                .map(|text| {
                    let label = text.split(['>', '<']).nth(1).unwrap();
                    (
                        text.split('"').next().unwrap().parse().unwrap(),
                        label.chars().count() as f64 * CHAR,
                    )
                })
                .collect();
            assert!(!places.is_empty(), "{span_ns}: {svg}");
            for two in places.windows(2) {
                assert!(two[1].0 - two[0].0 >= two[0].1, "{span_ns}: {places:?}");
            }
        }
    }

    #[test]
    fn labels_of_bars_fit_the_chart() {
        for (id, label) in [
            ("66.249.73.135", "66.249.73.135".to_owned()),
            (
                "/presentations/logstash-monitorama-2013/x",
                "/presentations/logstash-monitorama-2013/x".into(),
            ),
            (&*"W".repeat(200), "W".repeat(26) + "..."),
            (&*"\u{6f22}".repeat(60), "\u{6f22}".repeat(25) + "..."),
            ("\u{1b}\u{202e}", "\\u{1b}\\u{202e}".into()),
        ] {
            assert_eq!(fitted(id, ""), label);
        }
        assert_eq!(fitted(&"a".repeat(90), ", override now"), "a".repeat(26) + "..., override now");
    }

    #[test]
    fn counts_above_zero_are_visible() {
        let mut timeline = Timeline::of_seconds();
        [1, 2].into_iter().for_each(|second| timeline.move_to(second * S));
        let count = |svg: &str| svg.matches("<rect").count();
        let mut counts = vec![[0, 0]; timeline.bins()];
        counts[0] = [1, 1_000_000];
        let svg = over_time(&timeline, Columns::Stacked, &counts, [DENIED, ALLOWED]).into_string();
        assert_eq!(count(&svg), 2, "{svg}");
        assert!(svg.contains("height=\"1\" class=\"denied\""), "{svg}");
        let rows =
            [0, 1, 1_000_000].map(|n| Bars { label: "<&>".into(), counts: vec![(n, DENIED)] });
        let svg = bars(&rows).into_string();
        assert_eq!(count(&svg), 2, "{svg}");
        assert!(svg.contains("width=\"1\" height=\"12\" class=\"denied\""), "{svg}");
        assert!(svg.contains("&lt;&amp;&gt;") && !svg.contains("<&"), "{svg}");
    }
}
