//! The outcome of an experiment, and how it is written: text, JSON, CSV, figures.
//!
//! ```text
//!                               ┌─▶ stdout: table | json | csv
//! Findings + host, parameters ──┼─▶ -o FILE.json | FILE.csv (further tables beside it)
//!          (Outcome)            └─▶ --plot FILE.svg | FILE.png (further figures beside it)
//! ```
//!
//! JSON is one object, `swtch.lab.NAME/1`; keys of rows are the columns with their units. CSV on
//! stdout holds the first table alone; JSON holds the rest too.

use std::ffi::OsStr;
use std::io::stdout;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Map, Value as Json, json};
use swtch_core::cost::Origin;
use swtch_output::answer::{self, VerbAnswer};
use swtch_output::destination::{beside, check_directory, write_whole};
use swtch_output::format::Format;
use swtch_output::host::HostWords;
use swtch_output::message;
use swtch_output::text::{escaped, hung, page_width, wrapped};
use swtch_plot::write_pictures;

use super::claim::Verdict;
use super::command::ExperimentWords;
use super::findings::{Findings, FindingsTable};
use super::parameters::ParameterValue;

/// Exit code when the run was ended early, or a claim is undecided.
pub const OPEN: u8 = 1;

/// The findings of an experiment, with host and parameters.
#[derive(Debug)]
pub struct Outcome {
    pub experiment: String,
    /// What it shows, in a line.
    pub title: String,
    /// Its question, and how it finds the answer.
    pub about: String,
    /// The machine, and when it was measured.
    pub origin: Origin,
    /// The parameters, with the values that were used.
    pub parameters: Vec<(String, ParameterValue)>,
    pub findings: Findings,
}

/// Refuses output files that cannot be written, before minutes are spent on measuring.
///
/// # Errors
/// A name has an unknown ending, or its directory does not exist.
pub fn check_files(words: &ExperimentWords) -> Result<()> {
    if let Some(path) = &words.plot {
        swtch_plot::check_path(path)?;
        check_directory(path)?;
    }
    if let Some(path) = &words.output {
        OutcomeFileFormat::of(path)?;
        check_directory(path)?;
    }
    Ok(())
}

impl Outcome {
    /// Writes it to every place that was asked for, and returns the exit code. Each place is tried
    /// even if another fails: one full disk must not lose what took minutes.
    ///
    /// # Errors
    /// One of the places cannot be written.
    pub fn write(&self, words: &ExperimentWords) -> Result<u8> {
        let told = answer::write(self, words.format, &mut stdout());
        let file = words.output.as_deref();
        let written = file.map_or(Ok(()), |path| self.write_file(path));
        let file = words.plot.as_deref();
        let drawn = file.map_or(Ok(()), |path| self.draw(path));
        told.and(written).and(drawn)?;
        Ok(self.exit_code())
    }

    /// 0, or [`OPEN`] with a word on stderr.
    fn exit_code(&self) -> u8 {
        let findings = &self.findings;
        if findings.was_interrupted {
            message!("swtch: ended early (exit code {OPEN}): what was done until then is shown");
            return OPEN;
        }
        let answers = findings.answers.iter();
        let open: Vec<&str> = answers
            .filter(|answer| matches!(answer.verdict, Verdict::Undecided(_)))
            .map(|answer| answer.claim)
            .collect();
        if open.is_empty() {
            return 0;
        }
        message!(
            "swtch: undecided: {} (exit code {OPEN}): measure again on a quieter machine, or for longer",
            open.join(", ")
        );
        OPEN
    }

    /// Everything but the figures, as text for people.
    pub fn to_page(&self, width: usize) -> String {
        let mut lines = vec![host_line(&self.origin)];
        lines.extend(hung(
            "lab    ",
            &format!("{}: {}", self.experiment, self.title),
            width,
        ));
        lines.extend(hung("       ", &self.parameter_words(), width));
        lines.push(String::new());
        lines.extend(wrapped(&first_paragraph(&self.about), width));
        let mut page = lines.join("\n") + "\n";
        for table in &self.findings.tables {
            page.push_str(&format!("\n{}\n", escaped(&table.title)));
            page.push_str(&table.sheet.to_table(usize::MAX));
        }
        page.push_str(&self.closing_words(width));
        page
    }

