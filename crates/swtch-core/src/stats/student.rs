//! Student's t distribution: what an interval from few runs must allow for.
//!
//! The tail is a regularised incomplete beta function, here by its continued fraction:
//! `P(|T| > t) = I_x(f/2, 1/2)` with `x = f / (f + t²)`.
//!
//! Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.5.8 and 26.7.1; the
//! evaluation of the fraction is Lentz's (Thompson and Barnett, J. Comput. Phys. 64, 1986); the
//! logarithm of Γ is Lanczos' with g = 7 and nine terms (SIAM J. Numer. Anal. B 1, 1964).

/// The probability, from 0 to 1, of a value at least as far from 0 as `t`, on either side, with
/// `freedom` degrees of freedom (above 0, perhaps a fraction).
pub fn two_sided_p(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    beta_share(freedom / (freedom + t * t), freedom / 2.0, 0.5).clamp(0.0, 1.0)
}

/// The t that a value exceeds on either side with probability 1 − `confidence` (0 to 1).
pub fn quantile(confidence: f64, freedom: f64) -> f64 {
    let tail = 1.0 - confidence;
    if tail <= 0.0 {
        return f64::INFINITY;
    }
    let mut high = 1.0;
    while two_sided_p(high, freedom) > tail {
        high *= 2.0;
        if high > 1e15 {
            return f64::INFINITY;
        }
    }
    let mut low = 0.0;
    // More halvings than a double has bits: 53.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        match two_sided_p(middle, freedom) > tail {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

/// The regularised incomplete beta function `I_x(a, b)`.
fn beta_share(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast on this side of the mean.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_share(1.0 - x, b, a);
    }
    let log_beta = log_gamma(a) + log_gamma(b) - log_gamma(a + b);
    let front = (a * x.ln() + b * (1.0 - x).ln() - log_beta).exp() / a;
    front / fraction(x, a, b)
}

/// The denominator `1 + d₁/(1 + d₂/(1 + …))` of 26.5.8.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let nonzero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut value, mut c, mut d) = (1.0, 1.0, 0.0);
    for step in 1..1000_u32 {
        let m = f64::from(step / 2);
        let term = match step % 2 {
            0 => m * (b - m) / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            _ => -(a + m) * (a + b + m) / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        } * x;
        d = 1.0 / nonzero(1.0 + term * d);
        c = nonzero(1.0 + term / c);
        value *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// ln Γ(x) for x > 0.
fn log_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // Γ(x) Γ(1 - x) = π / sin πx
        let pi = std::f64::consts::PI;
        return (pi / (pi * x).sin()).ln() - log_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let terms = TERMS.iter().zip(1_u8..);
    let series = terms.fold(0.999_999_999_999_809_9, |sum, (term, place)| {
        sum + term / (x + f64::from(place))
    });
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + series.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64, within: f64) {
        assert!((left - right).abs() <= within, "{left} is not {right}");
    }

    /// The table of every textbook (two-sided, 95 %, 99 %, 99.9 %).
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [
            (1.0, [12.706, 63.657, 636.619]),
            (2.0, [4.303, 9.925, 31.599]),
            (4.0, [2.776, 4.604, 8.610]),
            (8.0, [2.306, 3.355, 5.041]),
            (30.0, [2.042, 2.750, 3.646]),
            (120.0, [1.980, 2.617, 3.373]),
        ] {
            for (confidence, expected) in [0.95, 0.99, 0.999].into_iter().zip(expected) {
                close(quantile(confidence, freedom), expected, 0.0006);
            }
        }
    }

    /// With one degree of freedom it is Cauchy's distribution, with many the normal one.
    #[test]
    fn tails_are_those_of_known_distributions() {
        let cauchy = |t: f64| 1.0 - 2.0 * t.atan() / std::f64::consts::PI;
        for t in [0.01, 0.5, 1.0, 3.0, 40.0, 5000.0] {
            close(two_sided_p(t, 1.0), cauchy(t), 1e-12);
        }
        close(two_sided_p(1.959_963_985, 1e7), 0.05, 1e-7);
        close(two_sided_p(0.0, 3.0), 1.0, 1e-12);
        close(two_sided_p(f64::INFINITY, 3.0), 0.0, 0.0);
    }

    #[test]
    fn a_quantile_is_the_inverse_of_the_tail() {
        for freedom in [1.0, 2.7, 5.5, 8.0, 61.3] {
            for confidence in [0.5, 0.95, 0.9995] {
                let tail = two_sided_p(quantile(confidence, freedom), freedom);
                close(tail, 1.0 - confidence, 1e-10);
            }
        }
        assert!(quantile(1.0, 4.0).is_infinite());
    }
}
