//! Several threads, each with its part of a step, and the widest registers that a processor has.
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

/// Does `work` on each share: the last one here, the others on threads of their own. One share takes no thread and allocates
/// nothing.
pub(super) fn each<S: Send>(mut shares: impl ExactSizeIterator<Item = S>, work: impl Fn(S) + Sync) {
    let others = shares.len().saturating_sub(1);
    if others == 0 {
        return shares.for_each(work);
    }
    thread::scope(|scope| {
        let work = &work;
        for share in shares.by_ref().take(others) {
            scope.spawn(move || work(share));
        }
        shares.for_each(work);
    });
}

/// Arithmetic that is compiled for each instruction set.
pub(super) trait Arithmetic {
    /// Does it. This and all that it calls has to be `inline(always)`: what is called as a function of its own has the
    /// registers of the oldest processor.
    fn compute(self);
}

struct Dispatched<A>(A);

impl<A: Arithmetic> pulp::WithSimd for Dispatched<A> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        self.0.compute();
    }
}

/// Instruction sets that rounds can be computed with, besides the widest one that the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Isa {
    /// What every processor of this kind has.
    Baseline,
    /// AVX2, where the processor has it.
    Avx2,
    /// All that the processor has.
    Widest,
}

static MOST: AtomicU8 = AtomicU8::new(Isa::Widest as u8);

/// Lets this process use no more than that, to compare instruction sets: results are the same with each, to the last bit.
pub fn limit_isa(most: Isa) {
    MOST.store(most as u8, Ordering::Relaxed);
}

/// Returns what is used: the widest that this processor has, if nothing else was asked for.
pub(super) fn arch() -> pulp::Arch {
    let most = MOST.load(Ordering::Relaxed);
    if most == Isa::Baseline as u8 {
        return pulp::Arch::Scalar;
    }
    match pulp::Arch::new() {
        #[cfg(target_arch = "x86_64")]
        pulp::Arch::V4(wider) if most == Isa::Avx2 as u8 => pulp::Arch::V3(*wider),
        widest => widest,
    }
}

/// Computes with the widest registers that may be used.
pub(super) fn widest(arithmetic: impl Arithmetic) {
    arch().dispatch(Dispatched(arithmetic));
}

/// Takes the first `count` elements of what is left, or all if there are fewer.
pub(super) fn take<'a, T>(rest: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    rest.split_off_mut(..count.min(rest.len())).unwrap_or_default()
}

/// Returns a range, counted from `first`.
pub(super) fn from(first: usize, range: Range<usize>) -> Range<usize> {
    range.start - first..range.end - first
}
