//! One source, compiled for several instruction sets. At run time the best one that the processor has is used.
//!
//! The code is written once, in plain Rust that the compiler turns into vector instructions. `dispatch!` compiles it
//! again for AVX2 and AVX-512. Every 64-bit ARM has NEON, which needs no second version. So all versions give the same
//! bits. Dispatch costs a load and a branch that is always predicted: ask for it once per batch, not once per key.
//!
//! `RUSTFLAGS='--cfg weir_simd="avx2"'` leaves AVX-512 out, to measure what a processor without it gets.

#![expect(
    unsafe_code,
    reason = "instruction sets that the compiler cannot know of, and prefetching, have no safe form"
)]

/// The instruction sets that code is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of this architecture has.
    Portable,
    /// AVX2 with BMI1, BMI2 and POPCNT (Intel Haswell, AMD Zen, and later).
    Avx2,
    /// AVX-512 F, BW, CD, DQ and VL as well (Intel Skylake-X, AMD Zen 4, and later).
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

    /// Whether this CPU has AVX-512 FP16. Asked of it once: under a hypervisor that takes microseconds.
    #[inline]
    pub fn gathers() -> bool {
        /// 0 and 1 for no and yes.
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

/// Whether this processor loads from many places faster by one instruction than by one instruction for each.
///
/// That is so for Intel's since Sapphire Rapids, the first with AVX-512 FP16. Older ones are protected from leaking
/// what they gather (Gather Data Sampling, 2023), which makes gathers slow. AMD's up to Zen 5 take more operations for
/// a gather than for single loads.
#[inline]
pub fn gathers() -> bool {
    #[cfg(target_arch = "x86_64")]
    return level() == Level::Avx512 && x86::gathers();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Prefetches the cache line in which a value begins. Never changes what a program computes.
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

/// Defines a function that is compiled for each [`Level`] and runs the best version that this CPU has.
///
/// Whatever the body calls must be `#[inline(always)]` to be compiled for that level too. In the body, `ROTATES` says
/// whether this version has an instruction that rotates each lane by a number of its own, and `MULTIPLIES` whether it
/// has one that multiplies lanes of 64 bits.
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

/// Runs code at a level that this CPU is known to have; for `dispatch!` and for tests that compare the levels.
macro_rules! at_level {
    ($level:expr, $(<$T:ident: $bound:path>)? ($($arg:ident: $type:ty),*) $(-> $ret:ty)? $body:block) => {{
        debug_assert!($level <= $crate::simd::level(), "this CPU has no {:?}", $level);
        #[inline(always)]
        fn portable $(<$T: $bound>)? ($($arg: $type),*) $(-> $ret)? {
            #[allow(dead_code, reason = "few bodies ask")]
            const ROTATES: bool = false;
            #[allow(dead_code, reason = "few bodies ask")]
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
            #[allow(dead_code, reason = "few bodies ask")]
            const ROTATES: bool = true;
            #[allow(dead_code, reason = "few bodies ask")]
            const MULTIPLIES: bool = true;
            $body
        }
        #[cfg(target_arch = "x86_64")]
        #[allow(unsafe_code, reason = "the one place where a version is chosen")]
        match $level {
            $crate::simd::Level::Portable => portable($($arg),*),
            // SAFETY: `level` gives this only if the CPU and the system have these instruction sets.
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
        assert_eq!(gathers(), gathers(), "asked for the first time and later");
    }
}
