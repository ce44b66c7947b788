//! The answer as tables for people.

use std::io::{self, Write};

use weir_report::{
    Style,
    grid::{Align, Cell, Grid, Tone, heading},
};
use weir_system::numbers::{bytes, grouped};

use crate::answer::{Answer, Bounded, Defect, DistinctAnswer, ListAnswer, RowAnswer, SpreadAnswer, WindowAnswer};

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
    writeln!(out, "\n{} reports, {} of them with sketches; {note}.", grouped(*reports), grouped(*with_sketches))
}

fn title(text: &str, more: &str, style: Style, out: &mut impl Write) -> io::Result<()> {
    writeln!(out)?;
    for line in heading(&[Cell::new(text, Tone::Strong), Cell::new(more, Tone::Faint)], style.width, style.color) {
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
    let WindowAnswer { of, start, end, routers, reports, totals, lost, sampled_out, distinct, lists, spread } = window;
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
    table([Align::Left, Align::Right, Align::Right], sums, style, out)?;
    if !distinct.is_empty() {
        title("Distinct", "each counts once, whichever routers saw it", style, out)?;
        table([Align::Left, Align::Right, Align::Left, Align::Left], distinct.iter().map(counted), style, out)?;
    }
    for list in lists {
        write_list(list, style, out)?;
    }
    for SpreadAnswer { name, by, confidence: _, routers, rows } in spread {
        title(name, &format!("by {}, of {}", by.join(", "), plural(*routers)), style, out)?;
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

fn faint(text: impl AsRef<str>) -> Cell {
    Cell::new(text, Tone::Faint)
}

fn counted(count: &DistinctAnswer) -> [Cell; 4] {
    let DistinctAnswer { name, value, lower, upper, routers, keys, is_fleet, lg_k, .. } = count;
    let days = if *keys > 1 { format!("; {keys} keys, which cannot be joined") } else { String::new() };
    let whose = match is_fleet {
        true => faint(format!("of {}{days}", plural(*routers))),
        false => Cell::new(format!("apart: another key or lg_k ({lg_k}), of {}", plural(*routers)), Tone::Alarm),
    };
    [name.into(), grouped(*value).into(), faint(format!("{} to {}", grouped(*lower), grouped(*upper))), whose]
}

fn write_list(list: &ListAnswer, style: Style, out: &mut impl Write) -> io::Result<()> {
    let ListAnswer { name, by, confidence: _, routers, others, by_bytes, by_packets: _ } = list;
    let (by, of) = (by.join(", "), plural(*routers));
    let uncertain = if by_bytes.iter().all(|row| row.is_certain) { "" } else { "; ?: another key may belong here" };
    let more = format!("by {by}, of {of}; any other key has at most {}{uncertain}", bytes(others.bytes));
    title(name, &more, style, out)?;
    table([Align::Left, Align::Right, Align::Right, Align::Left], by_bytes.iter().map(row), style, out)
}

fn row(row: &RowAnswer) -> [Cell; 4] {
    let RowAnswer { key, packets, bytes: of_bytes, is_certain } = row;
    let between = |of: &Bounded, show: fn(u64) -> String| match of.lower == of.upper {
        true => show(of.lower),
        false => format!("{} to {}", show(of.lower), show(of.upper)),
    };
    let place = if *is_certain { "" } else { "?" };
    [key.into(), between(of_bytes, bytes).into(), format!("{} packets", between(packets, grouped)).into(), faint(place)]
}

fn defect(defect: &Defect) -> [Cell; 4] {
    let Defect { what, observer: _, name, reports, detail } = defect;
    let tone = Tone::Alarm;
    [Cell::new(what.name(), tone), grouped(*reports).into(), name.into(), faint(detail)]
}
