//! `api/flame`: blocked time by program, stack and reason. Processes that do the same are one
//! program, as in the verdict: eight backends of a server wait in the same functions.

use anyhow::Result;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::{Nanos, Reason, StackKind};
use swtch_report::report::{Filter, FilteredTrace, Programs};
use swtch_store::Columns;

use super::loaded::Loaded;

/// Nodes with a smaller share of the whole are too narrow for any screen, and left out.
const NARROWEST: f64 = 0.0002;

/// Where tasks waited, and why: process, user stack, kernel stack, reason.
type FlameKey = (usize, Option<u32>, Option<u32>, Reason);

/// A node, and the nodes above it.
#[derive(Debug, Default)]
struct Node {
    kind: &'static str,
    ns: u64,
    waits: u64,
    children: FxHashMap<String, Self>,
}

/// The tree of the waits that a report with this filter counts.
///
/// # Errors
/// When the trace cannot be read.
pub fn flame(loaded: &Loaded, filter: &Filter) -> Result<Value> {
    let symbols = loaded.symbols()?;
    let mut session = FilteredTrace::open(&loaded.trace, filter)?;
    let mut root = Node::default();
    let programs = Programs::new(&session.names());
    for ((process, user, kernel, reason), (waits, ns)) in places(&mut session)? {
        let mut node = root.take(waits, ns);
        let label = programs.label(process).to_owned();
        node = node.child(label, "process").take(waits, ns);
        for frame in symbols.frames(StackKind::User, user).into_iter().rev() {
            node = node.child(frame, "user").take(waits, ns);
        }
        for frame in symbols.frames(StackKind::Kernel, kernel).into_iter().rev() {
            node = node.child(frame, "kernel").take(waits, ns);
        }
        if user.is_none() && kernel.is_none() {
            node = node
                .child("(no stack taken)".to_owned(), "none")
                .take(waits, ns);
        }
        node.child(reason.as_str().to_owned(), "reason")
            .take(waits, ns);
    }
    #[expect(clippy::cast_precision_loss, reason = "a bound for drawing")]
    let least = root.ns as f64 * NARROWEST;
    Ok(root.to_json("all", least))
}

/// Number of waits and blocked time in ns, for each [`FlameKey`].
fn places(session: &mut FilteredTrace<'_>) -> Result<FxHashMap<FlameKey, (u64, u64)>> {
    let columns = Columns::OFF_REASON | Columns::OFF | Columns::RUNQ | Columns::STACKS;
    let mut places: FxHashMap<FlameKey, (u64, u64)> = FxHashMap::default();
    let names = session.names();
    session.scan(columns, &mut |row, task, counted| {
        let blocked = row.wait.blocked().filter(|_| counted.wait);
        let Some(blocked) = blocked.filter(|blocked| *blocked > Nanos::ZERO) else {
            return;
        };
        let place = (
            names.thread(task).process,
            row.wait.stacks.user,
            row.wait.stacks.kernel,
            row.wait.reason.unwrap_or(Reason::Unknown),
        );
        let sum = places.entry(place).or_default();
        sum.0 += 1;
        sum.1 += blocked.as_ns();
    })?;
    Ok(places)
}

impl Node {
    fn take(&mut self, waits: u64, ns: u64) -> &mut Self {
        self.waits += waits;
        self.ns += ns;
        self
    }

    fn child(&mut self, name: String, kind: &'static str) -> &mut Self {
        let child = self.children.entry(name).or_default();
        child.kind = kind;
        child
    }

    #[expect(clippy::cast_precision_loss, reason = "a bound for drawing")]
    fn to_json(&self, name: &str, least: f64) -> Value {
        let wide = self
            .children
            .iter()
            .filter(|(_, child)| child.ns as f64 >= least);
        let mut wide: Vec<_> = wide.collect();
        // The longest first, and equal ones by name, so that a picture is the same each time.
        wide.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then(a.0.cmp(b.0)));
        json!({
            "name": name,
            "kind": self.kind,
            "ns": self.ns,
            "waits": self.waits,
            "children": wide.iter().map(|(name, child)| child.to_json(name, least)).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use swtch_report::report::By;

    use super::*;
    use crate::view::drawn::{filters, handed_round, printed};

    /// A picture of other waits than the table beside it would mislead.
    #[test]
    fn the_tree_is_of_the_blocked_time_of_the_report() {
        let (loaded, _dir) = handed_round();
        for filter in filters() {
            let total = printed(&loaded, By::Reason, &filter)["total"]["blocked_ns"].clone();
            let tree = flame(&loaded, &filter).unwrap();
            assert_eq!(tree["ns"], total, "{filter:?}");
            assert_ne!(tree["ns"], 0, "{filter:?}");
            let children = tree["children"].as_array().unwrap().iter();
            let sum: u64 = children.map(|child| child["ns"].as_u64().unwrap()).sum();
            assert_eq!(tree["ns"], sum, "{filter:?}");
        }
    }
}
