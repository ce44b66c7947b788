//! The sizes of tests.

/// The size of a test: `full`, or `under_miri`, which interprets code a thousand times slower. The smaller size must
/// still reach the same branches. A test that needs many keys to be meaningful is not run under Miri at all.
pub const fn of<N: Copy>(full: N, under_miri: N) -> N {
    if cfg!(miri) { under_miri } else { full }
}
