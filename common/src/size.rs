//! Packet size classes: fine ones for all interfaces together, and coarse ones for each interface.
//!
//! Fine classes are exact up to an ordinary MTU, within 1/64 for jumbo frames, and within 1/16 for packets that
//! offloads merged. Coarse classes are those of switch counters (RFC 2819).
//!
//! The kernel counts packets per class, because a record has only the sum of a flow's bytes. There are three linear
//! ranges, rather than the octaves of an HDR histogram, because the verifier follows two comparisons more easily than a
//! logarithm.

/// Sizes below this have one class each. Classes from this number on cover several sizes.
pub const EXACT: u64 = 2048;
/// Sizes below this share a class of [`JUMBO_STEP`] bytes.
const JUMBO: u64 = 16 << 10;
const JUMBO_STEP: u64 = 32;
/// Sizes below this share a class of [`MERGED_STEP`] bytes; larger ones share the last class.
const MERGED: u64 = 256 << 10;
const MERGED_STEP: u64 = 1024;

const JUMBO_FIRST: u64 = EXACT;
const MERGED_FIRST: u64 = JUMBO_FIRST + (JUMBO - EXACT) / JUMBO_STEP;
/// The number of classes.
pub const SIZE_CLASSES: usize = (MERGED_FIRST + (MERGED - JUMBO) / MERGED_STEP) as usize;

/// The class of a packet of `bytes` bytes, always below [`SIZE_CLASSES`].
#[inline(always)]
pub const fn size_class(bytes: u64) -> usize {
    (if bytes < EXACT {
        bytes
    } else if bytes < JUMBO {
        JUMBO_FIRST + (bytes - EXACT) / JUMBO_STEP
    } else if bytes < MERGED {
        MERGED_FIRST + (bytes - JUMBO) / MERGED_STEP
    } else {
        SIZE_CLASSES as u64 - 1
    }) as usize
}

/// The smallest size of a class, in bytes.
pub const fn class_bytes(class: usize) -> u64 {
    let class = class as u64;
    if class < JUMBO_FIRST {
        class
    } else if class < MERGED_FIRST {
        EXACT + (class - JUMBO_FIRST) * JUMBO_STEP
    } else {
        JUMBO + (class - MERGED_FIRST) * MERGED_STEP
    }
}

/// The largest size of a class, in bytes; the last class has no upper limit.
pub const fn class_end(class: usize) -> u64 {
    if class + 1 < SIZE_CLASSES { class_bytes(class + 1) - 1 } else { u64::MAX }
}

/// The number of coarse classes.
pub const COARSE_CLASSES: usize = 8;
/// The largest size of each coarse class, in bytes; the last class has no upper limit. They are those of RFC 2819 and
/// one more: 1,518 bytes is the longest ordinary packet with one VLAN tag, and packets up to 2,047 have more tags or
/// labels.
pub const COARSE_EDGES: [u64; COARSE_CLASSES - 1] = [64, 127, 255, 511, 1023, 1518, 2047];

/// The coarse class of the packets of a fine class ([`size_class`]), always below [`COARSE_CLASSES`].
///
/// In real traffic, sizes alternate between all classes, so the processor would mispredict a chain of comparisons; this
/// is a table lookup. Most traffic uses only a few cache lines of the table. The index is the class, not the size,
/// because the size would need another comparison like that of the fine class. The verifiers of Linux 6.1 and earlier
/// follow the second comparison both ways, and refuse what they find there.
#[inline(always)]
pub const fn coarse_class(class: usize) -> usize {
    COARSE_TABLE[class] as usize % COARSE_CLASSES
}

/// The coarse class of each fine class. No edge is inside a fine class.
static COARSE_TABLE: [u8; SIZE_CLASSES] = {
    let mut table = [0; SIZE_CLASSES];
    let (mut fine, mut coarse) = (0, 0);
    while fine < SIZE_CLASSES {
        coarse += (coarse < COARSE_EDGES.len() && class_bytes(fine) > COARSE_EDGES[coarse]) as usize;
        table[fine] = coarse as u8;
        fine += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_as_exact_as_they_say() {
        let mut last = 0;
        for bytes in (0..20_000).chain((20_000..MERGED).step_by(37)) {
            let class = size_class(bytes);
            assert!(class < SIZE_CLASSES && (class == last || class == last + 1), "{bytes}");
            last = class;
            let below = bytes - class_bytes(class);
            let allowed = match bytes {
                0..EXACT => 0,
                EXACT..JUMBO => bytes / 64,
                _ => bytes / 16,
            };
            assert!(below <= allowed, "{bytes}: {below} above its class");
        }
        assert_eq!(last, SIZE_CLASSES - 1);
        assert_eq!(size_class(u64::MAX), SIZE_CLASSES - 1);
        for class in 0..SIZE_CLASSES {
            assert_eq!([class_bytes(class), class_end(class)].map(size_class), [class; 2]);
        }
    }

    #[test]
    fn coarse_classes_end_at_their_edges() {
        let plain = |bytes: u64| COARSE_EDGES.iter().filter(|edge| bytes > **edge).count();
        let large = (0..64).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]);
        for bytes in (0..MERGED).chain(large).chain([u64::MAX]) {
            assert_eq!(coarse_class(size_class(bytes)), plain(bytes), "{bytes}");
        }
        assert_eq!(coarse_class(size_class(u64::MAX)), COARSE_CLASSES - 1);
    }
}
