//! `ARCHITECTURE.md` names every file that has unsafe code, except for the kernel programs.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::{
    comments::visit,
    page::{Page, spans},
    root,
};

#[test]
fn the_page_names_every_file_with_unsafe_code() -> Result<()> {
    let page = Page::read("ARCHITECTURE.md")?;
    let (_, list) = page.text.split_once("## Unsafe code").context("no section of unsafe code")?;
    let items = list.lines().filter(|line| line.starts_with("- "));
    let named: BTreeSet<_> = items.flat_map(spans).filter(|span| span.ends_with(".rs")).map(str::to_owned).collect();
    let mut found = BTreeSet::new();
    for folder in ["common", "daemon"] {
        visit(&root().join(folder), &mut |path, text| {
            let allows = text.lines().any(|line| line.starts_with("#![") && line.contains("expect(unsafe_code"));
            let name = path.strip_prefix(root()).unwrap_or(path);
            found.extend(allows.then(|| name.display().to_string()));
        })?;
    }
    ensure!(named == found, "the page names {named:#?}\nbut these have unsafe code: {found:#?}");
    Ok(())
}
