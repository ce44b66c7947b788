//! Sketches are exchanged in both directions: Apache `DataSketches`' own Python package reads the sketches that weir
//! writes, and weir reads those that the package writes.
//!
//! `scripts/setup` brings the package into the target folder. Without it the tests are ignored; the unit tests of
//! `weir-sketch` still read stored images of the package.

use std::process::ExitCode;

use weir_tests::trial::{needed, run, trial};

mod frequent_items;
mod golden;
mod hll;
mod peer;

fn main() -> ExitCode {
    let peer = needed(peer::python());
    let trials = vec![
        trial("golden::the_package_still_writes_them", golden::the_package_still_writes_them, &[&peer]),
        trial("hll::the_package_reads_ours", hll::the_package_reads_ours, &[&peer]),
        trial("hll::the_package_reads_keyed_ones", hll::the_package_reads_keyed_ones, &[&peer]),
        trial("hll::the_package_merges_exports_in_any_order", hll::the_package_merges_exports_in_any_order, &[&peer]),
        trial("frequent_items::the_package_reads_longs", frequent_items::the_package_reads_longs, &[&peer]),
        trial("frequent_items::the_package_reads_strings", frequent_items::the_package_reads_strings, &[&peer]),
    ];
    run(trials)
}
