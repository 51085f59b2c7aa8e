//! `api/search`: threads by name or number, and functions by name.

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};
use swtch_core::{StackKind, TaskKey};
use swtch_report::report::{Filter, FilteredTrace};
use swtch_store::Columns;

use super::facts::of_thread;
use super::loaded::Loaded;

/// The most results that a person would look through.
const MOST_FOUND: usize = 50;

/// The waits with one stack: how many, how long in total, and the longest.
#[derive(Clone, Copy, Debug)]
pub struct StackWaits {
    waits: u64,
    ns: u64,
    longest_ns: u64,
    task: TaskKey,
    ended_ns: u64,
}

/// Waits by the kind and number of a stack.
type ByStack = FxHashMap<(StackKind, u32), StackWaits>;

/// Waits by the stack in which they began, and by the stack of their waker.
#[derive(Debug, Default)]
pub struct WaitsByStack {
    waited: ByStack,
    woken: ByStack,
}

/// Finds what matches the words: a part of a name (case does not matter), or a whole number.
///
/// # Errors
/// When the trace cannot be read.
pub fn search(loaded: &Loaded, words: &str) -> Result<Value> {
    let words = words.trim().to_lowercase();
    if words.is_empty() {
        return Ok(json!({"threads": [], "functions": [], "more": false}));
    }
    let number = words.parse::<u32>().ok();
    let fits = |task: TaskKey| {
        let index = loaded.names.index(task);
        let (thread, process) = (loaded.names.thread(index), loaded.names.process_of(index));
        thread
            .comms()
            .any(|name| name.to_lowercase().contains(&words))
            || number.is_some_and(|number| {
                thread.tid.is_some_and(|tid| tid.get() == number)
                    || process.pid.is_some_and(|pid| pid.get() == number)
            })
    };
    let tracks = loaded.levels.os.tracks().iter();
    let mut threads: Vec<_> = tracks.filter(|track| fits(track.task)).collect();
    threads.sort_by_key(|track| std::cmp::Reverse(track.len));
    let functions = functions(loaded, &words)?;
    Ok(json!({
        "threads": threads.iter().take(MOST_FOUND).map(|track| of_thread(loaded, track.task)).collect::<Vec<_>>(),
        "functions": functions.iter().take(MOST_FOUND).collect::<Vec<_>>(),
        "more": threads.len() > MOST_FOUND || functions.len() > MOST_FOUND,
    }))
}

/// Functions in which waits began or from which they were ended, most blocked time first.
fn functions(loaded: &Loaded, words: &str) -> Result<Vec<Value>> {
    let frames = loaded.trace.frames()?;
    let wanted = frames.into_iter().filter_map(|row| {
        let symbol = row
            .symbol
            .filter(|symbol| symbol.to_lowercase().contains(words))?;
        Some((row.id, (symbol, row.module)))
    });
    let wanted: FxHashMap<u32, _> = wanted.collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let waits = loaded.waits_by_stack()?;
    let mut found: FxHashMap<_, StackWaits> = FxHashMap::default();
    for stack in loaded.trace.stacks()? {
        // A recursive function is in a stack more than once.
        let functions: FxHashSet<_> = stack
            .frames
            .iter()
            .filter_map(|frame| wanted.get(frame))
            .collect();
        for (role, stacks) in [("waited", &waits.waited), ("woke", &waits.woken)] {
            let Some(sum) = stacks.get(&(stack.kind, stack.id)) else {
                continue;
            };
            for function in &functions {
                found
                    .entry((*function, role))
                    .and_modify(|known| known.add(sum))
                    .or_insert(*sum);
            }
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then(a.0.cmp(&b.0)));
    let functions = found.into_iter().map(|(((symbol, module), role), sum)| {
        json!({
            "symbol": symbol,
            "module": module,
            "role": role,
            "waits": sum.waits,
            "ns": sum.ns,
            "longest_row": loaded.id_ended(sum.task, sum.ended_ns),
        })
    });
    Ok(functions.collect())
}

impl StackWaits {
    fn add(&mut self, other: &Self) {
        self.waits += other.waits;
        self.ns += other.ns;
        if other.longest_ns > self.longest_ns {
            (self.longest_ns, self.task, self.ended_ns) =
                (other.longest_ns, other.task, other.ended_ns);
        }
    }
}

/// Sums the waits of a trace by stack. Only waits that reports count are included.
///
/// # Errors
/// When the trace cannot be read.
pub fn waits_by_stack(loaded: &Loaded) -> Result<WaitsByStack> {
    let columns =
        Columns::TS | Columns::OFF | Columns::RUNQ | Columns::STACKS | Columns::WAKER_STACKS;
    let mut stacks = WaitsByStack::default();
    let mut session = FilteredTrace::open(&loaded.trace, &Filter::default())?;
    session.scan(columns, &mut |row, _, counted| {
        let Some(blocked) = row.wait.blocked().filter(|_| counted.wait) else {
            return;
        };
        let wait = StackWaits {
            waits: 1,
            ns: blocked.as_ns(),
            longest_ns: blocked.as_ns(),
            task: row.task,
            ended_ns: loaded.since_start(row.ts),
        };
        for stack in row.wait.stacks.iter() {
            add(&mut stacks.waited, stack, &wait);
        }
        for stack in row.wait.wakeup.waker_stacks.iter() {
            add(&mut stacks.woken, stack, &wait);
        }
    })?;
    Ok(stacks)
}

fn add(stacks: &mut ByStack, stack: (StackKind, u32), wait: &StackWaits) {
    stacks
        .entry(stack)
        .and_modify(|known| known.add(wait))
        .or_insert(*wait);
}

#[cfg(test)]
mod tests {
    use swtch_report::report::By;

    use super::*;
    use crate::drawn::{handed_round, printed};

    /// Results link to tables that count the same waits.
    #[test]
    fn waits_with_a_stack_are_those_of_the_report() {
        let (loaded, _dir) = handed_round();
        let stacks = waits_by_stack(&loaded).unwrap();
        let report = printed(&loaded, By::Stack, &Filter::default());
        let [row] = &report["rows"].as_array().unwrap()[..] else {
            panic!("one stack: {report}")
        };
        let stack = stacks.waited[&(StackKind::User, 7)];
        assert_eq!(
            (row["switches"].as_u64(), row["blocked_ns"].as_u64()),
            (Some(stack.waits), Some(stack.ns))
        );
        assert!(stack.waits > 0);
    }
}
