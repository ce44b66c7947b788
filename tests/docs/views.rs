//! `docs/VIEWS.md` explains every field that a view can have, and no others.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use weir_config::view::field::{FIELDS, FieldRow};

use crate::page::{Page, spans};

const VIEWS: &str = "docs/VIEWS.md";

#[test]
fn every_field_and_every_condition_is_explained() -> Result<()> {
    let page = Page::read(VIEWS)?;
    let listed = |heading: &str| -> BTreeSet<String> {
        let rows = page.tables().into_iter().flatten().filter(|row| row.heading == heading);
        // An address is explained again with the length of a network.
        let names = rows.flat_map(|row| spans(row.cells()[0])).filter(|name| !name.contains('/'));
        names.map(str::to_owned).collect()
    };
    let named = |rows: &mut dyn Iterator<Item = &FieldRow>| rows.map(|row| row.name.to_owned()).collect();
    let sections: [(&str, BTreeSet<String>); 2] = [
        ("by: the key of a row", named(&mut FieldRow::of_keys())),
        ("match: which packets", named(&mut FIELDS.iter())),
    ];
    for (heading, known) in sections {
        let explained = listed(heading);
        ensure!(explained == known, "{VIEWS}, {heading}: the page has {explained:?}, weir {known:?}");
    }
    Ok(())
}
