//! Groups as a picture: for each structure and operation, ours and the best peer on one logarithmic axis of time.

use std::fmt::Write;

use crate::{
    markdown::two_digits,
    report::{Group, MemoryLevel},
};

/// The kind of item that is drawn.
const ITEM: &str = "8 bytes";

const LABELS: f64 = 330.0;
const PANEL: f64 = 400.0;
const GAP: f64 = 40.0;
const TOP: f64 = 118.0;
const HEADING: f64 = 26.0;
const ROW: f64 = 20.0;
const AFTER_STRUCTURE: f64 = 10.0;
const WIDTH: f64 = LABELS + 2.0 * PANEL + GAP + 30.0;

const INK: &str = "#1f2933";
const PALE: &str = "#7b8794";
const GRID: &str = "#e4e7eb";
const OURS: &str = "#0b7a75";
const PEER: &str = "#c8553d";

/// A structure with its operations, with at most one group for each memory level.
struct Section<'a> {
    structure: &'static str,
    operations: &'static [&'static str],
    near: Option<&'a Group>,
    far: Option<&'a Group>,
}

/// The picture, as SVG.
pub fn svg(groups: &[Group]) -> String {
    let sections = sections(groups);
    let axis = Axis::over(groups);
    let rows: usize = sections.iter().map(|section| section.operations.len()).sum();
    let bottom = TOP + sections.len() as f64 * (HEADING + AFTER_STRUCTURE) + rows as f64 * ROW;
    let mut picture = Picture::new(WIDTH, bottom + 64.0);
    picture.text(24.0, 36.0, Style::Title, "weir's sketches beside the best crate for each");
    picture.text(
        24.0,
        58.0,
        Style::Note,
        "nanoseconds an operation, logarithmic: further left is better; 8-byte keys, hashing included",
    );
    legend(&mut picture);
    for (panel, name) in ["inside L2", "far beyond L2"].into_iter().enumerate() {
        axis.draw(&mut picture, left_of(panel), bottom, name);
    }
    let mut y = TOP;
    for section in &sections {
        picture.text(24.0, y + 18.0, Style::Heading, section.structure);
        y += HEADING;
        for (operation, name) in section.operations.iter().enumerate() {
            let middle = y + ROW / 2.0;
            picture.text(40.0, middle + 4.0, Style::Label, name);
            for (panel, group) in [section.near, section.far].into_iter().enumerate() {
                if let Some(group) = group {
                    dumbbell(&mut picture, &axis, left_of(panel), middle, group, operation);
                }
            }
            y += ROW;
        }
        y += AFTER_STRUCTURE;
    }
    picture.finish()
}

const fn left_of(panel: usize) -> f64 {
    LABELS + panel as f64 * (PANEL + GAP)
}

fn sections(groups: &[Group]) -> Vec<Section<'_>> {
    let mut sections: Vec<Section> = Vec::new();
    for group in groups.iter().filter(|group| item(group).is_some()) {
        if sections.last().is_none_or(|section| section.structure != group.structure) {
            let Group { structure, operations, .. } = group;
            sections.push(Section { structure, operations, near: None, far: None });
        }
        let section = sections.last_mut().expect("just pushed");
        match group.place {
            MemoryLevel::Near => section.near = Some(group),
            MemoryLevel::Far => section.far = Some(group),
        }
    }
    sections
}

fn item(group: &Group) -> Option<usize> {
    group.items.iter().position(|item| *item == ITEM)
}

/// Ours and the best peer, joined by a line, and how many times faster ours is.
fn dumbbell(picture: &mut Picture, axis: &Axis, left: f64, y: f64, group: &Group, operation: usize) {
    let Some(item) = item(group) else { return };
    let [ours, peer] = [true, false].map(|ours| group.best(ours, item, operation).map(|time| left + axis.at(time)));
    if let (Some(ours), Some(peer)) = (ours, peer) {
        picture.line((ours, y), (peer, y), if ours <= peer { OURS } else { PEER }, 3.0, 0.35);
    }
    if let Some(x) = peer {
        picture.ring(x, y, PEER);
    }
    if let Some(x) = ours {
        picture.dot(x, y, OURS);
    }
    if let (Some(ours), Some(peer), Some(ratio)) = (ours, peer, group.ratio(item, operation)) {
        picture.text(ours.max(peer) + 10.0, y + 4.0, Style::Ratio, &format!("{}×", two_digits(ratio)));
    }
}

