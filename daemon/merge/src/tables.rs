//! The answer as tables for people.

use std::io::{self, Write};

use weir_schema::{
    Fact, Style, Verdict,
    grid::{Align, Cell, Grid, Tone, heading},
};
use weir_system::numbers::{bytes, grouped};

use crate::{
    answer::{
        Answer, Bounded, Defect, DistinctAnswer, ListAnswer, RowAnswer, SpreadAnswer, UncertainAnswer, WindowAnswer,
    },
    group::NOT_STATED,
};

/// The columns that the numbers of a list's row take at most, with the blanks before them.
const NUMBERS_WIDTH: usize = 64;

/// Writes the answer.
///
/// # Errors
///
/// Those of `out`.
pub fn write_tables(answer: &Answer, style: Style, out: &mut impl Write) -> io::Result<()> {
    let Answer { schema: _, reports, with_sketches, note, windows, defects } = answer;
    for window in windows {
        write_window(window, style, out)?;
    }
    title("Not as it was sent, or not joined", "", style, out)?;
    if defects.is_empty() {
        writeln!(out, "  nothing")?;
    }
    table([Align::Left, Align::Right, Align::Left, Align::Left], defects.iter().map(defect), style, out)?;
    writeln!(out)?;
    let sums = format!("{} reports, {} of them with sketches; {note}.", grouped(*reports), grouped(*with_sketches));
    lines(&[Cell::new(sums, Tone::Plain)], style, out)
}

fn title(text: &str, more: &str, style: Style, out: &mut impl Write) -> io::Result<()> {
    writeln!(out)?;
    lines(&[Cell::new(text, Tone::Strong), Cell::new(more, Tone::Faint)], style, out)
}

