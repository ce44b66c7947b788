//! The limits that docs/SIZING.md names are those of the code and of the unit.

use std::fs;

use anyhow::{Context, Result, ensure};
use weir_common::control::CPUS_MAX;
use weir_config::limits::{INTERFACES_MAX, TAPS_MAX, TOP};
use weir_system::numbers::grouped;

use crate::{page::Page, root};

#[test]
fn the_page_names_the_limits_of_the_code() -> Result<()> {
    let page = Page::read("docs/SIZING.md")?;
    let (_, limits) = page.text.split_once("## Limits").context("no section of limits")?;
    let limits = limits.split_whitespace().collect::<Vec<_>>().join(" ");
    let unit = fs::read_to_string(root().join("config/weir.service"))?;
    let of_unit = |name: &str| -> Result<u64> {
        let value = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        Ok(value.with_context(|| format!("the unit has no {name}"))?.parse()?)
    };
    for said in [
        format!("{INTERFACES_MAX} entries of interfaces"),
        format!("{TAPS_MAX} packet sockets"),
        format!("{} entries per list", TOP.end()),
        format!("{} CPUs", grouped(CPUS_MAX.into())),
        format!("The unit allows {} (`LimitNOFILE=`)", grouped(of_unit("LimitNOFILE")?)),
        format!("systemd keep {} (`FileDescriptorStoreMax=`)", grouped(of_unit("FileDescriptorStoreMax")?)),
    ] {
        ensure!(limits.contains(&said), "the page does not say {said:?}: {limits}");
    }
    Ok(())
}
