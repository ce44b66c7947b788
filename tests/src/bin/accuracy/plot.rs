//! Pictures of errors and widths: plain SVG, with logarithmic axes.

use std::fmt::Write;

use crate::{
    Section,
    scenario::{self, Geometry, RATES, Rate},
    spans,
    tally::{Mean, Span, Tallies},
};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// The position of the axes; the names of lines are to the right.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 520.0;
const TOP: f64 = 45.0;
const BOTTOM: f64 = 365.0;
/// Colours that everybody can distinguish (Okabe and Ito, "Color universal design", 2008).
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442"];

/// A line: its name, and its points.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Every picture of what was measured, with the name of its file.
pub fn all(tallies: &Tallies, only: Option<Section>) -> Vec<(&'static str, String)> {
    let mut all = if matches!(only, None | Some(Section::Bounds)) { of_cells(tallies) } else { Vec::new() };
    if matches!(only, None | Some(Section::Spans)) {
        all.extend(of_spans(tallies));
    }
    all
}

/// The twentieth row of long times, with the rows that are kept of a window today, and with ten.
fn of_spans(tallies: &Tallies) -> [(&'static str, String); 2] {
    let lines = |of: fn(&Span) -> Mean| {
        let line = |(traffic, rows): (&spans::Traffic, usize)| Line {
            name: format!("{}, {rows}", traffic.name),
            points: spans::MINUTES
                .iter()
                .filter_map(|minutes| {
                    let span = tallies.spans.get(&(traffic.name, rows, *minutes))?;
                    Some((*minutes as f64, 100.0 * of(span).value()))
                })
                .collect(),
        };
        let formats = |traffic| spans::FORMATS.map(|rows| (traffic, rows));
        spans::ALL.iter().flat_map(formats).map(line).collect::<Vec<_>>()
    };
    let below = "length of the time, minutes; the number after the traffic is that of rows kept of a window";
    [
        (
            "accuracy-error-spans.svg",
            picture("Error of the twentieth source of a time, % of the truth", below, &lines(|span| span.error)),
        ),
        (
            "accuracy-width-spans.svg",
            picture("Distance between its bounds, % of the truth", below, &lines(|span| span.width)),
        ),
    ]
}

fn of_cells(tallies: &Tallies) -> Vec<(&'static str, String)> {
    let by_rate = |of: fn(&crate::tally::Cell) -> Mean| {
        let line = |scenario: &scenario::Scenario| Line {
            name: scenario.name.to_owned(),
            points: RATES
                .iter()
                .filter_map(|rate| {
                    let Rate::OneIn(one_in) = rate else { return None };
                    let cell = tallies.cells.get(&(scenario.name, Geometry::Default, *rate))?;
                    Some((f64::from(*one_in), 100.0 * of(cell).value()))
                })
                .collect(),
        };
        scenario::ALL.iter().map(line).collect::<Vec<_>>()
    };
    let by_memory = |of: fn(&crate::tally::Cell) -> Mean| {
        let line = |scenario: &scenario::Scenario| Line {
            name: scenario.name.to_owned(),
            points: [Geometry::Smallest, Geometry::Default]
                .iter()
                .filter_map(|size| {
                    let cell = tallies.cells.get(&(scenario.name, *size, Rate::OneIn(1)))?;
                    Some((cell.memory as f64 / 1024.0, 100.0 * of(cell).value()))
                })
                .collect(),
        };
        scenario::ALL.iter().map(line).collect::<Vec<_>>()
    };
    let rate = "one packet in so many is taken";
    let memory = "memory of one worker's sketches and of the filter, KiB";
    vec![
        (
            "accuracy-width-sampling.svg",
            picture(
                "Distance between bounds of the ten largest flows, % of the truth",
                rate,
                &by_rate(|cell| cell.width),
            ),
        ),
        (
            "accuracy-error-sampling.svg",
            picture("Error of the ten largest flows, % of the truth", rate, &by_rate(|cell| cell.error)),
        ),
        (
            "accuracy-width-memory.svg",
            picture(
                "Distance between bounds, every packet taken, % of the truth",
                memory,
                &by_memory(|cell| cell.width),
            ),
        ),
        (
            "accuracy-error-memory.svg",
            picture("Error, every packet taken, % of the truth", memory, &by_memory(|cell| cell.error)),
        ),
    ]
}

/// Smaller values are drawn at this value, because zero has no logarithm.
const LEAST: f64 = 0.001;

fn picture(title: &str, below: &str, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points).filter(|(_, y)| y.is_finite());
    let decades = |values: &mut dyn Iterator<Item = f64>| {
        let (least, most) = values.fold((f64::MAX, LEAST), |(least, most), value| (least.min(value), most.max(value)));
        (least.min(most).max(LEAST).log10().floor(), most.log10().ceil())
    };
    let (x_least, x_most) = decades(&mut points().map(|(x, _)| *x));
    let (y_least, y_most) = decades(&mut points().map(|(_, y)| *y));
    let (x_most, y_most) = (x_most.max(x_least + 1.0), y_most.max(y_least + 1.0));
    let x_of = |x: f64| LEFT + (x.log10() - x_least) / (x_most - x_least) * (RIGHT - LEFT);
    let y_of = |y: f64| BOTTOM - (y.max(LEAST).log10() - y_least) / (y_most - y_least) * (BOTTOM - TOP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{title}</text>\n\
         <text x=\"{LEFT}\" y=\"{}\">{below}</text>\n",
        HEIGHT - 14.0
    );
    let mut add = |element: String| {
        svg.push_str(&element);
        svg.push('\n');
    };
    for decade in x_least as i32..=x_most as i32 {
        let x = x_of(10_f64.powi(decade));
        add(format!("<path d=\"M{x:.1} {TOP}V{BOTTOM}\" stroke=\"#ddd\"/>"));
        add(format!("<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>", BOTTOM + 18.0, number(decade)));
    }
    for decade in y_least as i32..=y_most as i32 {
        let y = y_of(10_f64.powi(decade));
        add(format!("<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#ddd\"/>"));
        add(format!("<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", LEFT - 8.0, y + 4.0, number(decade)));
    }
    for (nth, (line, colour)) in lines.iter().zip(COLOURS).enumerate() {
        let mut path = String::new();
        for (x, y) in line.points.iter().filter(|(_, y)| y.is_finite()) {
            let (x, y) = (x_of(*x), y_of(*y));
            let start = if path.is_empty() { 'M' } else { 'L' };
            // Writing to a string cannot fail.
            let _ = write!(path, "{start}{x:.1} {y:.1}");
            add(format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"));
        }
        add(format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"));
        let y = TOP + 20.0 + 22.0 * nth as f64;
        add(format!("<path d=\"M{} {}h18\" stroke=\"{colour}\" stroke-width=\"3\"/>", RIGHT + 15.0, y - 4.0));
        add(format!("<text x=\"{}\" y=\"{y}\">{}</text>", RIGHT + 40.0, line.name));
    }
    svg + "</svg>\n"
}

/// A power of ten.
fn number(decade: i32) -> String {
    if decade < 0 {
        format!("{:.*}", decade.unsigned_abs() as usize, 10_f64.powi(decade))
    } else {
        format!("{}", 10_f64.powi(decade))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_and_zero_lies_at_the_bottom() {
        let line = Line { name: "a line".to_owned(), points: vec![(1.0, 0.0), (10.0, 2.0), (100.0, f64::NAN)] };
        let svg = picture("title", "axis", &[line]);
        assert!(svg.contains("a line") && svg.matches("<circle").count() == 2);
        assert!(svg.contains(&format!("cy=\"{BOTTOM:.1}\"")), "{svg}");
        assert_eq!([-2, 0, 3].map(number), ["0.01", "1", "1000"]);
    }
}
