//! The parts of the page that `swtch diff -o` writes: the words and numbers of the other
//! formats, and what only a page can show.

use std::path::PathBuf;

use anyhow::Result;

use super::DiffOutcome;
use super::answer::DiffAnswer;
use super::flame::{FrameDiff, without_stacks};
use super::judge::{Per, typical};
use super::measure::MeasuredRun;
use crate::report::Sheet;

/// The parts of a page that shows a comparison.
#[derive(Debug)]
pub struct DiffPageParts {
    /// Labels and words that tell which side is which, on which machine, and what of the traces counts.
    pub head: Vec<(&'static str, String)>,
    /// Words on whether the sides may be compared.
    pub comparable: String,
    /// Sentences about what could explain a change by itself.
    pub differences: Vec<String>,
    /// One sentence on what changed.
    pub verdict: String,
    /// The finding of `--fail-over`, if that was given.
    pub gate: Option<String>,
    /// The figures of the table.
    pub figures: Sheet,
    /// Paragraphs on what a reader must know about the figures.
    pub notes: Vec<String>,
    /// The outcome: [`DiffOutcome::Regressed`] if `--fail-over` found a regression.
    pub outcome: DiffOutcome,
    /// The number of runs of each side.
    pub runs: [usize; 2],
    /// The traces of A and of B whose number of switches is nearest to the median of their side.
    pub typical: [PathBuf; 2],
    /// The unit by which amounts are divided.
    pub per: Per,
    /// The flame graph of blocked time.
    pub flames: DiffFlames,
}

/// The flame graph of a comparison.
#[derive(Debug)]
pub enum DiffFlames {
    /// There is none, for the reason that this sentence gives.
    Missing(String),
    /// The frames of both sides.
    Frames(FrameDiff),
}

impl DiffAnswer<'_> {
    /// The parts of the page. Reads the traces again for their stacks, if they have some.
    ///
    /// # Errors
    /// When a trace cannot be read.
    pub fn page_parts(&self) -> Result<DiffPageParts> {
        let request = self.request;
        let mut head = self.sides();
        head.extend(self.unit_words().map(|words| ("per", words)));
        head.extend(request.filter.to_words().map(|words| ("only", words)));
        let flames = match without_stacks(&self.a, &self.b) {
            Some(why) => DiffFlames::Missing(why),
            None => {
                let frames = FrameDiff::read(&self.a, &self.b, &request.filter, self.per)?;
                DiffFlames::Frames(frames)
            }
        };
        Ok(DiffPageParts {
            head,
            comparable: self.comparability(),
            differences: self.difference_lines().collect(),
            verdict: self.verdict(),
            gate: self.gate(),
            // A page has room for the names of stacks, which a terminal has not.
            figures: self.people_sheet(&self.shown_rows(), usize::MAX),
            notes: self.notes(),
            outcome: self.outcome(),
            runs: [self.a.len(), self.b.len()],
            typical: [&self.a, &self.b].map(|runs| self.path_of_typical(runs)),
            per: self.per,
            flames,
        })
    }

    fn path_of_typical(&self, runs: &[MeasuredRun]) -> PathBuf {
        let run = typical(runs, self.per);
        run.expect("the command line takes no side without a trace")
            .path
            .clone()
    }
}
