//! Promises of the comparison, held against numbers that are drawn with a fixed seed.

use fastrand::Rng;

use super::*;

fn noise(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}

fn side(runs: &[f64]) -> SideValues {
    SideValues {
        runs: runs.to_vec(),
        within: None,
    }
}

fn figure(a: &[f64], b: &[f64]) -> FigureValues {
    FigureValues {
        a: side(a),
        b: side(b),
        ..FigureValues::default()
    }
}

fn alone(figure: FigureValues) -> FigureChange {
    compare(&[figure])[0].unwrap()
}

fn close(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-5, "{left} is not {right}");
}

/// Computed with another program by the formulas of Welch and Satterthwaite, the tail by numerical
/// integration of the density: t = 3.4759 with 4.1864 degrees of freedom.
#[test]
fn welch_is_that_of_the_reference() {
    let change = alone(figure(&[100.0, 104.0, 98.0], &[105.0, 112.0, 108.0, 110.0]));
    let interval = change.interval.unwrap();
    close(change.p, 0.023_645);
    close(change.ratio.unwrap(), 1.080_321);
    close(interval.low, 1.016_754);
    close(interval.high, 1.147_862);
    assert!(change.is_sure() && change.is_rise() && !change.is_by_difference);
}

#[test]
fn a_figure_that_is_0_in_a_run_is_compared_as_a_difference() {
    let change = alone(figure(&[0.0, 2.0, 1.0, 1.0], &[9.0, 10.0, 11.0, 10.0]));
    assert!(change.is_by_difference && change.is_sure());
    close(change.ratio.unwrap(), 10.0);
    let new = alone(figure(&[0.0; 4], &[9.0, 10.0, 11.0, 10.0]));
    assert_eq!((new.a, new.ratio, new.interval), (0.0, None, None));
    assert!(new.is_sure() && new.is_rise());
}

/// Two runs that count 20 and two that count 21: that is one event, which the step allows for.
#[test]
fn runs_that_agree_by_chance_are_not_known_exactly() {
    let mut counts = figure(&[20.0, 20.0], &[21.0, 21.0]);
    assert!(alone(counts.clone()).is_sure(), "without a step");
    counts.step = 1.0;
    assert!(!alone(counts).is_sure());
}

#[test]
fn a_change_within_the_resolution_is_none() {
    let mut percentile = figure(&[100.0; 5], &[100.9; 5]);
    percentile.resolution = 0.01;
    let change = alone(percentile);
    assert_eq!(change.p, 1.0);
    assert!(change.interval.unwrap().contains(1.0));
}

/// Nine runs of about 100 and one of 110: as far from the nine as one of them in a thousand.
#[test]
fn one_run_is_held_against_the_spread_of_several() {
    let several = [99.0, 101.0, 100.0, 100.5, 99.5, 100.2, 99.8, 101.2, 98.8];
    let change = alone(figure(&several, &[110.0]));
    assert!(change.is_sure(), "{change:?}");
    let change = alone(figure(&[100.9], &several));
    assert!(!change.is_sure(), "{change:?}");
    let two = alone(figure(&[99.0, 101.0], &[110.0]));
    assert!(!two.is_sure(), "two runs say little: {two:?}");
}

#[test]
fn a_single_pair_needs_blocks() {
    assert_eq!(compare(&[figure(&[100.0], &[200.0])]), [None]);
    let mut rng = Rng::with_seed(9);
    let mut run = |mean: f64| {
        let blocks: Vec<f64> = (0..40)
            .map(|_| mean * (1.0 + 0.1 * noise(&mut rng)))
            .collect();
        let sum = blocks.iter().sum();
        SideValues {
            runs: vec![sum],
            within: WithinRun::of(&BlockSeries::Sums(blocks), sum),
        }
    };
    let pair = FigureValues {
        a: run(100.0),
        b: run(130.0),
        ..FigureValues::default()
    };
    let change = alone(pair);
    assert!(change.is_sure());
    assert!(change.interval.unwrap().contains(1.3), "{change:?}");
}

#[test]
fn what_is_no_number_is_not_compared_and_does_not_count() {
    let good = figure(&[1.0, 1.1, 0.9], &[2.0, 2.1, 1.9]);
    let family = compare(&[
        figure(&[f64::NAN, 1.0], &[1.0]),
        good.clone(),
        figure(&[], &[]),
    ]);
    assert_eq!(family, [None, Some(alone(good)), None]);
}

