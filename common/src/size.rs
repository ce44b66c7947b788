//! Packet-size classes: exact below [`EXACT`] bytes, within 1/64 above.
//!
//! The kernel counts packets per class, because a record keeps only a flow's sum of bytes. The scheme is that of
//! HDR histograms (Tene): linear sub-buckets inside each octave.

/// Sizes below this have a class of their own: every packet of an ordinary MTU.
pub const EXACT: u32 = 2048;
const SUB_BITS: u32 = 6;
const SUBS: u32 = 1 << SUB_BITS;
/// Octaves above [`EXACT`]: up to 2^20 bytes, which covers BIG TCP's 512 KiB.
const OCTAVES: u32 = 9;
/// How many classes there are.
pub const SIZE_CLASSES: usize = (EXACT + OCTAVES * SUBS) as usize;

/// The class of a packet of `bytes` bytes, always below [`SIZE_CLASSES`]; larger packets share the last class.
#[inline(always)]
pub const fn size_class(bytes: u32) -> usize {
    if bytes < EXACT {
        return bytes as usize;
    }
    let octave = log2(bytes) - EXACT.trailing_zeros();
    if octave >= OCTAVES {
        return SIZE_CLASSES - 1;
    }
    let sub = (bytes >> (octave + EXACT.trailing_zeros() - SUB_BITS)) & (SUBS - 1);
    (EXACT + octave * SUBS + sub) as usize
}

/// The smallest size of a class, in bytes.
pub const fn class_bytes(class: usize) -> u64 {
    if class < EXACT as usize {
        return class as u64;
    }
    let above = class as u32 - EXACT;
    let (octave, sub) = (above / SUBS, above % SUBS);
    ((SUBS + sub) as u64) << (octave + EXACT.trailing_zeros() - SUB_BITS)
}

/// The position of the highest bit set, without the count-leading-zeros instruction that eBPF lacks.
#[inline(always)]
const fn log2(mut value: u32) -> u32 {
    let mut bits = 0;
    if value >= 1 << 16 {
        value >>= 16;
        bits += 16;
    }
    if value >= 1 << 8 {
        value >>= 8;
        bits += 8;
    }
    if value >= 1 << 4 {
        value >>= 4;
        bits += 4;
    }
    if value >= 1 << 2 {
        value >>= 2;
        bits += 2;
    }
    bits + (value >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_exact_below_and_within_one_sixty_fourth_above() {
        let mut last = 0;
        for bytes in (0..5000).chain((5000..1 << 20).step_by(37)) {
            let class = size_class(bytes);
            assert!(class < SIZE_CLASSES && class >= last, "{bytes}");
            last = class;
            let floor = class_bytes(class);
            let bytes = u64::from(bytes);
            assert!(floor <= bytes && bytes - floor <= bytes / 64, "{bytes} in class from {floor}");
            assert!(bytes >= 2048 || floor == bytes);
        }
        assert_eq!(size_class(u32::MAX), SIZE_CLASSES - 1);
        assert_eq!(size_class((1 << 20) - 1), SIZE_CLASSES - 1);
    }
}
