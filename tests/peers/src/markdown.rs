//! Prints groups as Markdown.

use crate::report::{Group, Line, MemoryLevel};

/// One table of a group, with its title.
pub fn table(group: &Group) -> String {
    let place = match group.place {
        MemoryLevel::Near => "inside L2",
        MemoryLevel::Far => "far beyond L2",
    };
    let items = group.items.join(" | ");
    let columns = format!("| ns: {} | {items} | memory | {} |", group.operations.join(" / "), group.error);
    let rule = format!("|---|{}---:|---:|", "---:|".repeat(group.items.len()));
    let lines: Vec<String> = group.lines.iter().map(row).collect();
    let title = format!("### {}, {place}", group.structure);
    format!("{title}\n\n{columns}\n{rule}\n{}\n{}\n", lines.join("\n"), ratios(group))
}

fn row(line: &Line) -> String {
    let cells = line.nanoseconds.iter().map(|cell| match cell {
        Some(times) => times.iter().map(|time| two_digits(*time)).collect::<Vec<_>>().join(" / "),
        None => "-".into(),
    });
    let cells = cells.collect::<Vec<_>>().join(" | ");
    let name = if line.ours { format!("**{}**", line.name) } else { line.name.into() };
    format!("| {name} | {cells} | {} | {} |", memory(line.memory_bytes), line.error)
}

/// How many times faster ours is than the best peer at each operation.
fn ratios(group: &Group) -> String {
    let cells = (0..group.items.len()).map(|item| {
        let ratios = (0..group.operations.len()).map(|operation| match group.ratio(item, operation) {
            Some(ratio) => two_digits(ratio),
            None => "-".into(),
        });
        ratios.collect::<Vec<_>>().join(" / ")
    });
    format!("| *times faster than the best peer* | {} | | |", cells.collect::<Vec<_>>().join(" | "))
}

/// A time or a ratio with its significant digits.
pub fn two_digits(number: f64) -> String {
    if number < 9.95 { format!("{number:.1}") } else { format!("{number:.0}") }
}

fn memory(bytes: usize) -> String {
    match bytes {
        0..0x0010_0000 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
