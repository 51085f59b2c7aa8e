//! The loops that use the CPU and nothing else, by the operation that each iteration repeats.
//!
//! Each iteration needs the result of the one before, so that N iterations take N times the latency
//! of one, whatever else the CPU could do in parallel. The loops are in assembly, in `chain_*.rs`:
//! so they are the same in a debug build, and no compiler can replace them by a formula.

use serde::{Deserialize, Serialize};

use super::{ExtendedRegisters, is_supported};

macro_rules! chain_operations {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal,)+) => {
        /// The operation of one iteration of a loop.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum ChainOperation {
            $($(#[doc = $doc])+ $name,)+
        }

        impl ChainOperation {
            /// All variants, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The word for this operation in a load file.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

chain_operations! {
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

impl ChainOperation {
    /// The operation with this word; `None` if there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.as_str() == word)
    }

    /// Returns true if this CPU and its operating system can do it.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Avx2 => is_supported(ExtendedRegisters::Avx2),
            Self::Avx512 => is_supported(ExtendedRegisters::Avx512),
            _ => true,
        }
    }

    /// Runs `iterations` iterations. The CPU must have the operation ([`Self::is_supported`]). One copy of
    /// the code is what [`crate::load::calibrate`] measures and what loads run: two copies lie differently,
    /// and one of them took twice as long.
    #[inline(never)]
    pub(crate) fn run(self, iterations: u64) {
        if iterations > 0 {
            super::chain::chain(self, iterations);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_serde() {
        for operation in ChainOperation::ALL {
            let json = serde_json::to_string(operation).unwrap();
            assert_eq!(json, format!("\"{}\"", operation.as_str()));
            assert_eq!(
                ChainOperation::from_word(operation.as_str()),
                Some(*operation)
            );
        }
    }
}
