//! `api/flame`: blocked time by the place that waited: process, stack, reason.

use anyhow::Result;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::{Nanos, Pid, Reason};
use swtch_store::{Columns, StackKind};

use super::loaded::Loaded;
use super::query::Span;

/// Nodes narrower than this part of the whole are drawn by no screen, and left out.
const NARROWEST: f64 = 0.0002;

/// One place: process, user stack, kernel stack, reason.
type Place = (usize, Option<u32>, Option<u32>, Reason);

/// A node and what lies above it.
#[derive(Debug, Default)]
struct Node {
    kind: &'static str,
    ns: u64,
    waits: u64,
    children: FxHashMap<String, Self>,
}

/// Which waits.
#[derive(Clone, Copy, Debug)]
pub struct Which {
    /// Those that ended in this span.
    pub span: Span,
    /// Those for this reason.
    pub reason: Option<Reason>,
    /// Those of this process.
    pub pid: Option<Pid>,
}

/// The tree.
///
/// # Errors
/// When the trace cannot be read.
pub fn flame(loaded: &Loaded, which: Which) -> Result<Value> {
    let symbols = loaded.symbols()?;
    let mut root = Node::default();
    for ((process, user, kernel, reason), (waits, ns)) in places(loaded, which)? {
        let mut node = root.take(waits, ns);
        let label = loaded.names.process(process).label();
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

/// Waits and blocked time by place.
fn places(loaded: &Loaded, which: Which) -> Result<FxHashMap<Place, (u64, u64)>> {
    let columns = Columns::TS
        | Columns::TASK
        | Columns::OFF_REASON
        | Columns::OFF
        | Columns::RUNQ
        | Columns::STACKS;
    let mut places: FxHashMap<Place, (u64, u64)> = FxHashMap::default();
    let names = &loaded.names;
    let span = (
        loaded.moment(which.span.from_ns),
        loaded.moment(which.span.to_ns - 1),
    );
    loaded.trace.scan(columns, Some(span), &mut |row| {
        let thread = names.thread(names.index(row.task));
        let Some(blocked) = row.wait.blocked().filter(|blocked| *blocked > Nanos::ZERO) else {
            return;
        };
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        let is_asked = thread.in_scope
            && which.reason.is_none_or(|asked| asked == reason)
            && which
                .pid
                .is_none_or(|pid| names.process(thread.process).pid == Some(pid));
        if is_asked {
            let place = (
                thread.process,
                row.wait.user_stack,
                row.wait.kernel_stack,
                reason,
            );
            let sum = places.entry(place).or_default();
            sum.0 += 1;
            sum.1 += blocked.as_ns();
        }
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
        // The longest first; equal ones by name, so that a picture is the same each time.
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
