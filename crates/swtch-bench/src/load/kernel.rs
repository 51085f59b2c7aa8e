//! Loops that use the CPU and nothing else, and how long they take.
//!
//! Each iteration needs the result of the one before, so that N iterations take N times the latency
//! of one, whatever else the CPU could do in parallel. The loops are in assembly: so they are the
//! same in a debug build, and no compiler can replace them by a formula.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::arch::{self, ExtendedRegisters};
use crate::clock;

macro_rules! kernels {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal,)+) => {
        /// The operation of one iteration.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Kernel {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Kernel {
            /// All variants, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The word for this kernel in a load file.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

kernels! {
    /// One integer addition that waits for the one before.
    Add = "add",
    /// One integer multiplication that waits for the one before.
    Multiply = "multiply",
    /// One integer division that waits for the one before.
    Divide = "divide",
    /// One addition of doubles that waits for the one before.
    FloatAdd = "float-add",
    /// One multiplication of doubles that waits for the one before.
    FloatMultiply = "float-multiply",
    /// One branch that no predictor can learn, on a number that waits for the one before.
    Branches = "branches",
    /// One addition of vectors of 256 bits, which leaves their registers in use (x86-64 with AVX2).
    Avx2 = "avx2",
    /// One addition of vectors of 512 bits, which leaves their registers in use (x86-64 with
    /// AVX-512).
    Avx512 = "avx512",
}

impl Kernel {
    /// The kernel with this word; `None` if there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.as_str() == word)
    }

    /// Whether this CPU and its operating system can run it.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Avx2 => arch::is_supported(ExtendedRegisters::Avx2),
            Self::Avx512 => arch::is_supported(ExtendedRegisters::Avx512),
            _ => true,
        }
    }

    /// Runs `iterations` iterations. The CPU must be able to ([`Self::is_supported`]).
    pub(super) fn run(self, iterations: u64) {
        if iterations > 0 {
            arch::chain(self, iterations);
        }
    }
}

/// Long enough that reading the clock does not count, short enough that most blocks see no
/// interrupt.
const BLOCK: Duration = Duration::from_micros(400);

/// Number of blocks, of which the quickest counts: every disturbance makes a block longer.
const BLOCKS: u32 = 25;

/// Time of one iteration alone on an idle CPU, in ns of CPU time, from the quickest of several
/// short blocks. This CPU must be able to run the kernel.
pub fn calibrate(kernel: Kernel) -> f64 {
    let iterations = iterations_of_a_block(kernel);
    let quickest = (0..BLOCKS).fold(Duration::MAX, |best, _| best.min(block(kernel, iterations)));
    #[expect(
        clippy::cast_precision_loss,
        reason = "a block has less than 2⁵³ iterations"
    )]
    let per_iteration = quickest.as_nanos() as f64 / iterations as f64;
    per_iteration
}

fn iterations_of_a_block(kernel: Kernel) -> u64 {
    let mut iterations = 1000;
    while block(kernel, iterations) < BLOCK {
        iterations *= 2;
    }
    iterations
}

fn block(kernel: Kernel, iterations: u64) -> Duration {
    let before = clock::cpu_time();
    kernel.run(iterations);
    clock::cpu_time() - before
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if iterations were left out or overlapped: a multiplication takes three times an
    /// addition on every CPU since 2008, and no dependent operation takes less than a third of a
    /// ns.
    #[test]
    fn iterations_wait_for_each_other() {
        let [add, multiply, divide] =
            [Kernel::Add, Kernel::Multiply, Kernel::Divide].map(calibrate);
        assert!(add > 0.1 && add < 5.0, "{add}");
        assert!(multiply > 1.5 * add, "{multiply} {add}");
        assert!(divide > multiply, "{divide} {multiply}");
    }

    #[test]
    fn twice_as_many_iterations_take_twice_as_long() {
        for kernel in Kernel::ALL.iter().copied().filter(|one| one.is_supported()) {
            let iterations = iterations_of_a_block(kernel);
            // Alternating, and for longer if others disturb: the least times approach the true
            // ones.
            let (mut once, mut twice) = (Duration::MAX, Duration::MAX);
            let mut ratio = 0.0;
            for round in 1..=600 {
                once = once.min(block(kernel, iterations));
                twice = twice.min(block(kernel, 2 * iterations));
                ratio = twice.as_secs_f64() / once.as_secs_f64();
                if round >= 40 && (1.7..2.3).contains(&ratio) {
                    break;
                }
            }
            assert!((1.7..2.3).contains(&ratio), "{kernel:?}: {ratio}");
        }
    }

    #[test]
    fn words_are_those_of_serde() {
        for kernel in Kernel::ALL {
            let json = serde_json::to_string(kernel).unwrap();
            assert_eq!(json, format!("\"{}\"", kernel.as_str()));
            assert_eq!(Kernel::from_word(kernel.as_str()), Some(*kernel));
        }
    }
}