/// Runs of a program: figures share a part of their noise (a busy host slows everything), have
/// noise of their own, and now and then a run is far off.
struct DrawnRuns {
    rng: Rng,
    own: f64,
    common: f64,
    outliers: f64,
}

impl DrawnRuns {
    fn new(seed: u64, own: f64, common: f64, outliers: f64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            own,
            common,
            outliers,
        }
    }

    /// `figures` values for each of `runs` runs.
    fn side(&mut self, means: &[f64], runs: usize) -> Vec<Vec<f64>> {
        let mut values = vec![Vec::new(); means.len()];
        for _ in 0..runs {
            let common = self.common * noise(&mut self.rng);
            for (mean, runs) in means.iter().zip(&mut values) {
                let is_far = self.rng.f64() < self.outliers;
                let far = if is_far { 4.0 } else { 1.0 };
                let own = far * self.own * noise(&mut self.rng);
                runs.push(mean * (common + own).exp());
            }
        }
        values
    }

    fn judged(&mut self, a: &[f64], b: &[f64], runs: usize) -> Vec<FigureChange> {
        let (a, b) = (self.side(a, runs), self.side(b, runs));
        let pairs = a.iter().zip(&b);
        let figures: Vec<_> = pairs.map(|(a, b)| figure(a, b)).collect();
        compare(&figures).into_iter().flatten().collect()
    }
}

fn means() -> Vec<f64> {
    (0..24).map(|place| 10.0 * 1.7_f64.powi(place)).collect()
}

/// A/A: 100 pairs of sets of five runs, 24 figures each, 3 % noise with outliers. At most 5 of the
/// 100 comparisons may claim any change.
#[test]
fn sets_that_are_alike_are_seldom_told_apart() {
    for (own, common, outliers) in [(0.03, 0.02, 0.0), (0.03, 0.02, 0.03), (0.1, 0.0, 0.05)] {
        let mut runs = DrawnRuns::new(11, own, common, outliers);
        let alarms = (0..100)
            .filter(|_| {
                let changes = runs.judged(&means(), &means(), 5);
                changes.iter().any(FigureChange::is_sure)
            })
            .count();
        assert!(alarms <= 5, "{alarms} of 100 ({own}, {common}, {outliers})");
    }
}

/// A lock is held 5 % longer, with 1 % noise: 4 of 24 figures rise (the length of the run, two
/// percentiles of waits, time waited). It is found in 20 of 20 comparisons. One comparison in
/// twenty may claim something else, so a second false claim is possible, and a fourth is not.
#[test]
fn a_change_above_the_noise_is_found() {
    let mut runs = DrawnRuns::new(12, 0.01, 0.0, 0.0);
    let mut after = means();
    (7..11).for_each(|place| after[place] *= 1.05);
    let mut false_claims = 0;
    for comparison in 0..20 {
        let changes = runs.judged(&means(), &after, 5);
        let sure = |place: &usize| changes[*place].is_sure();
        let found: Vec<_> = (7..11).filter(sure).collect();
        assert!(!found.is_empty(), "comparison {comparison}");
        assert!(found.iter().all(|place| changes[*place].is_rise()));
        false_claims += (0..7).chain(11..24).filter(sure).count();
    }
    assert!(false_claims <= 3, "{false_claims}");
}

/// A change of 5 % in a single one of 24 figures, with 1 % noise and five runs a side: the price of
/// judging all figures together is that a few such changes are missed.
#[test]
fn a_change_of_one_figure_is_mostly_found() {
    let mut runs = DrawnRuns::new(14, 0.01, 0.0, 0.0);
    let mut after = means();
    after[7] *= 1.05;
    let found = (0..200)
        .filter(|_| runs.judged(&means(), &after, 5)[7].is_sure())
        .count();
    assert!(found >= 180, "{found} of 200");
    let found = (0..200)
        .filter(|_| runs.judged(&means(), &after, 8)[7].is_sure())
        .count();
    assert_eq!(found, 200, "with eight runs a side");
}

/// The interval of a single figure holds the truth in 95 of 100 cases.
#[test]
fn intervals_hold_what_they_promise() {
    let mut runs = DrawnRuns::new(13, 0.05, 0.0, 0.0);
    let held = (0..2000)
        .filter(|_| {
            let changes = runs.judged(&[100.0], &[120.0], 4);
            changes[0].interval.unwrap().contains(1.2)
        })
        .count();
    assert!((1875..=1935).contains(&held), "{held} of 2000");
}
