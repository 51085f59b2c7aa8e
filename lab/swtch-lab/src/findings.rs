//! The findings of an experiment, before they are formatted.

use swtch_plot::Picture;
use swtch_report::report::Sheet;

use super::claim::Answer;

/// The findings of one experiment.
#[derive(Debug, Default)]
pub struct Findings {
    /// Its tables, the main one first. Each has a title and a name of its own.
    pub tables: Vec<FindingsTable>,
    /// Its figures, the main one first.
    pub pictures: Vec<Picture>,
    /// Conclusions for the reader, one sentence each, with numbers.
    pub sentences: Vec<String>,
    /// Answers to the claims that the experiment tests.
    pub answers: Vec<Answer>,
    /// What a reader needs to judge the numbers: disturbances, and what could not be measured.
    pub notes: Vec<String>,
    /// True if it was told to stop before it was done.
    pub was_interrupted: bool,
}

/// A table of results with its title.
#[derive(Debug)]
pub struct FindingsTable {
    /// Heading, printed on the line above the table.
    pub title: String,
    /// Its rows. The sheet's name is the key in JSON and part of the file's name.
    pub sheet: Sheet,
}

impl FindingsTable {
    /// A table with its heading.
    pub fn new(title: impl Into<String>, sheet: Sheet) -> Self {
        Self {
            title: title.into(),
            sheet,
        }
    }
}
