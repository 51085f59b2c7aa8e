//! Reads and writes the rules of a trace. A row of `switch` holds a `&'static Rule`; a file holds
//! the rule's name and, apart from it, the reason and certainty that were decided then.
//!
//! The table of rules changes between versions: rules are added and removed, and verdicts change.
//! Where a version knows that it judges an older one's rule differently ([`rejudged`]), the row is read
//! with today's reason, so that two traces are comparable; any other stored verdict stays as it is.
//! Where today's table has no rule of that name with that verdict, a [`Rule::foreign`] is used instead.
//! Each distinct one is leaked; there are as many as distinct verdicts of other versions, not as rows.
//!
//! Why a task left is also said by its next row, as the reason of the wait ([`JudgedWaits`]), and by the
//! table `open`.

use std::collections::HashMap;
use std::ptr;
use std::sync::{LazyLock, Mutex, PoisonError};

use arrow_array::{Array, ArrayRef, UInt8Array};
use swtch_core::rules::{all_rules, rejudged, rule_named};
use swtch_core::{Certainty, Level, Reason, Rule, Switch, TaskKey};

use crate::column::{Mismatch, dictionary, for_each_word, word_list};

/// Names of all rules of this version: the values of the `rule` column.
static RULE_NAMES: LazyLock<ArrayRef> =
    LazyLock::new(|| word_list(all_rules().map(|rule| rule.name)));

/// Address and index of each rule, sorted by address, because millions of rows are written.
static RULE_INDEX_BY_ADDRESS: LazyLock<Vec<(usize, u8)>> = LazyLock::new(|| {
    let mut index_by_address: Vec<_> = all_rules().map(address).zip(0..).collect();
    index_by_address.sort_unstable();
    index_by_address
});

/// Stand-ins for rules of which only the reason and certainty were read, at [`Reason::index`] and then
/// [`Certainty::index`].
static NAMELESS_RULES_BY_REASON: LazyLock<Vec<[Rule; 2]>> = LazyLock::new(|| {
    let nameless_rule = |reason, certainty| Rule::foreign("", reason, certainty);
    let nameless_of_each_certainty = |&reason| {
        [
            nameless_rule(reason, Certainty::Certain),
            nameless_rule(reason, Certainty::Inferred),
        ]
    };
    Reason::ALL.iter().map(nameless_of_each_certainty).collect()
});

/// Rules of other versions, each once, with the name and verdict that a file gave them.
static FOREIGN_RULES: Mutex<Vec<&'static Rule>> = Mutex::new(Vec::new());

fn address(rule: &Rule) -> usize {
    ptr::from_ref(rule).addr()
}

/// The rule in a row whose columns have not been read.
pub(crate) fn unread() -> &'static Rule {
    nameless(Reason::Unknown, Certainty::Inferred)
}

/// The stand-in for a rule of which only the verdict is known.
pub(crate) fn nameless(reason: Reason, certainty: Certainty) -> &'static Rule {
    &NAMELESS_RULES_BY_REASON[reason.index()][certainty.index()]
}

/// The rule with this name and this verdict.
pub(crate) fn named(name: &str, verdict: &Rule) -> &'static Rule {
    match rule_named(name) {
        Some(rule) if is_same_verdict(rule, verdict) => rule,
        _ => rejudged(name, verdict.reason).unwrap_or_else(|| foreign(name, verdict)),
    }
}

/// The first version of the rules whose reasons are all today's.
pub(crate) const JUDGED_AS_TODAY: u32 = 6;

/// Gives waits in traces of older rules the reason with which their task is said to have left today. Rows
/// come in order of time. Of a task's first row in a scan that begins in the middle of a trace, the reason
/// stays.
#[derive(Debug, Default)]
pub(crate) struct JudgedWaits {
    /// The reason of each task's last row.
    left: HashMap<TaskKey, Reason>,
}

impl JudgedWaits {
    pub(crate) fn judge(&mut self, rows: &mut [Switch]) {
        for row in rows.iter_mut().filter(|row| row.level == Level::Os) {
            let left = self.left.insert(row.task, row.rule.reason);
            if row.wait.reason.is_some() && left.is_some() {
                row.wait.reason = left;
            }
        }
    }

    /// Returns why the task left last.
    pub(crate) fn left(&self, task: TaskKey) -> Option<Reason> {
        self.left.get(&task).copied()
    }
}

