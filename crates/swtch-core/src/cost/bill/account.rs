//! Switches counted by what decides their price, and their cost.

use super::Case;
use super::tariff::{Basis, DirectCost, Tariff};
use crate::units::Nanos;

/// Switches of one group, by case. Few cases occur in one group, so they are a short list.
#[derive(Clone, Debug, Default)]
pub struct Account {
    cases: Vec<(Case, u64)>,
    indirect_high: Option<Nanos>,
}

impl Account {
    /// Adds a switch, and the most that its task can have lost afterwards.
    pub fn add(&mut self, case: Case, indirect_high: Option<Nanos>) {
        self.add_many(case, 1);
        self.add_indirect(indirect_high);
    }

    /// Adds all switches of another account.
    pub fn merge(&mut self, other: &Self) {
        for (case, switches) in other.cases() {
            self.add_many(case, switches);
        }
        self.add_indirect(other.indirect_high);
    }

    /// The cases that occurred, and how often.
    pub fn cases(&self) -> impl Iterator<Item = (Case, u64)> {
        self.cases.iter().copied()
    }

    /// Number of switches of all cases.
    pub fn switches(&self) -> u64 {
        self.cases.iter().map(|(_, switches)| switches).sum()
    }

    /// The most that tasks can have lost after the switches; `None` when no bound is known.
    pub const fn indirect_high(&self) -> Option<Nanos> {
        self.indirect_high
    }

    fn add_many(&mut self, case: Case, switches: u64) {
        match self.cases.iter_mut().find(|(known, _)| *known == case) {
            Some((_, count)) => *count += switches,
            None => self.cases.push((case, switches)),
        }
    }

    fn add_indirect(&mut self, high: Option<Nanos>) {
        if let Some(high) = high {
            self.indirect_high = Some(self.indirect_high.unwrap_or(Nanos::ZERO) + high);
        }
    }
}

/// The cost of a number of switches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// Number of switches, priced or not.
    pub switches: u64,
    /// Number of these for which the list holds no price; they add nothing to `direct`.
    pub unpriced: u64,
    /// The cost of the switches themselves.
    pub direct: DirectCost,
    /// The part of `direct` whose price was measured for its kind of switch, in ns.
    pub measured_ns: f64,
    /// The most that tasks can have lost afterwards; the least is 0. `None` when no bound is known.
    pub indirect_high: Option<Nanos>,
}

impl Amount {
    pub(super) fn of_none(indirect_high: Option<Nanos>) -> Self {
        Self {
            indirect_high,
            ..Self::default()
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "exact below 2⁵³ switches")]
    pub(super) fn add(&mut self, tariff: Option<&Tariff>, switches: u64) {
        self.switches += switches;
        let Some(tariff) = tariff else {
            self.unpriced += switches;
            return;
        };
        let cost = tariff.direct.times(switches as f64);
        self.direct = self.direct.plus(cost);
        if tariff.basis == Basis::Measured {
            self.measured_ns += cost.point_ns;
        }
    }

    /// Returns true if any of the switches has a price.
    pub const fn is_priced(&self) -> bool {
        self.switches > self.unpriced
    }

    /// The measured part of the direct cost in percent; `None` when there is no direct cost. The
    /// rest is estimated.
    pub fn measured_pct(&self) -> Option<f64> {
        (self.direct.point_ns > 0.0).then(|| self.measured_ns * 100.0 / self.direct.point_ns)
    }
}
