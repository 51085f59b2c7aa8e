//! Links of the docs lead somewhere: to a file of the tree, and to a heading that the page has.
//!
//! Checked are `[text](target)` and pictures outside of code. A target is a path as seen from the
//! folder of its page, with or without `#heading`; what begins with a scheme (`https:`) is not
//! followed. Headings have the names that GitHub gives them (mdBook gives the same): in lower case,
//! a space becomes `-`, punctuation is left out, and the second of a name ends in `-1`.

use std::collections::{BTreeMap, BTreeSet};

use super::named_paths::TreePaths;

/// A complaint for each link that leads nowhere. `pages` are the paths and texts of all pages.
pub fn complaints(pages: &[(&str, String)], tree: &TreePaths) -> Vec<String> {
    let headings: BTreeMap<&str, BTreeSet<String>> = pages
        .iter()
        .map(|(page, text)| (*page, headings(text)))
        .collect();
    let mut complaints = Vec::new();
    for (page, text) in pages {
        for (number, target) in links(text) {
            if let Some(why) = why_broken(page, target, tree, &headings) {
                complaints.push(format!("{page}:{number}: link to `{target}`: {why}"));
            }
        }
    }
    complaints
}

/// A complaint for each page of `docs/` that the book's table of contents leaves out.
pub fn unlisted(pages: &[(&str, String)]) -> Vec<String> {
    let listed: BTreeSet<&str> = pages
        .iter()
        .filter(|(page, _)| *page == "docs/SUMMARY.md")
        .flat_map(|(_, text)| links(text))
        .map(|(_, target)| target)
        .collect();
    pages
        .iter()
        .filter_map(|(page, _)| page.strip_prefix("docs/"))
        .filter(|name| *name != "SUMMARY.md" && !listed.contains(name))
        .map(|name| {
            format!(
                "docs/{name} is not in docs/SUMMARY.md: give it a line there and in docs/README.md"
            )
        })
        .collect()
}

/// Why a link leads nowhere, and what to write; `None` if it leads somewhere or out of the tree.
fn why_broken(
    page: &str,
    target: &str,
    tree: &TreePaths,
    headings: &BTreeMap<&str, BTreeSet<String>>,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = match target.split_once('#') {
        Some((path, heading)) => (path, Some(heading)),
        None => (target, None),
    };
    let file = if path.is_empty() {
        Some(page.to_owned())
    } else {
        seen_from(page, path)
    };
    let Some(file) = file.filter(|file| tree.contains(file)) else {
        return Some(
            "no such file; write its path as seen from the folder of this page".to_owned(),
        );
    };
    // Only pages have headings: `#L12` of a source file is left to whoever shows it.
    let there = headings.get(file.as_str())?;
    let heading = heading.filter(|heading| !there.contains(*heading))?;
    let names: Vec<String> = there.iter().map(|name| format!("#{name}")).collect();
    Some(format!(
        "{file} has no heading `#{heading}`; it has {}",
        names.join(", ")
    ))
}

/// The path in the tree of what a page calls `path`; `None` if it leads out of the tree.
fn seen_from(page: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The targets of a page's links, each with the number of its line.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for outside_of_code in line.split('`').step_by(2) {
            let targets = outside_of_code
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split_once(')')?.0.split_whitespace().next());
            found.extend(targets.map(|target| (number, target)));
        }
    }
    found
}

/// The names of a page's headings, without `#`.
fn headings(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        let depth = line.len() - title.len();
        if !(1..=6).contains(&depth) || !title.starts_with(' ') {
            continue;
        }
        let name = heading_name(title);
        let mut unused = name.clone();
        let mut number = 0;
        while !names.insert(unused.clone()) {
            number += 1;
            unused = format!("{name}-{number}");
        }
    }
    names
}

/// What GitHub calls a heading in a link.
fn heading_name(title: &str) -> String {
    title
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            _ => c.is_alphanumeric().then_some(c),
        })
        .collect()
}

/// The lines of a page that are in no block of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        if is_fence {
            in_block = !in_block;
        }
        !in_block && !is_fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: &str = "# Methods\n## What it costs, and `why`\n## Twice\n## Twice\n\
        ```\n# no heading\n```\n## a_b – How to add …\n";

    /// What is said of a page `docs/A.md` with this text.
    fn complaints_of(text: &str) -> Vec<String> {
        let tree = TreePaths::of(&[
            "README.md",
            "docs",
            "docs/A.md",
            "docs/METHODS.md",
            "docs/lab/a.svg",
        ]);
        let pages = [
            ("README.md", "# Us\n".to_owned()),
            ("docs/A.md", text.to_owned()),
            ("docs/METHODS.md", METHODS.to_owned()),
        ];
        complaints(&pages, &tree)
    }

    #[test]
    fn links_that_lead_somewhere_are_good() {
        let text = "# Own heading\n\
            [a](METHODS.md), [`b`](../README.md#us) [c](#own-heading) ![d](lab/a.svg \"title\")\n\
            [e](METHODS.md#what-it-costs-and-why), [f](METHODS.md#twice), [g](METHODS.md#twice-1)\n\
            [h](METHODS.md#a_b--how-to-add-) [i](./lab/../../docs/) [j](https://x.org/y.md#z)\n";
        assert_eq!(complaints_of(text), Vec::<String>::new());
    }

    #[test]
    fn file_that_is_not_there_is_a_complaint() {
        let told = complaints_of("a\n[x](docs/METHODS.md) [y](METHODS.md)\n[z](../../../a.md)");
        assert_eq!(told.len(), 2, "{told:?}");
        let first = "docs/A.md:2: link to `docs/METHODS.md`: no such file";
        assert!(told[0].starts_with(first), "{told:?}");
        assert!(told[1].starts_with("docs/A.md:3: "), "{told:?}");
    }

    #[test]
    fn heading_that_is_not_there_is_a_complaint_with_those_that_are() {
        assert_eq!(
            complaints_of("[x](METHODS.md#costs)"),
            [
                "docs/A.md:1: link to `METHODS.md#costs`: docs/METHODS.md has no heading `#costs`; \
                 it has #a_b--how-to-add-, #methods, #twice, #twice-1, #what-it-costs-and-why"
            ]
        );
        assert_eq!(complaints_of("# A\n[x](#b)").len(), 1);
        assert_eq!(complaints_of("[x](METHODS.md#no-heading)").len(), 1);
    }

    #[test]
    fn page_without_a_line_in_the_contents_is_a_complaint() {
        let pages = [
            ("docs/SUMMARY.md", "# Summary\n\n- [a](A.md)\n".to_owned()),
            ("docs/A.md", String::new()),
            ("docs/B.md", String::new()),
            ("README.md", String::new()),
        ];
        let told = unlisted(&pages);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("docs/B.md is not in"), "{told:?}");
    }

    #[test]
    fn code_has_no_links() {
        assert!(complaints_of("`[x](y.md)`\n```\n[x](y.md)\n```\n").is_empty());
    }
}