fn foreign(name: &str, verdict: &Rule) -> &'static Rule {
    // The list only grows by whole entries, so one left by a panicking thread is sound.
    let mut known = FOREIGN_RULES.lock().unwrap_or_else(PoisonError::into_inner);
    let has_name_and_verdict = |rule: &&&Rule| rule.name == name && is_same_verdict(rule, verdict);
    if let Some(rule) = known.iter().find(has_name_and_verdict) {
        return rule;
    }
    let name = Box::leak(name.to_owned().into_boxed_str());
    let rule = Box::leak(Box::new(Rule::foreign(
        name,
        verdict.reason,
        verdict.certainty,
    )));
    known.push(rule);
    rule
}

/// Adds the rules' names to the verdicts that the columns `reason` and `certainty` have set.
pub(crate) fn set_rules(array: &dyn Array, rows: &mut [Switch]) -> Result<(), Mismatch> {
    // A name has one verdict in nearly all traces, so its rule is looked up once per batch.
    let mut last_by_name = [None::<(&'static Rule, &'static Rule)>; 256];
    for_each_word(array, rows, |row: &mut Switch, name, name_index| {
        let verdict = row.rule;
        let last = &mut last_by_name[usize::from(name_index)];
        row.rule = match *last {
            Some((then, rule)) if is_same_verdict(then, verdict) => rule,
            _ => last.insert((verdict, named(name, verdict))).1,
        };
    })
}

fn is_same_verdict(left: &Rule, right: &Rule) -> bool {
    left.reason == right.reason && left.certainty == right.certainty
}

/// The `rule` column of these rows, as a dictionary array.
pub(crate) fn rule_names(rows: &[Switch]) -> ArrayRef {
    let indices: Option<Vec<u8>> = rows.iter().map(|row| index_in_table(row.rule)).collect();
    match indices {
        Some(indices) => dictionary(UInt8Array::from(indices), &RULE_NAMES),
        None => rule_names_with_foreign(rows),
    }
}

/// The index of a rule in today's table; `None` for a foreign one.
fn index_in_table(rule: &Rule) -> Option<u8> {
    let found = RULE_INDEX_BY_ADDRESS.binary_search_by_key(&address(rule), |entry| entry.0);
    found.ok().map(|entry| RULE_INDEX_BY_ADDRESS[entry].1)
}

/// As [`rule_names`], for a trace made from another: the list gets the foreign names as well.
fn rule_names_with_foreign(rows: &[Switch]) -> ArrayRef {
    let mut names: Vec<&str> = all_rules().map(|rule| rule.name).collect();
    let mut index_of_name = |rule: &Rule| {
        let found = names.iter().position(|name| *name == rule.name);
        let index = found.unwrap_or_else(|| {
            names.push(rule.name);
            names.len() - 1
        });
        u8::try_from(index).expect("all versions together have at most 256 rules")
    };
    let indices: Vec<u8> = rows.iter().map(|row| index_of_name(row.rule)).collect();
    dictionary(UInt8Array::from(indices), &word_list(names.into_iter()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_finds_its_index() {
        for (rule, index) in all_rules().zip(0..) {
            assert_eq!(index_in_table(rule), Some(index), "{}", rule.name);
        }
    }

    /// Today's rule of that name may decide differently.
    #[test]
    fn a_stored_verdict_is_not_replaced_by_todays() {
        let today = named("futex_call", nameless(Reason::Futex, Certainty::Certain));
        assert!(ptr::eq(today, rule_named("futex_call").unwrap()));
        let then = named("futex_call", nameless(Reason::Ipc, Certainty::Inferred));
        assert_eq!((then.name, then.reason), ("futex_call", Reason::Ipc));
    }

    /// Version 5 called this the end of a slice.
    #[test]
    fn what_an_older_version_judged_otherwise_is_read_as_today_with_its_wait() {
        let then = nameless(Reason::Slice, Certainty::Certain);
        let today = named("protection_lapsed_at_wakeup", then);
        assert_eq!(today.reason, Reason::Wakeup);
        let mut left = (crate::schema::SWITCH.blank)();
        left.rule = today;
        let mut back = left;
        back.rule = named("tick_slice_end", then);
        back.wait.reason = Some(Reason::Slice);
        let mut rows = [left, back];
        let mut judged = JudgedWaits::default();
        judged.judge(&mut rows);
        assert_eq!(rows[1].wait.reason, Some(Reason::Wakeup));
        assert_eq!(judged.left(back.task), Some(Reason::Slice));
    }

    #[test]
    fn a_rule_that_is_gone_keeps_its_name_and_is_kept_once() {
        let gone = || named("gone", nameless(Reason::Io, Certainty::Certain));
        assert_eq!(gone().reason, Reason::Io);
        assert!(ptr::eq(gone(), gone()));
    }
}
