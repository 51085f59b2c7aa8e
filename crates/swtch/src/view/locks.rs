//! `api/locks`: what was waited for most: who waited, and who ended the waits.
//!
//! Nobody writes down who holds a futex or a pipe. Who woke a waiter has let go of it: that is what
//! "released by" says, and it is an inference.

use anyhow::Result;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::{Reason, Switch, TaskKey, WakerKind};
use swtch_store::Columns;

use super::facts::of_thread;
use super::loaded::Loaded;
use super::query::Span;
use crate::report::{Object, object_of};

/// Threads named for one object.
const NAMED: usize = 8;

#[derive(Debug)]
struct Waited {
    reason: Reason,
    waits: u64,
    blocked_ns: u64,
    longest: (u64, TaskKey, u64),
    waiters: FxHashMap<TaskKey, (u64, u64)>,
    releasers: FxHashMap<TaskKey, u64>,
}

/// The objects with the most blocked time.
///
/// # Errors
/// When the trace cannot be read.
pub fn locks(loaded: &Loaded, span: Span, most: usize) -> Result<Value> {
    let mut objects: Vec<_> = waited(loaded, span)?.into_iter().collect();
    objects.sort_by(|a, b| b.1.blocked_ns.cmp(&a.1.blocked_ns).then(a.0.cmp(&b.0)));
    let all = objects.len();
    let keys = objects
        .iter()
        .take(most)
        .map(|(object, waited)| to_json(loaded, object, waited));
    Ok(json!({"keys": keys.collect::<Vec<_>>(), "all": all}))
}

fn waited(loaded: &Loaded, span: Span) -> Result<FxHashMap<Object, Waited>> {
    let columns = Columns::TS
        | Columns::TASK
        | Columns::REASON
        | Columns::BITS
        | Columns::SYSCALL
        | Columns::ARGS
        | Columns::WAIT_OBJECT
        | Columns::WAIT_KEY
        | Columns::OFF_REASON
        | Columns::OFF
        | Columns::RUNQ
        | Columns::WAKER;
    let mut began: FxHashMap<TaskKey, Object> = FxHashMap::default();
    let mut objects: FxHashMap<Object, Waited> = FxHashMap::default();
    // A wait that ends in the span may have begun before it.
    let rows = (loaded.moment(0), loaded.moment(span.to_ns - 1));
    loaded.trace.scan(columns, Some(rows), &mut |row| {
        let thread = loaded.names.thread(loaded.names.index(row.task));
        let object = began.remove(&row.task);
        let is_asked = loaded.since_start(row.ts) >= span.from_ns && thread.in_scope;
        if let Some(object) = object.filter(|_| is_asked && row.wait.reason.is_some()) {
            let reason = row.wait.reason.unwrap_or(Reason::Unknown);
            let waited = objects.entry(object).or_insert_with(|| Waited::of(reason));
            waited.add(loaded, row);
        }
        if let Some(object) = object_of(row, thread.process) {
            began.insert(row.task, object);
        }
    })?;
    Ok(objects)
}

impl Waited {
    fn of(reason: Reason) -> Self {
        Self {
            reason,
            waits: 0,
            blocked_ns: 0,
            longest: (0, TaskKey::IDLE, 0),
            waiters: FxHashMap::default(),
            releasers: FxHashMap::default(),
        }
    }

    fn add(&mut self, loaded: &Loaded, row: &Switch) {
        let blocked_ns = row.wait.blocked().map_or(0, swtch_core::Nanos::as_ns);
        self.waits += 1;
        self.blocked_ns += blocked_ns;
        if blocked_ns >= self.longest.0 {
            self.longest = (blocked_ns, row.task, loaded.since_start(row.ts));
        }
        let waiter = self.waiters.entry(row.task).or_default();
        waiter.0 += 1;
        waiter.1 += blocked_ns;
        if let (Some(waker), Some(WakerKind::Task)) = (row.wait.waker, row.wait.waker_kind) {
            *self.releasers.entry(waker).or_default() += 1;
        }
    }
}

fn to_json(loaded: &Loaded, object: &Object, waited: &Waited) -> Value {
    let mut waiters: Vec<_> = waited.waiters.iter().collect();
    waiters.sort_by(|a, b| b.1.1.cmp(&a.1.1).then(a.0.cmp(b.0)));
    let mut releasers: Vec<_> = waited.releasers.iter().collect();
    releasers.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let (longest_ns, task, ended_ns) = waited.longest;
    let process = loaded.names.process(object.process);
    json!({
        "key": format!("{} {:#x} of {}", object.kind.as_str(), object.key, process.label()),
        "reason": waited.reason.as_str(),
        "waits": waited.waits,
        "blocked_ns": waited.blocked_ns,
        "max_ns": longest_ns,
        "waiters_count": waiters.len(),
        "waiters": waiters.iter().take(NAMED).map(|(task, (waits, ns))| {
            json!({"thread": of_thread(loaded, **task), "waits": waits, "blocked_ns": ns})
        }).collect::<Vec<_>>(),
        "releasers": releasers.iter().take(NAMED).map(|(task, wakes)| {
            json!({"thread": of_thread(loaded, **task), "wakes": wakes})
        }).collect::<Vec<_>>(),
        "longest_row": loaded.levels.os.row_ended(task, ended_ns),
    })
}
