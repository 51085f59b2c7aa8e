//! Each crate that is not ours is argued for in `docs/DEPENDENCIES.md`: every dependency of the workspace
//! has a line of its tables, and every line a dependency.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

/// The crates that are not ours: of `[workspace.dependencies]`, or of a package's `[dependencies]`.
///
/// # Errors
/// When the file is no such TOML.
pub fn declared(cargo_toml: &str) -> Result<BTreeSet<String>> {
    let file: toml::Table = cargo_toml.parse().context("Cargo.toml")?;
    let table = file
        .get("workspace")
        .map_or_else(
            || file.get("dependencies"),
            |workspace| workspace.get("dependencies"),
        )
        .and_then(toml::Value::as_table)
        .context("Cargo.toml: no dependencies")?;
    let names = table.keys().filter(|name| !name.starts_with("swtch-"));
    Ok(names.cloned().collect())
}

/// The crates in the first cells of the page's tables.
pub fn argued_for(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let first = rows.filter_map(|row| row.split('|').nth(1));
    first
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

/// Lists what one has and the other lacks, in words.
pub fn complaints(declared: &BTreeSet<String>, argued_for: &BTreeSet<String>) -> Vec<String> {
    let without = declared
        .difference(argued_for)
        .map(|name| format!("docs/DEPENDENCIES.md does not say what {name} is for"));
    let gone = argued_for.difference(declared).map(|name| {
        format!("docs/DEPENDENCIES.md argues for {name}, which Cargo.toml does not have")
    });
    without.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_a_line_and_a_line_without_a_crate_are_told() {
        let cargo =
            "[workspace.dependencies]\nswtch-core = { path = \"x\" }\na = \"1\"\nb = \"2\"\n";
        let page = "| crate | for |\n|---|---|\n| `a`, `c` | both of `d` |\n";
        let told = complaints(&declared(cargo).unwrap(), &argued_for(page));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].contains("what b is for") && told[1].contains("for c,"),
            "{told:?}"
        );
    }
}
