//! The statistics of the benchmark (`benches/switches/`), which has no test harness of its own.

#[path = "../benches/switches/statistics.rs"]
mod statistics;

use statistics::{interval, median, quantile};

fn one_to(last: u32) -> Vec<f64> {
    (1..=last).rev().map(f64::from).collect()
}

/// The quantiles are of type 7 of Hyndman and Fan.
#[test]
fn quantiles_are_linear_between_neighbours() {
    assert_eq!(median(&one_to(5)), Some(3.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(quantile(&one_to(5), 0.125), Some(1.5));
    assert_eq!(quantile(&one_to(5), 1.0), Some(5.0));
    assert_eq!(median(&[]), None);
}

/// Ranks as printed in tables (Hahn and Meeker, "Statistical Intervals", table A.15).
#[test]
fn ranks_are_those_of_the_tables() {
    assert_eq!(interval(&one_to(6)), Some((1.0, 6.0)));
    assert_eq!(interval(&one_to(9)), Some((2.0, 8.0)));
    assert_eq!(interval(&one_to(12)), Some((3.0, 10.0)));
    assert_eq!(interval(&one_to(20)), Some((6.0, 15.0)));
}

/// Five values contain the median with only 93.8 %, so there is no interval.
#[test]
fn too_few_values_have_no_interval() {
    assert_eq!(interval(&one_to(5)), None);
    assert_eq!(interval(&[]), None);
}
