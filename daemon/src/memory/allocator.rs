//! Makes the allocator return memory to the system.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "mallopt(3) is a function of C"))]

/// Blocks of this size or more get their own mapping. All large sketches are above it, and smaller blocks are few.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 64 << 10;

/// Makes freed memory go back to the system, so that resident memory follows the plan when a reload replaces the
/// sketches.
///
/// By default, glibc raises its threshold when large blocks are freed: it keeps blocks of up to 32 MiB in the threads'
/// heaps, in pieces that fit no sketch of another size. A fixed threshold prevents that. The price is a system call for
/// each large block, a few per window. Other allocators have their own policies.
pub fn give_back_what_is_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call changes a number within the allocator, under the allocator's lock. An invalid value changes
    // nothing and is only reported by the result, which is not needed.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}

/// Gives memory back that is free now, also in small blocks: after work that needed many of them and will not come
/// again.
pub fn give_back_now() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call returns free pages to the system, under the allocator's locks. Nobody uses free memory.
    unsafe {
        libc::malloc_trim(0);
    }
}
