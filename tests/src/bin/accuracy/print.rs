//! Prints tables for people.

use anyhow::Result;
use weir_tests::table::{self, say, thousands};

use crate::{
    distinct::{COUNTS, FAMILIES},
    scenario::{self, Geometry, RATES},
    tally::{About, CONFIDENCES, Cell, Failures, Mean, STATED, Span, Tallies, Tens, per_10_000},
};

/// Every cell's failures at each confidence, and how good its lists are; then distinct keys.
pub fn tables(tallies: &Tallies) -> Result<()> {
    say(format!("{}\n", table::machine()?))?;
    let places = || {
        scenario::ALL.iter().flat_map(|scenario| {
            Geometry::ALL.into_iter().flat_map(move |size| RATES.map(|rate| (scenario.name, size, rate)))
        })
    };
    for confidence in CONFIDENCES {
        let rows: Vec<_> = places()
            .filter_map(|place @ (scenario, size, rate)| {
                let cell = tallies.cells.get(&place)?;
                let of = |chosen: fn(&About) -> bool| share(sum(cell, confidence, chosen));
                let lists = sum(cell, confidence, |about| matches!(about, About::List("flows")));
                Some([
                    scenario.to_owned(),
                    size.name().to_owned(),
                    rate.name(),
                    thousands(lists.trials),
                    of(|about| matches!(about, About::List(_))),
                    of(|about| matches!(about, About::Unique(_))),
                    of(|about| matches!(about, About::New)),
                    of(|about| matches!(about, About::Sums(_))),
                    of(|about| matches!(about, About::Spread(_))),
                ])
            })
            .collect();
        say(format!("Share of statements that failed, judged at a confidence of {confidence}:\n"))?;
        table::write(
            ["traffic", "sketches", "1 in", "seeds", "lists", "distinct counts", "new flows", "views: sums", "by key"],
            &rows,
        )?;
        say("")?;
    }
    let rows: Vec<_> = places()
        .filter_map(|place @ (scenario, size, rate)| {
            let cell = tallies.cells.get(&place)?;
            let percent = |value: f64| if value.is_nan() { "-".to_owned() } else { format!("{:.2} %", 100.0 * value) };
            Some([
                scenario.to_owned(),
                size.name().to_owned(),
                rate.name(),
                percent(cell.width.value()),
                percent(cell.error.value()),
                percent(cell.precision.value()),
                percent(cell.recall.value()),
            ])
        })
        .collect();
    say(
        "The ten largest flows by bytes, as listed: mean distance between bounds and mean error of the value, both as a share\n\
         of the truth; the share of listed flows that belong there, and of flows that belong there which are listed:\n",
    )?;
    table::write(["traffic", "sketches", "1 in", "width", "error", "precision", "recall"], &rows)?;
    say("\nDistinct keys, by the daemon's hash and its default error: share of bounds that failed:\n")?;
    let mut rows = Vec::new();
    for family in &FAMILIES {
        for count in COUNTS {
            let Some(squares) = tallies.squares.get(&(family.name, count)) else { continue };
            let of = |confidence: f64| {
                tallies.distinct.get(&(family.name, count, per_10_000(confidence))).copied().unwrap_or_default()
            };
            rows.push([
                family.name.to_owned(),
                thousands(count),
                thousands(of(STATED).trials),
                format!("{:.3} %", 100.0 * squares.value().sqrt()),
                share(of(STATED)),
                share(of(0.9)),
                share(of(0.5)),
            ]);
        }
    }
    table::write(["keys", "how many", "seeds", "standard error", "at 0.999", "at 0.9", "at 0.5"], &rows)?;
    tens(tallies)?;
    spans(tallies)
}

/// Prints how close the lists of long times are.
fn spans(tallies: &Tallies) -> Result<()> {
    let percent = |of: Mean| format!("{:.2} %", 100.0 * of.value());
    let row = |((traffic, rows, minutes), span): (&(&'static str, usize, i64), &Span)| {
        let Span { failures, error, width } = *span;
        let [rows, minutes] = [rows.to_string(), minutes.to_string()];
        [
            (*traffic).to_owned(),
            minutes,
            rows,
            thousands(failures.trials),
            percent(error),
            percent(width),
            share(failures),
        ]
    };
    let rows: Vec<_> = tallies.spans.iter().map(row).collect();
    say("\nThe twentieth source of a time, from a history with so many rows of each window, and lists that failed:\n")?;
    table::write(["traffic", "minutes", "rows", "seeds", "error", "width", "failed"], &rows)
}

/// Prints whether lists have the true ten.
fn tens(tallies: &Tallies) -> Result<()> {
    let row = |(list, tens): (&&'static str, &Tens)| {
        let Tens { incomplete, missing } = *tens;
        let found = |Failures { failed, trials }| share(Failures { failed: trials - failed, trials });
        [(*list).to_owned(), thousands(incomplete.trials), found(incomplete), found(missing)]
    };
    let rows: Vec<_> = tallies.tens.iter().map(row).collect();
    say(
        "\nThe true ten of a million, with the default sketches and every packet: share of lists that had all of them, and\n\
         share of these keys that were listed:\n",
    )?;
    table::write(["list", "seeds", "had all ten", "of the keys"], &rows)
}

/// The faults found, or a line that says that there are none.
pub fn verdict(tallies: &Tallies, alarms: &[String]) -> Result<()> {
    say(format!(
        "\n{} statements were judged; a fault is what happens by chance in one of a million such runs, all together.",
        thousands(tallies.judged() as u64)
    ))?;
    match alarms {
        [] => say("Nothing is wrong."),
        alarms => alarms.iter().try_for_each(|alarm| say(format!("FAULT: {alarm}"))),
    }
}

fn sum(cell: &Cell, confidence: f64, chosen: fn(&About) -> bool) -> Failures {
    let mut all = Failures::default();
    let at = per_10_000(confidence);
    for ((_, _), failures) in cell.statements.iter().filter(|((of, about), _)| *of == at && chosen(about)) {
        all.merge(*failures);
    }
    all
}

fn share(Failures { failed, trials }: Failures) -> String {
    if trials == 0 { "-".to_owned() } else { format!("{:.3} %", 100.0 * failed as f64 / trials as f64) }
}
