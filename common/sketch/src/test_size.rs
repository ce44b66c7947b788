//! How much work a test does.

/// The size at which a test runs, or the one at which it ends under Miri, which interprets some thousand times slower.
/// The smaller one must take the same ways through the code; a test that says something only of many keys is left out
/// there instead.
pub const fn of<N: Copy>(full: N, under_miri: N) -> N {
    if cfg!(miri) { under_miri } else { full }
}
