//! Every dependency has a licence that `deny.toml` allows and comes from the one registry.
//!
//! `cargo-deny` reads the same `deny.toml` and checks more (advisories, duplicates). This checks
//! the most important part on machines without it. The list of licences exists only in that file.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The registry, as `cargo metadata` names it.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Reads the licences of `[licenses] allow = […]`.
///
/// # Errors
/// When there is no such list or it is empty.
pub fn allowed(deny_toml: &str) -> Result<Vec<String>> {
    let file: toml::Table = deny_toml.parse().context("deny.toml")?;
    let names: Vec<String> = file
        .get("licenses")
        .and_then(|licenses| licenses.get("allow")?.as_array())
        .context("deny.toml: no list `allow` in [licenses]")?
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    ensure!(!names.is_empty(), "deny.toml allows no licence");
    Ok(names)
}

/// Packages of `cargo metadata` whose licence or source is not allowed. Only packages in the
/// resolved graph of this platform are checked.
pub fn complaints(allowed: &[String], metadata: &Value) -> Vec<String> {
    let used: Vec<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|node| node["id"].as_str())
        .collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter(|package| package["id"].as_str().is_some_and(|id| used.contains(&id)))
        .flat_map(|package| {
            [
                licence_complaint(allowed, package),
                source_complaint(package),
            ]
        })
        .flatten()
        .collect()
}

fn licence_complaint(allowed: &[String], package: &Value) -> Option<String> {
    let name = package["name"].as_str().unwrap_or("?");
    match package["license"].as_str() {
        None => Some(format!("{name} names no licence")),
        Some(licence) if is_allowed(licence, allowed) => None,
        Some(licence) => Some(format!("{name}: {licence} is not allowed by deny.toml")),
    }
}

fn source_complaint(package: &Value) -> Option<String> {
    let source = package["source"].as_str()?;
    let name = package["name"].as_str().unwrap_or("?");
    (source != REGISTRY).then(|| format!("{name} comes from {source}"))
}

/// True if an SPDX expression can be met with allowed licences: one side of an OR, both of an AND.
/// A name with its exception (`X WITH y`) is one licence.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    // Old manifests write `/` for OR.
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let verdict = any_of(&mut rest, allowed);
    verdict && rest.is_empty()
}

fn any_of(rest: &mut &[&str], allowed: &[String]) -> bool {
    let mut verdict = all_of(rest, allowed);
    while take(rest, "OR") {
        // Not `||`: the right side must be parsed even if the left is allowed.
        verdict |= all_of(rest, allowed);
    }
    verdict
}

fn all_of(rest: &mut &[&str], allowed: &[String]) -> bool {
    let mut verdict = one(rest, allowed);
    while take(rest, "AND") {
        verdict &= one(rest, allowed);
    }
    verdict
}

fn one(rest: &mut &[&str], allowed: &[String]) -> bool {
    if take(rest, "(") {
        return any_of(rest, allowed) & take(rest, ")");
    }
    let Some((name, after)) = rest.split_first() else {
        return false;
    };
    *rest = after;
    let mut licence = (*name).to_owned();
    if let ["WITH", exception, after @ ..] = *rest {
        licence = format!("{licence} WITH {exception}");
        *rest = after;
    }
    allowed.contains(&licence)
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    let is_next = rest.first() == Some(&word);
    if is_next {
        *rest = &rest[1..];
    }
    is_next
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn allow(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn one_of_an_or_is_enough() {
        let mit = allow(&["MIT"]);
        assert!(is_allowed("MIT OR Apache-2.0", &mit));
        assert!(is_allowed("GPL-3.0/MIT", &mit));
        assert!(!is_allowed("GPL-3.0 OR LGPL-2.1-only", &mit));
    }

    #[test]
    fn all_of_an_and_are_needed() {
        assert!(!is_allowed(
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            &allow(&["MIT"])
        ));
        assert!(is_allowed(
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            &allow(&["MIT", "Unicode-3.0"])
        ));
    }

    #[test]
    fn exception_is_part_of_the_name() {
        let expression = "Apache-2.0 WITH LLVM-exception";
        assert!(!is_allowed(expression, &allow(&["Apache-2.0"])));
        assert!(is_allowed(
            expression,
            &allow(&["Apache-2.0 WITH LLVM-exception"])
        ));
    }

    #[test]
    fn expression_that_does_not_parse_is_not_allowed() {
        let mit = allow(&["MIT"]);
        assert!(!is_allowed("", &mit));
        assert!(!is_allowed("(MIT", &mit));
        assert!(!is_allowed("MIT MIT", &mit));
    }

    #[test]
    fn list_is_read_from_deny_toml() {
        let text =
            "[bans]\nallow = [\"no\"]\n[licenses]\nallow = [\n  \"MIT\", # ours\n  \"Zlib\",\n]\n";
        assert_eq!(allowed(text).unwrap(), ["MIT", "Zlib"]);
        assert!(allowed("[licenses]\nallow = []").is_err());
    }

    #[test]
    fn only_packages_of_this_platform_are_asked() {
        let package = |id: &str, licence: Value, source: &str| json!({ "id": id, "name": id, "license": licence, "source": source });
        let metadata = json!({
            "packages": [
                package("good", json!("MIT"), REGISTRY),
                package("unnamed", Value::Null, REGISTRY),
                package("copyleft", json!("GPL-3.0"), REGISTRY),
                package("elsewhere", json!("MIT"), "git+https://example.org/x"),
                package("windows", json!("GPL-3.0"), REGISTRY),
            ],
            "resolve": { "nodes": [
                { "id": "good" }, { "id": "unnamed" }, { "id": "copyleft" }, { "id": "elsewhere" },
            ] },
        });
        assert_eq!(
            complaints(&allow(&["MIT"]), &metadata),
            [
                "unnamed names no licence",
                "copyleft: GPL-3.0 is not allowed by deny.toml",
                "elsewhere comes from git+https://example.org/x",
            ]
        );
    }
}
