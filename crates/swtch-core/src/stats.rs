//! Statistics: the one room where an interval, a p value or a median is made, for prices, for comparisons of
//! traces, and for the experiments of the lab.
//!
//! ```text
//! values, one a tree or a round    interval (median), sign_test      no distribution is assumed
//! values, one a run                student (Welch's t)               logarithms are nearly normal
//! counts of events                 counts (Wilson, Woolf, Poisson)
//! many claims at once              holm: one error rate for all of them
//! values that depend on another    autocorrelation: how many independent ones they are worth
//! a machine of two speeds          regimes
//! ```
//!
//! Pure: numbers in, numbers out. Each file names its source.

pub mod autocorrelation;
pub mod counts;
pub mod holm;
pub mod interval;
pub mod regimes;
pub mod sign_test;
pub mod student;

pub use autocorrelation::{effective_n, integrated_time, lag1};
pub(crate) use counts::wilson;
pub use counts::{EventRate, MeasuredCount, dispersion, events_per, share};
pub use interval::{ConfidenceInterval, SignInterval, iqr_pct, median, quantile, sign_interval};
pub use regimes::Regimes;
pub use sign_test::sign_test;
