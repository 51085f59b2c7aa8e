//! What an experiment brought, before it has a format.

use super::claim::Answer;
use crate::plot::Picture;
use crate::report::Sheet;

/// What came of an experiment.
#[derive(Debug, Default)]
pub struct Findings {
    /// Its tables, the main one first. Each has a title and a name of its own.
    pub tables: Vec<Table>,
    /// Its figures, the main one first.
    pub pictures: Vec<Picture>,
    /// What it showed, a sentence each, with numbers.
    pub sentences: Vec<String>,
    /// What it says to claims.
    pub answers: Vec<Answer>,
    /// What a reader must know to trust the numbers right: what disturbed it, what could not be had.
    pub notes: Vec<String>,
    /// Whether it was told to stop before it was done.
    pub was_interrupted: bool,
}

/// A table with what it shows.
#[derive(Debug)]
pub struct Table {
    /// A line above it.
    pub title: String,
    /// Its rows. The sheet's name is the key in JSON and part of the file's name.
    pub sheet: Sheet,
}
