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
            let name = path.strip_prefix(root()).unwrap_or(path);
            found.extend(allows_unsafe_code(text).then(|| name.display().to_string()));
        })?;
    }
    ensure!(named == found, "the page names {named:#?}\nbut these have unsafe code: {found:#?}");
    Ok(())
}

#[test]
fn each_form_that_allows_unsafe_code_is_found() {
    for text in [
        "#![expect(unsafe_code, reason = \"it is needed\")]",
        "#![allow(unsafe_code)]",
        "#![warn(unsafe_code)]",
        "#![allow(dead_code, unsafe_code)]",
        "#![expect(\n    dead_code,\n    unsafe_code,\n    reason = \"(two)\"\n)]",
        "#![cfg_attr(target_env = \"gnu\", expect(unsafe_code, reason = \"a function of C\"))]",
        "mod a {\n    #[allow(unsafe_code, reason = \"one place\")]\n    fn f() {}\n}",
        "#[cfg_attr(test, allow(unsafe_code))]",
        "macro_rules! m { () => { #[expect(unsafe_code)] fn f() {} } }",
    ] {
        assert!(allows_unsafe_code(text), "{text}");
    }
    for text in [
        "#![forbid(unsafe_code)]",
        "#![deny(unsafe_code, missing_docs)]",
        "// It had #![allow(unsafe_code)] once.",
        "/// No `#[expect(unsafe_code)]` is needed.",
        "#![allow(dead_code)]\n#![forbid(unsafe_code)]",
        "#[expect(unsafe_op_in_unsafe_fn)]",
        "#[allow(dead_code, reason = \"unsafe_code is forbidden\")]",
    ] {
        assert!(!allows_unsafe_code(text), "{text}");
    }
}

/// Returns true if an attribute of the file, or of something in it, allows unsafe code.
fn allows_unsafe_code(text: &str) -> bool {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    // Between the quotes of a string nothing is an attribute.
    let code: String = code.join("\n").split('"').step_by(2).collect();
    ["allow(", "expect(", "warn("].into_iter().any(|level| {
        code.match_indices(level).any(|(at, _)| {
            let lints = code[at + level.len()..].split(')').next().unwrap_or_default();
            lints.split(',').any(|lint| lint.trim() == "unsafe_code")
        })
    })
}
