//! Unique counts are as exact as configured, and their bounds and those of new flows hold as often as the report
//! states. This is shown by many replays of one capture, each with other hash keys.

use anyhow::{Context, Error, Result, ensure};
use weir::replay::Windows;
use weir_tests::{
    chance,
    oracle::Dimension,
    scratch::Scratch,
    traffic::{Mix, Plan},
};

use crate::{
    command::capture,
    library::{run_with, small},
};

/// Replays; each is a new draw of the sketches' errors.
const SEEDS: u64 = 400;
const NEW: &str = "/new_flows";

/// All flows are new, and six times as many as the filter of seen flows is made for: at the end it misses one in three.
///
/// For each count, the number of failures is compared with the binomial distribution: replays are independent of each
/// other, but the counts of one replay may not be. Bounds half as wide as they should be fail some 40 times. Bounds
/// that are a fifth too narrow fail hardly more often than correct ones, so the width is compared with the standard
/// error that is found. The standard error is compared with the configured one: with the default of 0.41 %, an error of
/// 2 % happens once in a million.
pub fn unique_counts_are_as_exact_and_as_sure_as_they_say() -> Result<()> {
    const COUNTS: [(&str, Dimension); 4] = [
        ("/unique/src_ip", Dimension::Sources),
        ("/unique/dst_ip", Dimension::Destinations),
        ("/unique/flows", Dimension::Flows),
        (NEW, Dimension::Flows),
    ];
    let scratch = Scratch::new()?;
    let file = scratch.file("traffic.pcap");
    // Flows and sources are more than ten times as many as the registers of the sketch, so that the error is that of
    // any large count. Packets are so many that no bound is limited by their number.
    let plan = Plan { seed: 41, packets: 10_000, flows: 12_000, zipf: 0.0, mix: Mix::plain(), ..Plan::default() };
    let truth = capture(&file, plan)?;
    let config = small();
    let mut failures = [0; COUNTS.len()];
    let mut errors = [const { Vec::new() }; COUNTS.len()];
    let mut widths = [0.0; COUNTS.len()];
    let mut stated = None;
    for seed in 0..SEEDS {
        let replayed = run_with(&config, std::slice::from_ref(&file), Windows::All, false, seed)?;
        let [report] = &replayed.reports[..] else { anyhow::bail!("{} reports", replayed.reports.len()) };
        let counted = COUNTS.into_iter().zip(&mut failures).zip(&mut errors).zip(&mut widths);
        for ((((name, dimension), failures), errors), width) in counted {
            let unique = report.pointer(name).context(name)?;
            let number = |part: &str| unique[part].as_u64().with_context(|| format!("no {part} in {unique}"));
            let distinct = truth.distinct(dimension);
            errors.push(number("value")? as f64 / distinct as f64 - 1.0);
            let (lower, upper) = (number("lower")?, number("upper")?);
            *failures += u64::from(!(lower..=upper).contains(&distinct));
            *width += (upper - lower) as f64 / distinct as f64 / SEEDS as f64;
            let confidence = unique["confidence"].as_f64().context("no confidence")?;
            ensure!(*stated.get_or_insert(confidence) == confidence, "{unique}: another confidence than before");
        }
    }
    let confidence = stated.context("nothing was stated")?;
    ensure!((0.9..1.0).contains(&confidence), "a confidence of {confidence}");
    let alarm = chance::failures_that_alarm(SEEDS, 1.0 - confidence);
    // The standard error of n draws is known to one part in the square root of 2n.
    let slack = 1.0 + chance::deviations(chance::FALSE_ALARM) / (2.0 * SEEDS as f64).sqrt();
    for ((((name, _), failures), errors), width) in COUNTS.into_iter().zip(failures).zip(errors).zip(widths) {
        ensure!(
            failures < alarm,
            "{name}: {failures} of {SEEDS} bounds at {confidence} failed; {alarm} happen once in a million runs"
        );
        if name == NEW {
            // The value of this count is its lower bound.
            continue;
        }
        chance::unbiased(&errors, 0.0).map_err(Error::msg).context(name)?;
        let error = (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt();
        let asked = config.estimates.unique_error;
        ensure!(error < asked * slack, "{name}: the standard error is {error:.4}, and {asked} was asked for");
        let needed = 2.0 * chance::deviations(1.0 - confidence) * error / slack;
        ensure!(width > needed, "{name}: the bounds are {width:.4} apart, and {needed:.4} is the least by that error");
    }
    Ok(())
}
