//! The bill of a trace: its switches joined with prices when the bill is made.
//!
//! ```text
//! PriceList ─Billing::new─▶ (reason, successor) ─▶ Tariff    resolved once
//! rows ─▶ Account: how many of each case ─amount─▶ Amount    priced at the end
//! ```
//!
//! Two costs are kept apart:
//!
//! - **direct**: what the switch itself takes. Point and interval come from the list; each
//!   [`Tariff`] says whether it was measured for this kind of switch or is an estimate, and why.
//! - **indirect**: what the task loses afterwards, because others used its caches. What a program
//!   had in its caches cannot be seen from outside, so this is only ever a bound
//!   ([`Displacement`]).
//!
//! **Intervals do not average out.** If a price is off by 5 %, that is one error, the same for
//! every switch that is billed at it: a million of them are off by the same 5 %. Two tariffs were
//! measured on one machine on one day and may be off together. So the interval of a sum is the sum
//! of the ends, over the switches of a tariff and over all tariffs.
//!
//! Not known here: where the two tasks' memory lay, whether the next task was a kernel thread (it
//! counts as another process, though it borrows the address space), and what a hypervisor did
//! meanwhile.

use std::fmt;

mod account;
mod displacement;
mod tariff;

pub use account::{Account, Amount};
pub use displacement::{Displacement, Return};
pub use tariff::{Basis, DirectCost, Tariff};

use super::price::PriceList;
use crate::reason::Reason;

crate::reason::words! {
    /// The kind of task that came onto the CPU when another left it.
    Successor {
        SameProcess = "same-process": "another thread of its process: the address space stays",
        OtherProcess = "other-process": "a thread of another process",
        Idle = "idle": "nobody: the CPU went idle",
        Unknown = "unknown": "a task that could not be named",
    }
}

/// The reason and the successor of a switch, which decide its tariff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Case {
    /// The reason for which the task left its CPU.
    pub reason: Reason,
    /// The kind of task that ran next.
    pub successor: Successor,
}

impl Case {
    /// All cases, in the order of [`Self::index`].
    pub fn all() -> impl Iterator<Item = Self> {
        let reasons = Reason::ALL.iter().copied();
        reasons.flat_map(|reason| {
            let successors = Successor::ALL.iter().copied();
            successors.map(move |successor| Self { reason, successor })
        })
    }

    /// Index among all cases, from 0.
    pub const fn index(self) -> usize {
        self.reason.index() * Successor::ALL.len() + self.successor.index()
    }
}

/// A price list prepared for billing switches.
#[derive(Clone, Debug)]
pub struct Billing {
    tariffs: Vec<Result<Tariff, String>>,
    displacement: Result<Displacement, String>,
}

impl Billing {
    /// Finds the price of `list` that applies to each case.
    pub fn new(list: &PriceList) -> Self {
        Self {
            tariffs: Case::all()
                .map(|case| tariff::resolve(list, case))
                .collect(),
            displacement: Displacement::new(list),
        }
    }

    /// The tariff at which a switch of this case is billed.
    ///
    /// # Errors
    ///
    /// The list holds no price that fits; the text says why.
    pub fn tariff(&self, case: Case) -> Result<&Tariff, &str> {
        self.tariffs[case.index()].as_ref().map_err(String::as_str)
    }

    /// The bound on indirect costs.
    ///
    /// # Errors
    ///
    /// The list has no curve from which to take it; the text says why.
    pub fn displacement(&self) -> Result<&Displacement, &str> {
        self.displacement.as_ref().map_err(String::as_str)
    }

    /// The cost of all switches of an account.
    pub fn amount(&self, account: &Account) -> Amount {
        let mut amount = Amount::of_none(account.indirect_high());
        for (case, switches) in account.cases() {
            amount.add(self.tariff(case).ok(), switches);
        }
        amount
    }
}

#[cfg(test)]
mod drawn;

#[cfg(test)]
mod tests {
    use super::drawn::{case, list};
    use super::*;

    #[test]
    fn every_case_has_a_place_of_its_own() {
        for (place, case) in Case::all().enumerate() {
            assert_eq!(case.index(), place);
        }
    }

    /// 3 × (90…100…120) + 2 × (900…1000…1200): the ends add up like the points, nothing averages.
    #[test]
    fn the_interval_of_a_sum_is_the_sum_of_the_ends() {
        let billing = Billing::new(&list(&[
            ("futex-shared", "threads", [90.0, 100.0, 120.0]),
            ("pipe", "processes", [900.0, 1000.0, 1200.0]),
        ]));
        let mut account = Account::default();
        for _ in 0..3 {
            account.add(case(Reason::Futex, Successor::SameProcess), None);
        }
        for _ in 0..2 {
            account.add(case(Reason::Pipe, Successor::OtherProcess), None);
        }
        let amount = billing.amount(&account);
        let expected = DirectCost {
            low_ns: 2070.0,
            point_ns: 2300.0,
            high_ns: 2760.0,
        };
        assert_eq!(amount.direct, expected);
        assert_eq!((amount.switches, amount.unpriced), (5, 0));
        assert_eq!(amount.measured_pct(), Some(100.0));
    }

    /// Direct cost of 100 measured and 300 estimated.
    #[test]
    fn the_measured_share_is_that_of_the_direct_cost() {
        let billing = Billing::new(&list(&[
            ("futex-shared", "threads", [100.0, 100.0, 100.0]),
            ("futex-shared", "processes", [300.0, 300.0, 300.0]),
        ]));
        let mut account = Account::default();
        account.add(case(Reason::Futex, Successor::SameProcess), None);
        account.add(case(Reason::Sleep, Successor::OtherProcess), None);
        assert_eq!(billing.amount(&account).measured_pct(), Some(25.0));
    }

    /// The list has no price of a switch without blocking, so preemptions stay unpriced.
    #[test]
    fn what_has_no_price_is_counted_and_not_guessed() {
        let billing = Billing::new(&list(&[("pipe", "threads", [1.0, 1.0, 1.0])]));
        let mut account = Account::default();
        account.add(case(Reason::Slice, Successor::SameProcess), None);
        let amount = billing.amount(&account);
        assert_eq!((amount.switches, amount.unpriced), (1, 1));
        assert_eq!(amount.measured_pct(), None);
        assert!(!amount.is_priced());
    }

    #[test]
    fn no_switches_cost_nothing() {
        let amount = Billing::new(&list(&[])).amount(&Account::default());
        assert_eq!(amount.direct, DirectCost::default());
        assert_eq!((amount.switches, amount.indirect_high), (0, None));
    }
}