fn legend(picture: &mut Picture) {
    let x = left_of(1) + PANEL - 178.0;
    picture.dot(x, 32.0, OURS);
    picture.text(x + 10.0, 36.0, Style::Label, "weir");
    picture.ring(x + 62.0, 32.0, PEER);
    picture.text(x + 72.0, 36.0, Style::Label, "best peer");
    picture.text(x - 5.0, 58.0, Style::Note, "1.5×: weir is 1.5 times faster");
}

/// A logarithmic axis of nanoseconds.
struct Axis {
    least: f64,
    most: f64,
}

impl Axis {
    /// Wide enough for everything that is drawn, and for the ratio beside it.
    fn over(groups: &[Group]) -> Self {
        let times = groups.iter().flat_map(|group| {
            let item = item(group);
            let operations = 0..group.operations.len();
            let all =
                operations.flat_map(move |operation| [true, false].map(|ours| group.best(ours, item?, operation)));
            all.flatten()
        });
        let (least, most) =
            times.fold((1.0, 10.0), |(least, most): (f64, f64), time| (least.min(time), most.max(time)));
        Self { least: least * 0.8, most: most * 2.5 }
    }

    fn at(&self, nanoseconds: f64) -> f64 {
        PANEL * (nanoseconds / self.least).ln() / (self.most / self.least).ln()
    }

    fn draw(&self, picture: &mut Picture, left: f64, bottom: f64, name: &str) {
        picture.text(left, TOP - 30.0, Style::Heading, name);
        for decade in [0.1, 1.0, 10.0, 100.0, 1000.0] {
            for (mark, is_labelled) in [(1.0, true), (2.0, false), (3.0, true), (5.0, false)] {
                let time = decade * mark;
                if (self.least..=self.most).contains(&time) {
                    let x = left + self.at(time);
                    picture.line((x, TOP), (x, bottom), GRID, if mark == 1.0 { 1.5 } else { 0.75 }, 1.0);
                    if is_labelled {
                        for y in [TOP - 8.0, bottom + 18.0] {
                            picture.text(x, y, Style::Tick, &format!("{time}"));
                        }
                    }
                }
            }
        }
        picture.text(left + PANEL, bottom + 38.0, Style::Unit, "ns");
    }
}

#[derive(Clone, Copy)]
enum Style {
    Title,
    Heading,
    Label,
    Note,
    Ratio,
    Tick,
    Unit,
}

/// An SVG in the making.
struct Picture(String);

impl Picture {
    fn new(width: f64, height: f64) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" font-family=\"'Source Sans 3', 'Segoe UI', 'DejaVu Sans', sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        ))
    }

    fn text(&mut self, x: f64, y: f64, style: Style, text: &str) {
        let (size, weight, ink, anchor) = match style {
            Style::Title => (20, 700, INK, "start"),
            Style::Heading => (13, 700, INK, "start"),
            Style::Label => (12, 400, INK, "start"),
            Style::Note => (12, 400, PALE, "start"),
            Style::Ratio => (11, 600, INK, "start"),
            Style::Tick => (11, 400, PALE, "middle"),
            Style::Unit => (11, 400, PALE, "end"),
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        self.element(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" font-weight=\"{weight}\" fill=\"{ink}\" \
             text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), ink: &str, width: f64, opacity: f64) {
        self.element(&format!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{ink}\" stroke-width=\"{width}\" \
             stroke-opacity=\"{opacity}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    fn dot(&mut self, x: f64, y: f64, ink: &str) {
        self.element(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{ink}\"/>"));
    }

    fn ring(&mut self, x: f64, y: f64, ink: &str) {
        self.element(&format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.2\" fill=\"#ffffff\" stroke=\"{ink}\" stroke-width=\"2\"/>"
        ));
    }

    fn element(&mut self, element: &str) {
        writeln!(self.0, "{element}").expect("writing to a string");
    }

    fn finish(mut self) -> String {
        self.element("</svg>");
        self.0
    }
}
