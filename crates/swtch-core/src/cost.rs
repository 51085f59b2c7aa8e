//! The cost of a switch: from timed blocks to a price with an interval. Pure; `swtch-bench` times the blocks.
//!
//! ```text
//! blocks (ns per operation, by round and arm) ─▶ estimate, compare ─▶ price list ─▶ bill
//! ```
//!
//! # From blocks to a claim
//!
//! ```text
//! order ─▶ blocks ─▶ drop ─▶ estimate (contrast, by trees) ─▶ verdict: do they differ?
//!                              ▲ interval, sign test, Holm       ▲ noise: A/A, regimes, steal
//! ```
//!
//! The statistics are [`crate::stats`].
//!
//! ```
//! use swtch_core::cost::{Contrast, Difference, differs};
//!
//! // Six fresh process trees of three rounds each, ns per operation; b takes 5 % longer.
//! let a: Vec<Vec<f64>> = (0..6).map(|tree| vec![1000.0 + f64::from(tree), 990.0, 1010.0]).collect();
//! let b: Vec<Vec<f64>> = a.iter().map(|tree| tree.iter().map(|ns| ns * 1.05).collect()).collect();
//! let contrast = Contrast::of_trees(&a, &b).expect("the same rounds of both, all positive");
//! assert_eq!(differs(&contrast, None), Difference::Larger);
//! assert!((contrast.ratio.point - 1.05).abs() < 1e-9);
//! ```

pub mod bill;
pub mod cliff;
pub mod drop;
pub mod estimate;
pub mod injection;
pub mod kind;
pub mod order;
pub mod price;
#[cfg(test)]
pub(crate) mod promises;
pub mod verdict;

pub use bill::{
    Account, Amount, Basis, Billing, Case, DirectCost, Displacement, Return, Successor, Tariff,
};
pub use cliff::Cliff;
pub use drop::{Block, Dropped, KeptBlocks};
pub use estimate::{CONFIDENCE, Contrast, Estimate, LEAST_TREES, Pair};
pub use kind::{Members, Place, Policy, Primitive};
pub use order::LatinSquare;
pub use price::{
    COUNT_TOLERANCE, Curve, EMPTY_PROGRAM, KernelShareRow, MissingPrice, NamedContrast, Origin,
    PRICES_VERSION, Point, Price, PriceFact, PriceList, PriceUnit, REFERENCE, Session,
};
pub use verdict::{Difference, MeasurementVerdict, Noise, Reason, differs, margin_pct};
