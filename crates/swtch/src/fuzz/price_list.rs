//! Price lists: read, compared, used for bills, and shown.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use swtch_fixtures::{prices as some_prices, prices_with_curve};
use swtch_output::format::Format;
use swtch_report::price_file;
use swtch_report::prices;
use swtch_report::report::{self, BillBy, By, Extent, Filter, ReportRequest};
use swtch_store::{RecordingState, Trace};

use super::{FuzzSubject, mutate, trace};

/// Words of a price list, for the mutator.
const WORDS: [&str; 16] = [
    "null",
    "true",
    "[]",
    "{}",
    "\"yield\"",
    "pipe",
    "futex-shared",
    "threads",
    "processes",
    "switch",
    "point",
    "low",
    "high",
    "prices",
    "curves",
    "version",
];

/// Price lists, and a trace to make bills of.
#[derive(Debug)]
pub struct PriceLists {
    corpus: Vec<Vec<u8>>,
    whole: PathBuf,
    file: PathBuf,
    trace: Trace,
}

impl PriceLists {
    /// The lists and the trace are written to this directory.
    pub fn new(directory: &Path) -> Self {
        let (whole, file) = (directory.join("whole.json"), directory.join("prices.json"));
        price_file::write(&some_prices(), &whole).expect("a scratch file");
        let lists = [some_prices(), prices_with_curve()];
        let corpus = lists.map(|list| format!("{:#}\n", price_file::to_json(&list)).into_bytes());
        let path = directory.join("t.swtch");
        // A worker that takes over finds the trace of its predecessor.
        drop(fs::remove_dir_all(&path));
        trace::write_trace(&path, RecordingState::Finished, 40, false);
        Self {
            corpus: corpus.to_vec(),
            whole,
            file,
            trace: Trace::open(&path).expect("a trace that was just written"),
        }
    }
}

impl FuzzSubject for PriceLists {
    fn draw(&mut self, random: &mut Rng) -> Vec<u8> {
        let mut text = self.corpus[random.usize(..self.corpus.len())].clone();
        mutate::text(random, &mut text, &WORDS);
        text
    }

    fn run(&mut self, input: &[u8]) {
        fs::write(&self.file, input).expect("a scratch file");
        let Ok(list) = prices::chosen(Some(&self.file)) else {
            return;
        };
        let mut choice = Rng::with_seed(u64::from(crc32fast::hash(input)));
        let format = Format::ALL[choice.usize(..Format::ALL.len())];
        let request = ReportRequest {
            by: By::Reason,
            format,
            filter: Filter::default(),
            top: None,
        };
        let out = &mut io::sink();
        prices::warn(&self.trace, &list);
        for by in BillBy::ALL {
            let _ = report::bill(&self.trace, by, &request, &list, out);
        }
        let _ = report::explain(&self.trace, &request, Some(&list), Extent::Full, out);
        let _ = swtch_cost::run_compare(&self.whole, &self.file, format);
        let _ = swtch_cost::run_compare(&self.file, &self.whole, format);
    }
}
