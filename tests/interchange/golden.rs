//! The images that the unit tests read are what the package writes.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::peer;

pub fn the_package_still_writes_them() -> Result<()> {
    let golden = peer::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../common/sketch/golden"))?;
    let written = peer::written()?;
    ensure!(golden.keys().eq(written.keys()), "{:?} are not {:?}", golden.keys(), written.keys());
    for (name, image) in golden {
        ensure!(written[&name] == image, "{name} is not what the package writes");
    }
    Ok(())
}
