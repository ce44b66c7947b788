//! How the allocator gives memory back.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "mallopt(3) is a function of C"))]

/// Blocks from this size on are mapped, each for itself: all sketches of some size are. Smaller ones are few.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 64 << 10;

/// From now on what is freed goes back to the system, so that the resident memory follows the plan when a reload
/// replaces the sketches.
///
/// Left to itself, glibc takes what was freed for a sign of what comes: it keeps blocks of up to 32 MiB in the heaps of
/// the threads, in pieces that fit no sketch of another size. With a threshold that is set it does not. The price is a
/// system call for each large block, a few in each window. Other allocators have their own ways.
pub fn give_back_what_is_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call changes a number within the allocator, which has a lock for that. A value that it does not
    // accept changes nothing, and is told by a result that nobody needs.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}
