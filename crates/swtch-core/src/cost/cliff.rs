//! The step in the cost of a ring of processes where the kernel runs out of address-space
//! identifiers. It keeps a few per CPU (`TLB_NR_DYN_ASIDS`, `arch/x86/mm/tlb.c`, v6.18: six) and
//! gives them out in turn. In a ring with one member more than identifiers, every switch finds the
//! member's identifier reused, and its TLB entries are gone.
//!
//! ```text
//! processes less threads
//!   │            ┌────────   what a lost identifier costs
//!   │   ─────────┘
//!   └────────────┬────────▶ members
//!           last that fits
//! ```
//!
//! The step is measured: on other machines it lies at another size, or there is none.

use serde::{Deserialize, Serialize};

use super::price::{Curve, Point};

/// The least factor by which the difference between processes and threads must grow in one step.
const LEAST_RISE: f64 = 1.3;

/// A step between two sizes of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cliff {
    /// The largest ring before the step, in members.
    pub last_before: f64,
    /// The smallest ring behind the step, in members.
    pub first_behind: f64,
    /// The rise of the cost of a hop behind the step, in ns.
    pub rise_ns: f64,
}

impl Cliff {
    /// The largest step of `processes` less `threads`, if there is one: the intervals of the two
    /// sizes must not overlap, and the difference must grow by more than 30 %.
    ///
    /// `None` without a step, or if the curves have fewer than two sizes in common.
    pub fn of(processes: &Curve, threads: &Curve) -> Option<Self> {
        let more = more(processes, threads);
        let step = |pair: &[ExtraCost]| {
            let [before, behind] = pair else { return None };
            let is_step = behind.low > before.high && behind.point > before.point * LEAST_RISE;
            is_step.then_some(Self {
                last_before: before.size,
                first_behind: behind.size,
                rise_ns: behind.point - before.point,
            })
        };
        let steps = more.windows(2).filter_map(step);
        steps.max_by(|one, other| one.rise_ns.total_cmp(&other.rise_ns))
    }
}

/// The extra cost of processes over threads in a ring of one size.
struct ExtraCost {
    size: f64,
    low: f64,
    point: f64,
    high: f64,
}

fn more(processes: &Curve, threads: &Curve) -> Vec<ExtraCost> {
    let same = |size: f64| {
        let is_same = move |point: &&Point| point.size.total_cmp(&size).is_eq();
        threads.points.iter().find(is_same)
    };
    let points = processes.points.iter();
    let mut more: Vec<ExtraCost> = points
        .filter_map(|of_processes| {
            let (process, thread) = (of_processes.net_ns, same(of_processes.size)?.net_ns);
            Some(ExtraCost {
                size: of_processes.size,
                low: process.low - thread.high,
                point: process.point - thread.point,
                high: process.high - thread.low,
            })
        })
        .collect();
    more.sort_by(|one, other| one.size.total_cmp(&other.size));
    more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Estimate;

    fn curve(points: &[(f64, f64)], half_width: f64) -> Curve {
        let point = |(size, ns): &(f64, f64)| Point {
            size: *size,
            net_ns: Estimate {
                point: *ns,
                low: ns - half_width,
                high: ns + half_width,
                confidence: 0.95,
                trees: 6,
                rounds: 30,
            },
            hot_ns: None,
        };
        Curve {
            name: String::new(),
            label: String::new(),
            figure: String::new(),
            size_is: String::new(),
            points: points.iter().map(point).collect(),
        }
    }

    const SIZES: [f64; 4] = [5.0, 6.0, 7.0, 8.0];

    fn processes(ns: [f64; 4], half_width: f64) -> Option<Cliff> {
        let points: Vec<_> = SIZES.into_iter().zip(ns).collect();
        let threads: Vec<_> = SIZES.into_iter().zip([600.0; 4]).collect();
        Cliff::of(&curve(&points, half_width), &curve(&threads, half_width))
    }

    /// Values of a machine with six identifiers.
    #[test]
    fn the_step_lies_where_the_identifiers_run_out() {
        let cliff = processes([858.0, 909.0, 1241.0, 1239.0], 30.0).unwrap();
        assert_eq!((cliff.last_before, cliff.first_behind), (6.0, 7.0));
        assert_eq!(cliff.rise_ns, 332.0);
    }

    #[test]
    fn a_slow_rise_is_no_cliff() {
        assert_eq!(processes([800.0, 850.0, 900.0, 950.0], 5.0), None);
    }

    #[test]
    fn what_the_intervals_allow_to_be_noise_is_no_cliff() {
        assert_eq!(processes([858.0, 909.0, 1241.0, 1239.0], 200.0), None);
    }

    #[test]
    fn curves_without_a_common_size_have_none() {
        let one = curve(&[(2.0, 1.0)], 0.0);
        assert_eq!(Cliff::of(&one, &curve(&[(3.0, 1.0)], 0.0)), None);
    }
}
