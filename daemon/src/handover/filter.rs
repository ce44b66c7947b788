//! Hands the filter of seen flows over to the next weir, so that known flows do not count as new after a restart.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::fd::OwnedFd,
};

use rustix::fs::{MemfdFlags, memfd_create};
use weir_sketch::{Image as _, Seen, SharedBloom};

/// Writes both generations to a memory file that outlives this process.
///
/// # Errors
///
/// Out of memory.
pub fn write(seen: &Seen) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("weir-seen", MemfdFlags::CLOEXEC)?);
    for generation in seen.generations() {
        let image = generation.to_image();
        file.write_all(&(image.len() as u64).to_ne_bytes())?;
        file.write_all(&image)?;
    }
    Ok(file.into())
}

/// Reads both generations, if they have the size and the key of the filter `planned`. A generation with the previous
/// day's key is not read, because it would need that key, too. So a restart shortly after midnight begins with an empty
/// filter.
pub fn read(descriptor: OwnedFd, planned: &Seen) -> Option<Seen> {
    let mut file = File::from(descriptor);
    file.rewind().ok()?;
    let most = planned.memory_bytes();
    let is_planned = |filter: &SharedBloom| {
        filter.key_id() == planned.key_id() && filter.geometry() == planned.generations()[0].geometry()
    };
    let mut one = || {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes).ok()?;
        let bytes = usize::try_from(u64::from_ne_bytes(bytes)).ok().filter(|bytes| *bytes <= 2 * most)?;
        let mut image = vec![0; bytes];
        file.read_exact(&mut image).ok()?;
        SharedBloom::from_image(&image, most).ok().filter(is_planned)
    };
    Seen::from_generations([one()?, one()?]).ok()
}

#[cfg(test)]
mod tests {
    use weir_sketch::hash::mix;

    use super::*;

    #[test]
    fn seen_flows_stay_known_and_another_filter_is_refused() {
        let seen = Seen::with_capacity(10_000, 0.001, 7).unwrap();
        for flow in 0..3_000 {
            assert!(seen.insert(mix(flow)));
        }
        seen.rotate();
        for flow in 3_000..6_000 {
            assert!(seen.insert(mix(flow)));
        }
        let kept = || write(&seen).unwrap();
        let after = read(kept(), &Seen::with_capacity(10_000, 0.001, 7).unwrap()).unwrap();
        assert!((0..6_000).all(|flow| after.contains(mix(flow))));
        assert!(after.insert(mix(9_000)), "it is new");
        // Rotation drops the older generation.
        after.rotate();
        assert!((3_000..6_000).all(|flow| after.contains(mix(flow))));
        assert!((0..3_000).filter(|flow| after.contains(mix(*flow))).count() < 30);
        for other in [Seen::with_capacity(10_000, 0.001, 8).unwrap(), Seen::with_capacity(90_000, 0.001, 7).unwrap()] {
            assert!(read(kept(), &other).is_none());
        }
        let torn = File::from(kept());
        torn.set_len(1_000).unwrap();
        assert!(read(torn.into(), &seen).is_none());
    }
}
