//! Compiles one source for several instruction sets. At run time the best one that the processor has is used.
//!
//! The code is written once, in plain Rust that the compiler turns into vector instructions. `dispatch!` compiles it
//! again for AVX2 and AVX-512. Every 64-bit ARM has NEON, which needs no second version. So all versions give the same
//! bits. A dispatch costs a load and a branch that is always predicted correctly: use it once per batch, not once per
//! key.
//!
//! `RUSTFLAGS='--cfg weir_simd="avx2"'` excludes AVX-512, to measure the speed of a processor without it.

#![expect(unsafe_code, reason = "instruction sets that only some CPUs have, and prefetching, have no safe form")]

/// The instruction sets for which code is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The instructions that every processor of this architecture has.
    Portable,
    /// AVX2 with BMI1, BMI2 and POPCNT (Intel Haswell, AMD Zen, and later).
    Avx2,
    /// Also AVX-512 F, BW, CD, DQ and VL (Intel Skylake-X, AMD Zen 4, and later).
    Avx512,
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::sync::atomic::{AtomicU8, Ordering};

    cpufeatures::new!(avx2, "avx2", "bmi1", "bmi2", "popcnt");
    cpufeatures::new!(avx512, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl");

    #[inline(always)]
    pub fn level() -> super::Level {
        if !avx2::get() {
            super::Level::Portable
        } else if cfg!(weir_simd = "avx2") || !avx512::get() {
            super::Level::Avx2
        } else {
            super::Level::Avx512
        }
    }

    /// Returns true if this CPU has AVX-512 FP16. It is detected only once, because under a hypervisor that takes
    /// microseconds.
    #[inline]
    pub fn gathers() -> bool {
        /// 0 is no, 1 is yes, and the largest number means not detected yet.
        static KNOWN: AtomicU8 = AtomicU8::new(u8::MAX);
        match KNOWN.load(Ordering::Relaxed) {
            u8::MAX => {
                let has_fp16 = cfg!(miri) || core::arch::x86_64::__cpuid_count(7, 0).edx & 1 << 23 != 0;
                KNOWN.store(has_fp16.into(), Ordering::Relaxed);
                has_fp16
            }
            known => known == 1,
        }
    }
}

/// The best level that this processor has.
#[inline(always)]
pub fn level() -> Level {
    #[cfg(target_arch = "x86_64")]
    return x86::level();
    #[cfg(not(target_arch = "x86_64"))]
    Level::Portable
}

/// Returns true if this processor loads from many places faster with one gather instruction than with one instruction
/// for each place.
///
/// This is so for Intel's processors since Sapphire Rapids, the first with AVX-512 FP16. Older ones have a protection
/// against leaking gathered data (Gather Data Sampling, 2023), which makes gathers slow. AMD's processors up to Zen 5
/// take more operations for a gather than for single loads.
#[inline]
pub fn gathers() -> bool {
    #[cfg(target_arch = "x86_64")]
    return level() == Level::Avx512 && x86::gathers();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Prefetches the cache line in which a value begins. This never changes a result.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads no memory as far as the program can tell, and cannot fault; the address is valid anyway.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(core::ptr::from_ref(value).cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; the instruction changes no register, no flag and no memory.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) value, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = value;
}

/// Defines a function that is compiled for each [`Level`], and runs the best version that this CPU has.
///
/// Everything that the body calls must be `#[inline(always)]`, so that it is compiled for that level, too. In the body,
/// `ROTATES` tells whether this version has an instruction that rotates each lane by a different number, and
/// `MULTIPLIES` whether it has one that multiplies 64-bit lanes.
macro_rules! dispatch {
    (
        $(#[$meta:meta])* $vis:vis fn $name:ident $(<$T:ident: $bound:path>)? ($($arg:ident: $type:ty),* $(,)?)
        $(-> $ret:ty)? $body:block
    ) => {
        $(#[$meta])*
        $vis fn $name $(<$T: $bound>)? ($($arg: $type),*) $(-> $ret)? {
            $crate::simd::at_level!($crate::simd::level(), $(<$T: $bound>)? ($($arg: $type),*) $(-> $ret)? $body)
        }
    };
}

/// Runs code at a level that this CPU has, for `dispatch!` and for tests that compare the levels.
macro_rules! at_level {
    ($level:expr, $(<$T:ident: $bound:path>)? ($($arg:ident: $type:ty),*) $(-> $ret:ty)? $body:block) => {{
        debug_assert!($level <= $crate::simd::level(), "this CPU has no {:?}", $level);
        #[inline(always)]
        fn portable $(<$T: $bound>)? ($($arg: $type),*) $(-> $ret)? {
            #[allow(dead_code, reason = "few bodies use it")]
            const ROTATES: bool = false;
            #[allow(dead_code, reason = "few bodies use it")]
            const MULTIPLIES: bool = false;
            $body
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
        fn avx2 $(<$T: $bound>)? ($($arg: $type),*) $(-> $ret)? { portable($($arg),*) }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(
            enable = "avx2,bmi1,bmi2,popcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
        )]
        fn avx512 $(<$T: $bound>)? ($($arg: $type),*) $(-> $ret)? {
            #[allow(dead_code, reason = "few bodies use it")]
            const ROTATES: bool = true;
            #[allow(dead_code, reason = "few bodies use it")]
            const MULTIPLIES: bool = true;
            $body
        }
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code, reason = "the one place where a version is chosen")]
        match $level {
            $crate::simd::Level::Portable => portable($($arg),*),
            // SAFETY: `level` returns this only if the CPU and the system have these instruction sets.
            $crate::simd::Level::Avx2 => unsafe { avx2($($arg),*) },
            // SAFETY: as above.
            $crate::simd::Level::Avx512 => unsafe { avx512($($arg),*) },
        }
        #[cfg(not(target_arch = "x86_64"))]
        { let _ = $level; portable($($arg),*) }
    }};
}

pub(crate) use {at_level, dispatch};

#[cfg(test)]
mod tests {
    use super::*;

    dispatch! {
        /// A sum that the compiler can spread over lanes.
        fn sum(numbers: &[u32]) -> u32 {
            numbers.iter().fold(0, |sum, number| sum.wrapping_add(number.wrapping_mul(0x9e37_79b1) >> 3))
        }
    }

    #[test]
    fn every_version_gives_the_same() {
        let numbers: std::vec::Vec<u32> = (0..1_000).collect();
        let plain = numbers.iter().fold(0u32, |sum, n| sum.wrapping_add(n.wrapping_mul(0x9e37_79b1) >> 3));
        assert_eq!(sum(&numbers), plain);
        prefetch(&numbers[999]);
        assert!(level() >= Level::Portable);
        assert!(level() == Level::Avx512 || !gathers());
        assert_eq!(gathers(), gathers(), "the first call and a later one must agree");
    }
}
