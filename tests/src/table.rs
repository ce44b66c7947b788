//! Prints figures as a Markdown table, with the machine on which they were measured.

use std::{
    fs,
    io::{self, Write},
};

use anyhow::Result;
use rustix::system::uname;
use weir_datapath::online_cpus;
pub use weir_system::numbers::grouped as thousands;

/// Writes a table with the first column aligned left, and all others aligned right.
///
/// # Errors
///
/// The errors of standard output.
pub fn write<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> Result<()> {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].chars().count(), 3]).max().unwrap_or_default()
    });
    let line = |cells: [&str; N]| {
        let padded = cells.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("| {} |", padded.collect::<Vec<_>>().join(" | "))
    };
    let rules = widths.map(|width| "-".repeat(width - 1));
    let rules: Vec<_> = rules
        .iter()
        .enumerate()
        .map(|(column, rule)| if column == 0 { format!("{rule}-") } else { format!("{rule}:") })
        .collect();
    let mut out = io::stdout().lock();
    writeln!(out, "{}", line(heads))?;
    writeln!(out, "| {} |", rules.join(" | "))?;
    for row in rows {
        writeln!(out, "{}", line(row.each_ref().map(String::as_str)))?;
    }
    Ok(())
}

/// Writes a line of text.
///
/// # Errors
///
/// The errors of standard output.
pub fn say(text: impl AsRef<str>) -> Result<()> {
    Ok(writeln!(io::stdout(), "{}", text.as_ref())?)
}

/// The machine in a line: processor, CPUs, kernel.
///
/// # Errors
///
/// `/sys` cannot be read.
pub fn machine() -> Result<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(": ")).map(|(_, value)| value.trim())
    };
    let virtual_machine = field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    Ok(format!(
        "{}{}, {} CPUs online, Linux {}, weir {}",
        field("model name").unwrap_or("unknown processor"),
        if virtual_machine { " (virtual machine)" } else { "" },
        online_cpus()?.len(),
        uname().release().to_string_lossy(),
        env!("CARGO_PKG_VERSION"),
    ))
}

/// The smallest figure and the median. There must be at least one figure.
pub fn least_and_median(mut figures: Vec<f64>) -> (f64, f64) {
    figures.sort_by(f64::total_cmp);
    (figures[0], figures[figures.len() / 2])
}

/// The mean of the lowest quarter of these figures, of which there must be some, and their median.
pub fn lowest_quarter_and_median(mut figures: Vec<f64>) -> (f64, f64) {
    figures.sort_by(f64::total_cmp);
    let lowest = &figures[..figures.len().div_ceil(4)];
    (lowest.iter().sum::<f64>() / lowest.len() as f64, figures[figures.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_put_in_order_and_numbers_in_groups() {
        assert_eq!(least_and_median(vec![3.0, 1.0, 2.0]), (1.0, 2.0));
        assert_eq!(lowest_quarter_and_median(vec![8.0, 1.0, 7.0, 2.0, 6.0]), (1.5, 6.0));
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
