//! `api/locks`: the objects that tasks waited for longest, with their waiters and wakers.
//!
//! How often and how long is counted by the code of `swtch report --by wait`. This file adds the
//! threads, and the longest wait.
//!
//! The kernel does not record which task holds a futex or a pipe. A task that woke a waiter is
//! assumed to have released it: that is what "released by" says, and it is an inference.

use anyhow::Result;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::{Nanos, Reason, Switch, TaskKey, WakerKind};
use swtch_report::report::{Filter, FilteredTrace, Object, ObjectWaits, waits_by_object};
use swtch_store::Columns;

use super::facts::of_thread;
use super::loaded::Loaded;

/// Most threads that are named for one object.
const NAMED: usize = 8;

/// The tasks that waited for one object, and the tasks that ended the waits.
#[derive(Debug)]
struct LockUsers {
    reason: Reason,
    /// The longest wait: its blocked time, its task, and when the run after it ended.
    longest: (Nanos, TaskKey, u64),
    /// Number of waits and blocked time of each task that waited.
    waiters: FxHashMap<TaskKey, (u64, Nanos)>,
    /// Number of wakeups by each task that ended a wait.
    releasers: FxHashMap<TaskKey, u64>,
}

/// The objects with the most blocked time, counting the waits that a report with this filter
/// counts.
///
/// # Errors
/// When the trace cannot be read.
pub fn locks(loaded: &Loaded, filter: &Filter, most: usize) -> Result<Value> {
    let mut session = FilteredTrace::open(&loaded.trace, filter)?;
    let mut users: FxHashMap<Object, LockUsers> = FxHashMap::default();
    let (objects, _) = waits_by_object(&mut session, Columns::TS, &mut |object, row| {
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        let users = users.entry(object).or_insert_with(|| LockUsers::of(reason));
        users.add(loaded, row);
    })?;
    let waited = objects.ranked().into_iter();
    // An object for which no wait has ended has no known waiters.
    let waited = waited.filter_map(|(object, waited)| Some((object, waited, users.get(object)?)));
    let waited: Vec<_> = waited.collect();
    let keys = waited.iter().take(most).map(|(object, waited, users)| {
        let process = session.names().process(object.process).label();
        let key = format!("{} {:#x} of {process}", object.kind.as_str(), object.key);
        to_json(loaded, &key, waited, users)
    });
    Ok(json!({"keys": keys.collect::<Vec<_>>(), "all": waited.len()}))
}

impl LockUsers {
    fn of(reason: Reason) -> Self {
        Self {
            reason,
            longest: (Nanos::ZERO, TaskKey::IDLE, 0),
            waiters: FxHashMap::default(),
            releasers: FxHashMap::default(),
        }
    }

    /// Adds the wait that a row ends.
    fn add(&mut self, loaded: &Loaded, row: &Switch) {
        let blocked = row.wait.blocked().unwrap_or(Nanos::ZERO);
        if blocked >= self.longest.0 {
            self.longest = (blocked, row.task, loaded.since_start(row.ts));
        }
        let waiter = self.waiters.entry(row.task).or_default();
        waiter.0 += 1;
        waiter.1 += blocked;
        let is_task = row.wait.wakeup.kind.is_some_and(WakerKind::is_task);
        if let Some(waker) = row.wait.wakeup.waker.filter(|_| is_task) {
            *self.releasers.entry(waker).or_default() += 1;
        }
    }
}

fn to_json(loaded: &Loaded, key: &str, waited: &ObjectWaits, users: &LockUsers) -> Value {
    let mut waiters: Vec<_> = users.waiters.iter().collect();
    waiters.sort_by(|a, b| b.1.1.cmp(&a.1.1).then(a.0.cmp(b.0)));
    let mut releasers: Vec<_> = users.releasers.iter().collect();
    releasers.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let (longest, task, ended_ns) = users.longest;
    json!({
        "key": key,
        "reason": users.reason.as_str(),
        "waits": waited.waits,
        "blocked_ns": waited.blocked.as_ns(),
        "max_ns": longest.as_ns(),
        "waiters_count": waiters.len(),
        "waiters": waiters.iter().take(NAMED).map(|(task, (waits, blocked))| {
            json!({"thread": of_thread(loaded, **task), "waits": waits, "blocked_ns": blocked.as_ns()})
        }).collect::<Vec<_>>(),
        "releasers": releasers.iter().take(NAMED).map(|(task, wakes)| {
            json!({"thread": of_thread(loaded, **task), "wakes": wakes})
        }).collect::<Vec<_>>(),
        "longest_row": loaded.id_ended(task, ended_ns),
    })
}

#[cfg(test)]
mod tests {
    use swtch_report::report::By;

    use super::*;
    use crate::drawn::{filters, handed_round, printed};

    /// The panel and the command line count the same waits, in all of a trace and in a part of it.
    #[test]
    fn the_keys_are_the_rows_of_the_report() {
        let (loaded, _dir) = handed_round();
        for filter in filters() {
            let report = printed(&loaded, By::Wait, &filter);
            let there = report["rows"].as_array().unwrap().iter();
            let there = there.filter(|row| row["waits"] != 0).map(|row| {
                let words = ["kind", "wait_key", "process"].map(|name| row[name].as_str().unwrap());
                let pid = row["pid"].as_u64().map(|pid| format!("/{pid}"));
                let [kind, key, of] = words;
                let key = format!("{kind} {key} of {of}{}", pid.unwrap_or_default());
                (key, row["waits"].clone(), row["blocked_ns"].clone())
            });
            let there: Vec<_> = there.collect();
            let panel = locks(&loaded, &filter, 100).unwrap();
            let here = panel["keys"].as_array().unwrap().iter().map(|key| {
                let words = key["key"].as_str().unwrap().to_owned();
                (words, key["waits"].clone(), key["blocked_ns"].clone())
            });
            assert!(!there.is_empty(), "{filter:?}: {report}");
            assert_eq!(here.collect::<Vec<_>>(), there, "{filter:?}");
            assert_eq!(panel["all"], there.len());
        }
    }

    /// Names whose numbers do not sum to the number beside them would mislead.
    #[test]
    fn waiters_come_to_the_waits_of_their_key() {
        let (loaded, _dir) = handed_round();
        let panel = locks(&loaded, &Filter::default(), 100).unwrap();
        for key in panel["keys"].as_array().unwrap() {
            let sum = |of: &str, what: &str| -> u64 {
                let users = key[of].as_array().unwrap().iter();
                users.map(|one| one[what].as_u64().unwrap()).sum()
            };
            assert_eq!(key["waits"], sum("waiters", "waits"), "{key}");
            assert_eq!(key["blocked_ns"], sum("waiters", "blocked_ns"), "{key}");
            assert_eq!(key["waits"], sum("releasers", "wakes"), "{key}");
            let longest = usize::try_from(key["longest_row"].as_u64().unwrap()).unwrap();
            let rows = loaded.levels.os.rows();
            let longest = rows.row(longest);
            let blocked = longest.off.unwrap() - longest.runq.unwrap();
            assert_eq!(key["max_ns"], blocked, "{key}");
        }
    }
}