    /// Sentences, answers and notes, wrapped to `width` columns.
    fn closing_words(&self, width: usize) -> String {
        let findings = &self.findings;
        let mut lines: Vec<String> = Vec::new();
        if !findings.sentences.is_empty() {
            lines.extend([String::new(), "what it showed".to_owned()]);
        }
        for sentence in &findings.sentences {
            lines.extend(hung("- ", sentence, width));
        }
        if !findings.answers.is_empty() {
            lines.extend([String::new(), "what it says to the claims".to_owned()]);
        }
        for answer in &findings.answers {
            let label = format!("{}  ", answer.claim);
            let words = format!("{}: {}", answer.verdict, answer.ours);
            lines.extend(hung(&label, &words, width));
        }
        if !findings.notes.is_empty() || findings.was_interrupted {
            lines.push(String::new());
        }
        if findings.was_interrupted {
            lines.push("note: it was ended early: what is missing was not measured".to_owned());
        }
        for note in &findings.notes {
            lines.extend(hung("note: ", note, width));
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The parameters as they would be typed.
    pub fn parameter_words(&self) -> String {
        let words = self.parameters.iter();
        let words: Vec<String> = words
            .map(|(name, value)| format!("--{name} {value}"))
            .collect();
        words.join(" ")
    }

    fn write_file(&self, path: &Path) -> Result<()> {
        match OutcomeFileFormat::of(path)? {
            OutcomeFileFormat::Json => write_file(path, &answer::written(self, Format::Json)?),
            OutcomeFileFormat::Csv => {
                let tables = &self.findings.tables;
                if tables.is_empty() {
                    bail!("{} is not written: there is no table", path.display());
                }
                for (number, table) in tables.iter().enumerate() {
                    let file = match number {
                        0 => path.to_owned(),
                        _ => beside(path, table.sheet.name),
                    };
                    write_file(&file, &table.sheet.to_csv())?;
                }
                Ok(())
            }
        }
    }

    fn draw(&self, path: &Path) -> Result<()> {
        if self.findings.pictures.is_empty() {
            message!(
                "swtch: there is no figure of this: {} is not written",
                path.display()
            );
        }
        write_pictures(&self.findings.pictures, path)
    }
}

impl VerbAnswer for Outcome {
    fn to_table(&self) -> String {
        self.to_page(page_width())
    }

    fn to_json(&self) -> Json {
        let findings = &self.findings;
        let tables: Map<String, Json> = findings
            .tables
            .iter()
            .map(|table| (table.sheet.name.to_owned(), rows_of(table)))
            .collect();
        let parameters: Map<String, Json> = self
            .parameters
            .iter()
            .map(|(name, value)| (name.clone(), parameter_json(value)))
            .collect();
        json!({
            "schema": format!("swtch.lab.{}/1", self.experiment),
            "host": self.origin,
            "experiment": self.experiment,
            "title": self.title,
            "parameters": parameters,
            "tables": tables,
            "sentences": findings.sentences,
            "answers": findings.answers,
            "notes": findings.notes,
            "was_interrupted": findings.was_interrupted,
        })
    }

    fn to_csv(&self) -> Result<String> {
        match self.findings.tables.first() {
            Some(table) => Ok(table.sheet.to_csv()),
            None => bail!("{} brought no table", self.experiment),
        }
    }
}

/// The form of an output file, chosen by its ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeFileFormat {
    /// `.json`: everything but the figures.
    Json,
    /// `.csv`: the tables, one per file.
    Csv,
}

impl OutcomeFileFormat {
    /// The form that the ending of a name stands for.
    ///
    /// # Errors
    /// The name has another ending.
    pub fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(OsStr::to_str) {
            Some("json") => Ok(Self::Json),
            Some("csv") => Ok(Self::Csv),
            _ => bail!(
                "{}: the ending says the form: .json (all of it) or .csv (the tables)",
                path.display()
            ),
        }
    }
}

/// Writes a text to a file.
///
/// # Errors
/// It cannot be written.
pub fn write_file(path: &Path, text: &str) -> Result<()> {
    write_whole(path, text.as_bytes())
}

/// The first line of every answer: which machine.
pub fn host_line(origin: &Origin) -> String {
    format!("host   {}", machine_words(origin))
}

/// Which machine, and when it was measured.
pub fn machine_words(origin: &Origin) -> String {
    let host = HostWords::of_origin(origin).to_line();
    escaped(&format!("{host} · {}", origin.measured_at)).into_owned()
}

/// The text before the first empty line, joined into one line.
pub fn first_paragraph(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or_default();
    first.replace('\n', " ")
}

fn rows_of(table: &FindingsTable) -> Json {
    Json::from(table.sheet.to_json_rows())
}

