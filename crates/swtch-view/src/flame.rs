//! `api/flame`: blocked time by program, stack and reason. Processes that do the same are one
//! program, as in the verdict: eight backends of a server wait in the same functions.

use anyhow::Result;
use serde_json::{Value, json};
use swtch_report::report::{Filter, FilteredTrace, FlameNaming, FlameNode};

use super::loaded::Loaded;

/// Nodes with a smaller share of the whole are too narrow for any screen, and left out.
const NARROWEST: f64 = 0.0002;

/// The tree of the waits that a report with this filter counts.
///
/// # Errors
/// When the trace cannot be read.
pub fn flame(loaded: &Loaded, filter: &Filter) -> Result<Value> {
    let symbols = loaded.symbols()?;
    let mut session = FilteredTrace::open(&loaded.trace, filter)?;
    let root = FlameNode::of(&mut session, symbols, FlameNaming::OfOneTrace)?;
    #[expect(clippy::cast_precision_loss, reason = "a bound for drawing")]
    let least = root.ns as f64 * NARROWEST;
    Ok(to_json(&root, "all", least))
}

#[expect(clippy::cast_precision_loss, reason = "a bound for drawing")]
fn to_json(node: &FlameNode, name: &str, least: f64) -> Value {
    let wide = node
        .children
        .iter()
        .filter(|(_, child)| child.ns as f64 >= least);
    let mut wide: Vec<_> = wide.collect();
    // The longest first, and equal ones by name, so that a picture is the same each time.
    wide.sort_by(|a, b| b.1.ns.cmp(&a.1.ns).then(a.0.cmp(b.0)));
    json!({
        "name": name,
        "kind": node.kind.as_str(),
        "ns": node.ns,
        "waits": node.waits,
        "children": wide.iter().map(|(name, child)| to_json(child, name, least)).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use swtch_report::report::By;

    use super::*;
    use crate::drawn::{filters, handed_round, printed};

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