fn lines(cells: &[Cell], style: Style, out: &mut impl Write) -> io::Result<()> {
    for line in heading(cells, style.width.max(Style::WIDTH_MIN), style.color) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn table<const N: usize>(
    columns: [Align; N],
    rows: impl Iterator<Item = [Cell; N]>,
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut grid = Grid::new(columns);
    for row in rows {
        grid.row(row);
    }
    grid.write_within(style.width.max(Style::WIDTH_MIN), style.color, out)
}

fn write_window(window: &WindowAnswer, style: Style, out: &mut impl Write) -> io::Result<()> {
    let WindowAnswer {
        of,
        start,
        end,
        routers,
        reports,
        totals,
        lost,
        sampled_out,
        uncertain,
        trust,
        distinct,
        lists,
        spread,
        ..
    } = window;
    let of = of.as_ref().map(|of| format!("{of}, ")).unwrap_or_default();
    title(
        &format!("{of}{start} to {end}"),
        &format!("{}, {} reports", plural(*routers), grouped(*reports)),
        style,
        out,
    )?;
    let sums = [("seen", totals), ("lost", lost), ("sampled out", sampled_out)];
    let sums = sums.into_iter().map(|(name, sums)| {
        [name.into(), format!("{} packets", grouped(sums.packets)).into(), bytes(sums.bytes).into()]
    });
    let uncertain = uncertain.iter().map(|UncertainAnswer { packets, bytes: of_bytes }| {
        let packets = format!("{} packets", between(packets, grouped));
        ["of these uncertain".into(), packets.into(), between(of_bytes, bytes).into()]
    });
    table([Align::Left, Align::Right, Align::Right], sums.chain(uncertain), style, out)?;
    let judged = |Fact { text, verdict }: &Fact| {
        Cell::new(text, if *verdict == Verdict::Bad { Tone::Alarm } else { Tone::Plain })
    };
    lines(&[Cell::from("  trust")].into_iter().chain(trust.iter().map(judged)).collect::<Vec<_>>(), style, out)?;
    if !distinct.is_empty() {
        title("Distinct", "each counts once, whichever routers saw it", style, out)?;
        table([Align::Left, Align::Right, Align::Left, Align::Left], distinct.iter().map(counted), style, out)?;
    }
    for list in lists {
        write_list(list, style, out)?;
    }
    for SpreadAnswer { name, question, is_usual, by, confidence: _, routers, rows } in spread {
        let apart = apart(question.as_deref(), *is_usual);
        title(name, &format!("by {}, of {}{apart}", by.join(", "), plural(*routers)), style, out)?;
        let rows = rows.iter().map(|row| {
            let between = faint(format!("{} to {}", grouped(row.lower), grouped(row.upper)));
            [Cell::from(&row.key), grouped(row.value).into(), between]
        });
        table([Align::Left, Align::Right, Align::Left], rows, style, out)?;
    }
    Ok(())
}

fn plural(routers: usize) -> String {
    format!("{routers} router{}", if routers == 1 { "" } else { "s" })
}

/// The words about an answer to another question than most.
fn apart(question: Option<&str>, is_usual: bool) -> String {
    match is_usual {
        true => String::new(),
        false => format!("; apart: another question ({}) than most", question.unwrap_or(NOT_STATED)),
    }
}

fn between(of: &Bounded, show: fn(u64) -> String) -> String {
    match of.lower == of.upper {
        true => show(of.lower),
        false => format!("{} to {}", show(of.lower), show(of.upper)),
    }
}

fn faint(text: impl AsRef<str>) -> Cell {
    Cell::new(text, Tone::Faint)
}

fn counted(count: &DistinctAnswer) -> [Cell; 4] {
    let DistinctAnswer { name, question, is_usual, value, lower, upper, routers, keys, is_fleet, lg_k, .. } = count;
    let days = if *keys > 1 { format!("; {keys} keys, which cannot be joined") } else { String::new() };
    let whose = match is_fleet {
        true => {
            let tone = if *is_usual { Tone::Faint } else { Tone::Alarm };
            let apart = apart(question.as_deref(), *is_usual);
            Cell::new(format!("of {}{days}{apart}", plural(*routers)), tone)
        }
        false => Cell::new(format!("apart: another key or lg_k ({lg_k}), of {}", plural(*routers)), Tone::Alarm),
    };
    [name.into(), grouped(*value).into(), faint(format!("{} to {}", grouped(*lower), grouped(*upper))), whose]
}

fn write_list(list: &ListAnswer, style: Style, out: &mut impl Write) -> io::Result<()> {
    let ListAnswer { name, question, is_usual, by, confidence: _, routers, others, by_bytes, by_packets: _ } = list;
    let apart = apart(question.as_deref(), *is_usual);
    let (by, of) = (by.join(", "), plural(*routers));
    let uncertain = if by_bytes.iter().all(|row| row.is_certain) { "" } else { "; ?: another key may belong here" };
    let more = format!("by {by}, of {of}; any other key has at most {}{uncertain}{apart}", bytes(others.bytes));
    title(name, &more, style, out)?;
    let width = style.width.max(Style::WIDTH_MIN);
    let mut grid = Grid::new([Align::Left, Align::Right, Align::Right, Align::Left]);
    for of in by_bytes {
        let mut cells = row(of);
        if of.key.chars().count() + NUMBERS_WIDTH > width {
            // The key takes a whole line, and the numbers follow on the next one.
            grid.across([std::mem::replace(&mut cells[0], "".into())]);
        }
        grid.row(cells);
    }
    grid.write_within(width, style.color, out)
}

fn row(row: &RowAnswer) -> [Cell; 4] {
    let RowAnswer { key, packets, bytes: of_bytes, is_certain } = row;
    let place = if *is_certain { "" } else { "?" };
    [key.into(), between(of_bytes, bytes).into(), format!("{} packets", between(packets, grouped)).into(), faint(place)]
}

fn defect(defect: &Defect) -> [Cell; 4] {
    let Defect { what, observer: _, name, reports, detail } = defect;
    let tone = Tone::Alarm;
    [Cell::new(what.name(), tone), grouped(*reports).into(), name.into(), faint(detail)]
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;
    use crate::answer::{SCHEMA, SpreadRow, Sums, What};

    /// An answer with everything that tables show.
    fn answer() -> Answer {
        let sums = |packets, bytes| Sums { packets, bytes };
        let bounded = |lower, upper| Bounded { lower, upper };
        let row = |key: &str, [from, to]: [u64; 2], is_certain| RowAnswer {
            key: key.to_owned(),
            packets: bounded(from / 700, to / 700),
            bytes: bounded(from, to),
            is_certain,
        };
        let rows = vec![
            row(
                "2001:db8:85a3:1234:5678:8a2e:370:7334 2001:db8:85a3:1234:5678:8a2e:370:7335",
                [u64::pow(10, 12); 2],
                true,
            ),
            row("192.0.2.7 198.51.100.9", [41_000_000, 43_500_000], false),
        ];
        let count = |name: &str, is_fleet, keys| DistinctAnswer {
            name: name.to_owned(),
            question: None,
            is_usual: true,
            value: 1_234_567,
            lower: 1_200_000,
            upper: 1_270_000,
            confidence: 0.95,
            routers: 3,
            keys,
            is_fleet,
            key_id: None,
            lg_k: 12,
        };
        let window = WindowAnswer {
            of: Some("fra".to_owned()),
            start: "2026-11-26T10:00:00Z".parse().unwrap(),
            end: "2026-11-26T11:00:00Z".parse().unwrap(),
            routers: 3,
            reports: 1_080,
            totals: sums(123_456_789_012, 98_765_432_109_876),
            lost: sums(17, 2_345),
            sampled_out: sums(0, 0),
            not_in_lists: Default::default(),
            not_measured: Default::default(),
            trust: vec![
                Fact::new("kept >99.9 %", Verdict::Bad),
                Fact::new("not measured: edge-1 eth0 (detached)", Verdict::Bad),
                Fact::new("in lists 62.5 % of packets, 90.1 % of bytes", Verdict::Bad),
                Fact::new("not in lists: macsec 37.5 %", Verdict::Bad),
            ],
            uncertain: Some(UncertainAnswer { packets: bounded(20, 450), bytes: bounded(3_000, 650_000) }),
            distinct: vec![count("src_ip", true, 2), count("flows", false, 1)],
            lists: vec![ListAnswer {
                name: "pairs".to_owned(),
                question: Some("0123456789abcdef".to_owned()),
                is_usual: false,
                by: vec!["src_ip".to_owned(), "dst_ip".to_owned()],
                confidence: 0.95,
                routers: 3,
                others: sums(40_000, 42_000_000),
                by_bytes: rows.clone(),
                by_packets: rows,
            }],
            spread: vec![SpreadAnswer {
                name: "ports_per_source".to_owned(),
                question: None,
                is_usual: true,
                by: vec!["src_ip".to_owned()],
                confidence: 0.95,
                routers: 1,
                rows: vec![SpreadRow { key: "192.0.2.7".to_owned(), value: 40_000, lower: 38_000, upper: 42_000 }],
            }],
        };
        let defect = |what, detail: &str| Defect {
            what,
            observer: "7f".to_owned(),
            name: "edge-1.fra.example.net".to_owned(),
            reports: 12,
            detail: detail.to_owned(),
        };
        Answer {
            schema: SCHEMA,
            reports: 1_080,
            with_sketches: 180,
            note: "a packet that passed two routers counts at both",
            windows: vec![window],
            defects: vec![
                defect(What::Gap, "b41d7f0c2a9e4d5f/17-28, b41d7f0c2a9e4d5f/40-41"),
                defect(What::SpansWindows, "counted in the window in which they begin"),
            ],
        }
    }

    #[test]
    fn tables_fit_terminals() {
        for width in [80, 120] {
            let mut out = Vec::new();
            write_tables(&answer(), Style { color: false, width, lines: None }, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            expect_file![format!("../tests/golden/tables-{width}.txt")].assert_eq(&text);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
    }
}
