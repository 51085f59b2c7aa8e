//! Holm's step-down: one error rate for many contrasts at once.
//!
//! Of twenty contrasts at 95 % one is wrong on average. Holm's step-down tests the lowest p at
//! alpha divided by the number of contrasts, the next one at alpha divided by one less, and so on:
//! the probability of a single wrong claim among all stays below alpha, however the contrasts
//! depend on one another, and with no less power than Bonferroni's division for each.
//!
//! Source: S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal
//! of Statistics 6 (1979). The intervals at Holm's levels: each excludes its null value just when
//! the step-down rejects it, as long as those before it were rejected.

/// The adjusted p values, in the order given; never above 1. A contrast may be claimed at alpha
/// when its adjusted p is at most alpha.
pub fn adjusted(p: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![1.0; p.len()];
    let mut highest: f64 = 0.0;
    for (step, index) in by_p(p).into_iter().enumerate() {
        highest = highest.max(p[index] * (p.len() - step) as f64).min(1.0);
        adjusted[index] = highest;
    }
    adjusted
}

/// The confidence (0 to 1) at which to draw the interval of each contrast, in the order given: the
/// k-th lowest p of m (k from 0) gets 1 - alpha / (m - k).
pub fn confidence_levels(p: &[f64], alpha: f64) -> Vec<f64> {
    let mut levels = vec![1.0 - alpha; p.len()];
    for (step, index) in by_p(p).into_iter().enumerate() {
        levels[index] = 1.0 - alpha / (p.len() - step) as f64;
    }
    levels
}

/// The fewest trees with which `contrasts` can be significant together at `alpha`, if every tree
/// agrees: 6 for one contrast at 5 %, 10 for twenty.
pub fn least_trees(contrasts: usize, alpha: f64) -> u32 {
    let level = alpha / contrasts.max(1) as f64;
    (1..64)
        .find(|trees: &u32| 2.0 * 0.5_f64.powf(f64::from(*trees)) <= level)
        .unwrap_or(64)
}

/// The indices in order of rising p; equal ones in the order given.
fn by_p(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: &[f64], right: &[f64]) {
        assert_eq!(left.len(), right.len());
        for (left, right) in left.iter().zip(right) {
            assert!((left - right).abs() < 1e-12, "{left} is not {right}");
        }
    }

    /// As R's `p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")`.
    #[test]
    fn adjusted_values_are_those_of_the_reference() {
        close(
            &adjusted(&[0.01, 0.04, 0.03, 0.005]),
            &[0.03, 0.06, 0.06, 0.02],
        );
        close(&adjusted(&[0.6, 0.7]), &[1.0, 1.0]);
        close(&adjusted(&[]), &[]);
    }

    #[test]
    fn the_lowest_p_bears_the_whole_burden() {
        close(
            &confidence_levels(&[0.2, 0.001, 0.01], 0.06),
            &[0.94, 0.98, 0.97],
        );
    }

    #[test]
    fn more_contrasts_need_more_trees() {
        assert_eq!(least_trees(1, 0.05), 6);
        assert_eq!(least_trees(20, 0.05), 10);
        assert_eq!(least_trees(0, 0.05), 6);
    }

    /// All hypotheses true: in at most 5 % of families one is rejected (40 000 families of ten).
    #[test]
    fn a_family_of_chances_is_seldom_claimed() {
        let mut rng = fastrand::Rng::with_seed(3);
        let claimed = (0..40_000)
            .filter(|_| {
                let p: Vec<f64> = (0..10).map(|_| rng.f64()).collect();
                adjusted(&p).iter().any(|p| *p <= 0.05)
            })
            .count();
        assert!(
            (1780..=2090).contains(&claimed),
            "{claimed}, 1957 ± 43 expected"
        );
    }
}
