//! Which price list a bill takes: the one that is named, or the saved one of this machine.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use swtch_core::cost::PriceList;
use swtch_store::Trace;

use crate::cost::saved;
use crate::{report, text};

/// Reads the list at `path`; without a path, the saved one.
///
/// # Errors
///
/// There is none, with the remedy; or it cannot be read.
pub fn chosen(path: Option<&Path>) -> Result<PriceList> {
    match path {
        Some(path) => saved::load(path),
        None => saved_at(&saved::place().context("no prices are named (--prices FILE.json)")?),
    }
}

/// The saved list of this machine; `None` where none was saved.
///
/// # Errors
///
/// There is one, and it cannot be read.
pub fn saved() -> Result<Option<PriceList>> {
    match saved::place() {
        Ok(place) if place.exists() => saved_at(&place).map(Some),
        _ => Ok(None),
    }
}

/// Says where the prices may not hold for the trace.
pub fn warn(trace: &Trace, list: &PriceList) {
    for warning in report::warnings(trace, list) {
        eprintln!("swtch: {}", text::escaped(&warning));
    }
}

fn saved_at(place: &Path) -> Result<PriceList> {
    if !place.exists() {
        bail!(
            "a bill needs prices, and there are none in {}: `swtch cost --save` measures those of \
             this machine, --prices FILE.json takes others",
            place.display()
        );
    }
    saved::load(place).context(
        "the saved prices cannot be used: `swtch cost --save` measures them anew, --prices \
         FILE.json takes others",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::prices;

    #[test]
    fn a_list_is_read_as_it_was_saved() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prices.json");
        saved::save(&prices(), &path).unwrap();
        assert_eq!(chosen(Some(&path)).unwrap(), prices());
        assert_eq!(saved_at(&path).unwrap(), prices());
    }

    #[test]
    fn a_missing_list_names_the_remedy() {
        let refusal = saved_at(Path::new("/no/such/prices.json")).unwrap_err();
        let refusal = refusal.to_string();
        assert!(refusal.contains("swtch cost --save"), "{refusal}");
        let refusal = chosen(Some(Path::new("/no/such/prices.json"))).unwrap_err();
        assert!(refusal.to_string().contains("/no/such"), "{refusal}");
    }

    #[test]
    fn a_damaged_list_names_its_place_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prices.json");
        for text in [
            "",
            "{\"schema\":\"swtch.prices/1\",\"version\":1}",
            "\u{0}\u{1}",
        ] {
            std::fs::write(&path, text).unwrap();
            let refusal = format!("{:#}", saved_at(&path).unwrap_err());
            assert!(refusal.contains("measures them anew"), "{refusal}");
            assert!(refusal.contains("prices.json"), "{refusal}");
        }
    }
}
