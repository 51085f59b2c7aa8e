//! Chooses the price list of a bill: the one that is named, or the saved one of this machine.
//!
//! [`chosen`] reads the list once; [`PriceListCache`] is for repeated questions.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, bail};
use swtch_core::cost::{Billing, PriceList};
use swtch_output::message;
use swtch_output::text;
use swtch_store::Trace;

use crate::price_file;
use crate::report;
use crate::stamp::Stamp;

/// Reads the list at `path`; without a path, the saved one.
///
/// # Errors
///
/// When there is none (the error says how to make one), or it cannot be read.
pub fn chosen(path: Option<&Path>) -> Result<PriceList> {
    match path {
        Some(path) => price_file::load(path),
        None => saved_at(&place_of_saved()?),
    }
}

fn place_of_saved() -> Result<PathBuf> {
    price_file::place().context("no prices are named (--prices FILE.json)")
}

/// Reads the list at `path`; without a path, the saved one if there is one.
///
/// # Errors
///
/// When the list cannot be read.
pub fn chosen_or_saved(path: Option<&Path>) -> Result<Option<PriceList>> {
    match path {
        Some(path) => price_file::load(path).map(Some),
        None => saved(),
    }
}

/// The saved list of this machine; `None` where none was saved.
///
/// # Errors
///
/// When there is one that cannot be read.
pub fn saved() -> Result<Option<PriceList>> {
    match price_file::place() {
        Ok(place) if place.exists() => saved_at(&place).map(Some),
        _ => Ok(None),
    }
}

/// A price list, and which of its prices apply to which switch.
#[derive(Debug)]
pub struct ReadyPrices {
    /// The whole list.
    pub list: PriceList,
    /// Finds the prices that apply to a switch.
    pub billing: Billing,
}

/// The [`chosen`] list for questions that come one by one. It is read for the first question, and
/// again when its file has changed, because `swtch cost --save` may be run meanwhile.
#[derive(Debug)]
pub struct PriceListCache {
    path: Option<PathBuf>,
    read: Mutex<Option<ReadList>>,
}

/// The result of reading the list.
#[derive(Debug)]
struct ReadList {
    of: Option<Stamp>,
    /// An error is kept in words, because it is given again to each later question.
    outcome: Result<Arc<ReadyPrices>, String>,
}

impl PriceListCache {
    /// The list at `path`; without a path, the saved one.
    pub const fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            read: Mutex::new(None),
        }
    }

    /// The list as it is now.
    ///
    /// # Errors
    ///
    /// As [`chosen`], in words.
    pub fn ready(&self) -> Result<Arc<ReadyPrices>, String> {
        let place = self.path.clone().or_else(|| place_of_saved().ok());
        // Taken before the list is read: a write meanwhile then makes it be read again.
        let now = place.as_deref().and_then(Stamp::of);
        let mut read = self.read.lock().expect("nobody panics with it");
        if let Some(reading) = read.as_ref().filter(|reading| reading.of == now) {
            return reading.outcome.clone();
        }
        let outcome = chosen(self.path.as_deref());
        let outcome = outcome.map_err(|error| format!("{error:#}")).map(|list| {
            let billing = Billing::new(&list);
            Arc::new(ReadyPrices { list, billing })
        });
        *read = Some(ReadList {
            of: now,
            outcome: outcome.clone(),
        });
        outcome
    }
}

/// Warns on stderr where the prices may not hold for the trace.
pub fn warn(trace: &Trace, list: &PriceList) {
    for warning in report::warnings(trace, list) {
        message!("swtch: {}", text::escaped(&warning));
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
    price_file::load(place).context(
        "the saved prices cannot be used: `swtch cost --save` measures them anew, --prices \
         FILE.json takes others",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use crate::report::drawn::prices;

    #[test]
    fn a_list_is_read_as_it_was_saved() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prices.json");
        price_file::save(&prices(), &path).unwrap();
        assert_eq!(chosen(Some(&path)).unwrap(), prices());
        assert_eq!(saved_at(&path).unwrap(), prices());
    }

    /// A page asks for a price with every row that is looked at.
    #[test]
    fn a_kept_list_is_read_again_only_when_its_file_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prices.json");
        let kept = PriceListCache::new(Some(path.clone()));
        assert!(kept.ready().unwrap_err().contains("prices.json"));
        price_file::save(&prices(), &path).unwrap();
        let first = kept.ready().unwrap();
        assert_eq!(first.list, prices());
        assert!(Arc::ptr_eq(&first, &kept.ready().unwrap()));
        let mut other = prices();
        other.origin.hostname = "another machine".to_owned();
        price_file::save(&other, &path).unwrap();
        assert_eq!(kept.ready().unwrap().list, other);
        fs::write(&path, "no list").unwrap();
        assert!(kept.ready().is_err());
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
            fs::write(&path, text).unwrap();
            let refusal = format!("{:#}", saved_at(&path).unwrap_err());
            assert!(refusal.contains("measures them anew"), "{refusal}");
            assert!(refusal.contains("prices.json"), "{refusal}");
        }
    }
}
