//! Loops compiled for several instruction sets, chosen at run time: AVX-512, AVX2, or the target's baseline.
//!
//! The loops are plain Rust, which the compiler vectorizes for each set. Rust never fuses a multiplication with an
//! addition and never reorders floating-point sums, so all sets give the same bits; `execute/levels.rs` tests this.

use std::sync::LazyLock;

/// An instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx512(pulp::x86::V4),
    #[cfg(target_arch = "x86_64")]
    Avx2(pulp::x86::V3),
    Portable,
}

static BEST: LazyLock<Level> = LazyLock::new(|| *Level::all().first().unwrap_or(&Level::Portable));

impl Level {
    /// The instruction sets of this machine, widest first.
    pub(crate) fn all() -> Vec<Self> {
        let mut levels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(pulp::x86::V4::try_new().map(Self::Avx512));
            levels.extend(pulp::x86::V3::try_new().map(Self::Avx2));
        }
        levels.push(Self::Portable);
        levels
    }

    /// The instruction set in use: the widest.
    #[cfg(not(test))]
    pub(crate) fn current() -> Self {
        *BEST
    }

    /// The instruction set in use: the one that the test chose for its thread, or the widest.
    #[cfg(test)]
    pub(crate) fn current() -> Self {
        testing::CHOSEN.get().unwrap_or(*BEST)
    }
}

/// Whether the set in use has fused multiply-add; without it, `mul_add` is a library call.
pub(crate) fn has_fused_multiply_add() -> bool {
    !matches!(Level::current(), Level::Portable)
}

/// Runs a loop with the instruction set in use. The loop must own its data: the compiler would assume that a borrowed
/// number changes with each write. Functions that the loop calls must be `#[inline(always)]`, or they are compiled for
/// the baseline.
#[inline(always)]
pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
    match Level::current() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(simd) => simd.vectorize(Call(work)),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(simd) => simd.vectorize(Call(work)),
        Level::Portable => work(),
    }
}

/// Prefetches the cache lines of `bytes` bytes. Nothing is read, so the memory need not exist.
#[inline(always)]
pub(crate) fn prefetch<T>(start: *const T, bytes: usize) {
    /// The size of a cache line.
    const LINE_BYTES: usize = 64;
    /// Into the L2 cache: L1 holds the current tiles.
    #[cfg(target_arch = "x86_64")]
    const HINT: i32 = std::arch::x86_64::_MM_HINT_T1;
    for line in (0..bytes).step_by(LINE_BYTES) {
        let place = start.cast::<i8>().wrapping_add(line);
        match Level::current() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(simd) => simd.sse._mm_prefetch::<HINT>(place),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(simd) => simd.sse._mm_prefetch::<HINT>(place),
            Level::Portable => _ = place,
        }
    }
}

/// A loop in the form that pulp accepts.
#[cfg(target_arch = "x86_64")]
pub(super) struct Call<F>(pub(super) F);

#[cfg(target_arch = "x86_64")]
impl<R, F: FnOnce() -> R> pulp::NullaryFnOnce for Call<F> {
    type Output = R;

    #[inline(always)]
    fn call(self) -> R {
        (self.0)()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::cell::Cell;

    use super::Level;

    thread_local! {
        pub(super) static CHOSEN: Cell<Option<Level>> = const { Cell::new(None) };
    }

    /// Runs `work` once with each instruction set of this machine.
    pub(crate) fn under_each_level<R>(mut work: impl FnMut() -> R) -> Vec<(Level, R)> {
        let results = Level::all().into_iter().map(|level| {
            CHOSEN.set(Some(level));
            (level, work())
        });
        let results = results.collect();
        CHOSEN.set(None);
        results
    }
}