/// A parameter as JSON. A length of time and a size are strings with their unit, as typed.
fn parameter_json(value: &ParameterValue) -> Json {
    match value {
        ParameterValue::Count(number) => Json::from(*number),
        ParameterValue::Flag(flag) => Json::from(*flag),
        ParameterValue::Time(_) | ParameterValue::Size(_) | ParameterValue::Word(_) => {
            Json::from(value.to_string())
        }
        ParameterValue::List(values) => values.iter().map(parameter_json).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::made_up::{outcome, words};
    use super::*;

    #[test]
    fn a_table_says_where_what_and_how_sure() {
        let page = outcome("oversubscribe").to_page(72);
        let expected = "\
host   bench · Linux 6.18.5-generic x86_64 · a CPU · 4 CPUs · 2026-03-02T10:11:12Z
lab    oversubscribe: Threads on too few CPUs
       --work 1s --members 1,2,4

What happens when there are more threads than CPUs?

Completion times
thread     took
───────────────
worker-1  1.00s

what it showed
- With one thread more than CPUs, two take 2.00 times as long (1.98 to
  2.02) as the reference.

what it says to the claims
A1  holds: 1.00 × the reference (0.99 to 1.01)
A2  undecided: the interval holds 1: 2.00 × (0.90 to 2.10)

note: another program had 3 % of the CPUs
";
        let expected = expected.replace("1.00s", "1.00 s");
        let page: Vec<&str> = page.lines().map(str::trim_end).collect();
        let wanted: Vec<String> = expected
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        assert_eq!(page.len(), wanted.len(), "{}", page.join("\n"));
        for (line, wanted) in page.iter().zip(&wanted) {
            let is_of_table = line.starts_with('─') || line.starts_with("thread ");
            assert!(is_of_table || line == wanted, "{line}\n{wanted}");
        }
    }

    #[test]
    fn json_is_one_object_with_everything_but_figures() {
        let json = outcome("oversubscribe").to_json();
        assert_eq!(json["schema"], "swtch.lab.oversubscribe/1");
        assert_eq!(json["host"]["hostname"], "bench");
        assert_eq!(
            json["parameters"],
            json!({ "work": "1s", "members": [1, 2, 4] })
        );
        assert_eq!(json["tables"]["threads"][0]["took_ns"], 1_000_000_000);
        assert_eq!(json["answers"][0]["verdict"], "holds");
        assert_eq!(json["answers"][1]["why"], "the interval holds 1");
        assert_eq!(json["was_interrupted"], false);
    }

    #[test]
    fn csv_is_the_first_table() {
        let outcome = outcome("oversubscribe");
        let csv = outcome.to_csv().unwrap();
        assert_eq!(csv, "thread,took_ns\r\nworker-1,1000000000\r\n");
    }

    /// Names that others chose must not reach the terminal unescaped, in any form.
    #[test]
    fn hostile_text_is_escaped_everywhere() {
        let mut outcome = outcome("oversubscribe");
        let hostile = "a\u{1b}[2Jb\u{202e}";
        outcome.title = hostile.to_owned();
        outcome.findings.sentences.push(hostile.to_owned());
        outcome.findings.notes.push(hostile.to_owned());
        outcome.findings.answers[0].ours = hostile.to_owned();
        outcome.findings.tables[0].title = hostile.to_owned();
        for format in [Format::Table, Format::Json] {
            let text = answer::written(&outcome, format).unwrap();
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
        }
    }

    #[test]
    fn what_is_interrupted_or_open_has_its_own_exit_code() {
        let mut outcome = outcome("oversubscribe");
        assert_eq!(outcome.exit_code(), OPEN, "one answer is undecided");
        outcome.findings.answers[1].verdict = Verdict::DoesNotHold;
        assert_eq!(outcome.exit_code(), 0);
        outcome.findings.was_interrupted = true;
        assert_eq!(outcome.exit_code(), OPEN);
        assert!(outcome.to_page(80).contains("note: it was ended early"));
    }

    #[test]
    fn files_that_could_not_be_written_are_refused_before() {
        let refused = |output: Option<&str>, plot: Option<&str>| {
            let mut words = words();
            words.output = output.map(PathBuf::from);
            words.plot = plot.map(PathBuf::from);
            check_files(&words).unwrap_err().to_string()
        };
        assert!(refused(Some("a.txt"), None).contains(".json (all of it) or .csv"));
        assert!(refused(Some("/no/such/a.json"), None).contains("no such directory"));
        assert!(refused(None, Some("a.pdf")).contains("end it in .svg or .png"));
        assert!(refused(None, Some("/no/such/a.svg")).contains("no such directory"));
    }

    /// A full disk for one file must not lose the others.
    #[test]
    fn each_file_has_its_try() {
        let dir = tempfile::tempdir().unwrap();
        let mut words = words();
        words.output = Some(dir.path().join("gone/a.json"));
        words.plot = Some(dir.path().join("a.svg"));
        let outcome = outcome("oversubscribe");
        assert!(outcome.write(&words).is_err());
        assert!(dir.path().join("a-oversubscribe-time.svg").exists());
        assert!(dir.path().join("a-oversubscribe-lanes.svg").exists());
    }

    #[test]
    fn tables_after_the_first_are_written_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut outcome = outcome("oversubscribe");
        let further = FindingsTable {
            title: "Switches".to_owned(),
            sheet: swtch_report::report::Sheet::new("reasons", &["reason"]),
        };
        outcome.findings.tables.push(further);
        outcome.write_file(&dir.path().join("a.csv")).unwrap();
        assert!(dir.path().join("a.csv").exists());
        assert!(dir.path().join("a-reasons.csv").exists());
    }
}
