//! The crates depend on each other as the table in `ARCHITECTURE.md` says, with no more and no
//! fewer edges.
//!
//! The table stands between two markers, so that both people and this check can read it:
//!
//! ```text
//! <!-- layers: begin -->
//! | room | depends on | in tests also |
//! |---|---|---|
//! | `swtch-store` | `swtch-core` | |
//! <!-- layers: end -->
//! ```

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

const BEGIN: &str = "<!-- layers: begin -->";
const END: &str = "<!-- layers: end -->";

/// The other crates that a crate depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// To build it: normal and build dependencies.
    pub always: BTreeSet<String>,
    /// To test it: development dependencies.
    pub in_tests: BTreeSet<String>,
}

/// The edges of each crate, by its name.
pub type Layers = BTreeMap<String, Edges>;

/// Reads the table between the markers.
///
/// # Errors
/// When a marker is missing, or a row does not have three cells.
pub fn allowed(page: &str) -> Result<Layers> {
    let (_, rest) = page
        .split_once(BEGIN)
        .with_context(|| format!("no line {BEGIN}"))?;
    let (table, _) = rest
        .split_once(END)
        .with_context(|| format!("no line {END}"))?;
    let rows = table
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with('|'));
    let mut layers = Layers::new();
    for row in rows.skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [room, always, in_tests] = cells[..] else {
            bail!("a row of the layer table has not three cells: {row}");
        };
        let room = in_backticks(room)
            .pop_first()
            .with_context(|| format!("no room in: {row}"))?;
        let edges = Edges {
            always: in_backticks(always),
            in_tests: in_backticks(in_tests),
        };
        layers.insert(room, edges);
    }
    Ok(layers)
}

fn in_backticks(cell: &str) -> BTreeSet<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Reads the edges from the output of `cargo metadata --no-deps` for each workspace.
///
/// # Errors
/// When the output does not have the form that cargo documents.
pub fn found(metadata: &[Value]) -> Result<Layers> {
    let packages = metadata.iter().map(|of_one| of_one["packages"].as_array());
    let packages = packages.collect::<Option<Vec<_>>>();
    let packages = packages.context("cargo metadata has no packages")?;
    let packages: Vec<&Value> = packages.into_iter().flatten().collect();
    let name_of = |value: &Value| value["name"].as_str().map(str::to_owned);
    let rooms: BTreeSet<String> = packages.iter().copied().filter_map(name_of).collect();
    let mut layers = Layers::new();
    for package in packages {
        let room = name_of(package).context("a package has no name")?;
        let mut edges = Edges::default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let Some(name) = name_of(dependency).filter(|name| rooms.contains(name)) else {
                continue;
            };
            match dependency["kind"].as_str() {
                Some("dev") => edges.in_tests.insert(name),
                _ => edges.always.insert(name),
            };
        }
        // A crate that is needed anyway is no additional edge in tests.
        edges.in_tests = &edges.in_tests - &edges.always;
        layers.insert(room, edges);
    }
    Ok(layers)
}

/// The differences between the tree and the table, in words.
pub fn complaints(allowed: &Layers, found: &Layers) -> Vec<String> {
    let none = Edges::default();
    let rooms: BTreeSet<&String> = allowed.keys().chain(found.keys()).collect();
    let mut complaints = Vec::new();
    for room in rooms {
        match (allowed.contains_key(room), found.contains_key(room)) {
            (true, false) => complaints.push(format!("{room} is in the table and not in the tree")),
            (false, true) => complaints.push(format!("{room} is in the tree and not in the table")),
            _ => {}
        }
        let table = allowed.get(room).unwrap_or(&none);
        let tree = found.get(room).unwrap_or(&none);
        complaints.extend(differences(room, "", &table.always, &tree.always));
        complaints.extend(differences(
            room,
            " in tests",
            &table.in_tests,
            &tree.in_tests,
        ));
    }
    complaints
}

fn differences(
    room: &str,
    when: &str,
    table: &BTreeSet<String>,
    tree: &BTreeSet<String>,
) -> Vec<String> {
    let new = (tree - table)
        .into_iter()
        .map(|to| format!("new edge{when}: {room} → {to}"));
    let gone = (table - tree)
        .into_iter()
        .map(|to| format!("edge{when} of the table that the tree has no more: {room} → {to}"));
    new.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PAGE: &str = "\
Rooms:

<!-- layers: begin -->
| room | depends on | in tests also |
|---|---|---|
| `core` | none | |
| `store` | `core` | `bench` |
| `bench` | `core` | |
<!-- layers: end -->

| `other` | table |
";

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<Value> = dependencies
            .iter()
            .map(|(name, kind)| json!({ "name": name, "kind": kind }))
            .collect();
        json!({ "name": name, "dependencies": dependencies })
    }

    fn complaints_of(packages: &[Value]) -> Vec<String> {
        let found = found(&[json!({ "packages": packages })]).unwrap();
        complaints(&allowed(PAGE).unwrap(), &found)
    }

    fn store() -> Value {
        package(
            "store",
            &[("core", None), ("arrow", None), ("bench", Some("dev"))],
        )
    }

    fn bench() -> Value {
        package("bench", &[("core", None)])
    }

    #[test]
    fn tree_as_in_the_table_is_good() {
        assert!(complaints_of(&[package("core", &[]), store(), bench()]).is_empty());
    }

    #[test]
    fn new_edge_is_a_complaint() {
        let core = package("core", &[("bench", Some("build"))]);
        assert_eq!(
            complaints_of(&[core, store(), bench()]),
            ["new edge: core → bench"]
        );
    }

    #[test]
    fn test_edge_used_in_the_build_is_a_complaint() {
        let store = package("store", &[("core", None), ("bench", None)]);
        let complaints = complaints_of(&[package("core", &[]), store, bench()]);
        assert_eq!(complaints[0], "new edge: store → bench");
    }

    #[test]
    fn missing_edge_is_a_complaint() {
        let bench = package("bench", &[]);
        let complaints = complaints_of(&[package("core", &[]), store(), bench]);
        assert_eq!(
            complaints,
            ["edge of the table that the tree has no more: bench → core"]
        );
    }

    #[test]
    fn room_outside_the_table_is_a_complaint() {
        let common = package("common", &[]);
        let complaints = complaints_of(&[package("core", &[]), store(), bench(), common]);
        assert_eq!(complaints, ["common is in the tree and not in the table"]);
    }

    #[test]
    fn page_without_markers_is_refused() {
        assert!(allowed("| `core` | none | |").is_err());
    }
}
