//! Claims and the answers to them, side by side.
//!
//! A claim with several answers holds only if all say so. A claim without an answer is shown with
//! the reason: its experiment failed, was not begun, or did not mention it, which is an error in
//! swtch.

use std::io::stdout;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value as Json, json};
use swtch_core::cost::Origin;
use swtch_output::answer::{self, VerbAnswer};
use swtch_output::csv;
use swtch_output::format::Format;
use swtch_output::message;
use swtch_output::text::page_width;

use super::super::claim::{Answer, Verdict, all_of};
use super::super::command::ClaimsWords;
use super::super::outcome::{OPEN, Outcome, OutcomeFileFormat, write_file};
use super::list::{Article, Claim};
use super::{page, table};

/// An experiment, and how it ended.
#[derive(Debug)]
pub struct Attempt {
    pub experiment: &'static str,
    pub ending: AttemptEnding,
}

/// How the attempt at an experiment ended.
#[derive(Debug)]
pub enum AttemptEnding {
    /// With an outcome, perhaps cut short.
    Made(Box<Outcome>),
    /// With an error, in words.
    Failed(String),
    /// It was told to stop before this one began.
    NotBegun,
}

/// All claims with all answers.
#[derive(Debug)]
pub struct Review {
    /// The articles with their claims.
    pub articles: Vec<Article>,
    /// True if all experiments were chosen; else claims of the others are not shown.
    pub is_whole: bool,
    /// The machine, and when the run was begun.
    pub origin: Origin,
    /// The experiments, in the order in which they were made.
    pub attempts: Vec<Attempt>,
    /// Time that all experiments took together.
    pub took: Duration,
}

/// The state of a claim after the experiments.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimState {
    /// An experiment answered, or several did.
    Answered(Vec<Answer>),
    /// No experiment can answer it, for this reason.
    Untestable(String),
    /// An experiment should have answered it and did not, for this reason.
    NotAnswered(String),
}

/// A claim, the article that makes it, and its state.
#[derive(Clone, Debug)]
pub struct ClaimRow<'a> {
    /// The article that makes the claim.
    pub article: &'a Article,
    pub claim: &'a Claim,
    pub state: ClaimState,
}

impl ClaimState {
    /// The worst verdict of all answers: "does not hold" before "undecided", before "cannot be
    /// tested". `None` without an answer.
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Answered(answers) => {
                Some(all_of(answers.iter().map(|answer| answer.verdict.clone())))
            }
            Self::Untestable(why) => Some(Verdict::CannotBeTested(why.clone())),
            Self::NotAnswered(_) => None,
        }
    }

    /// The verdict in a word or two.
    pub fn word(&self) -> &'static str {
        self.verdict()
            .map_or("not answered", |verdict| verdict.as_str())
    }

    /// The verdict as a sentence.
    pub fn sentence(&self) -> String {
        match self {
            Self::NotAnswered(why) => format!("not answered ({why})"),
            _ => self
                .verdict()
                .map_or_else(|| self.word().to_owned(), |verdict| verdict.to_string()),
        }
    }

    /// Why there is no clear verdict; `None` where there is one.
    fn why(&self) -> Option<String> {
        match self {
            Self::NotAnswered(why) => Some(why.clone()),
            _ => self.verdict()?.why().map(str::to_owned),
        }
    }

    /// The answers; empty where there are none.
    pub fn answers(&self) -> &[Answer] {
        match self {
            Self::Answered(answers) => answers,
            Self::Untestable(_) | Self::NotAnswered(_) => &[],
        }
    }
}

impl Review {
    /// Every claim that was asked for.
    pub fn rows(&self) -> Vec<ClaimRow<'_>> {
        let mut rows = Vec::new();
        for article in &self.articles {
            for claim in &article.claims {
                if let Some(state) = self.state_of(claim) {
                    rows.push(ClaimRow {
                        article,
                        claim,
                        state,
                    });
                }
            }
        }
        rows
    }

    /// The outcomes of the experiments that were made.
    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.attempts
            .iter()
            .filter_map(|attempt| match &attempt.ending {
                AttemptEnding::Made(outcome) => Some(outcome.as_ref()),
                AttemptEnding::Failed(_) | AttemptEnding::NotBegun => None,
            })
    }

    /// The state of a claim; `None` when it was not asked for.
    fn state_of(&self, claim: &Claim) -> Option<ClaimState> {
        let all = self
            .outcomes()
            .flat_map(|outcome| &outcome.findings.answers);
        let answers: Vec<Answer> = all
            .filter(|answer| answer.claim == claim.id)
            .cloned()
            .collect();
        if !answers.is_empty() {
            return Some(ClaimState::Answered(answers));
        }
        match (&claim.untestable, &claim.experiment) {
            (Some(why), _) => self.is_whole.then(|| ClaimState::Untestable(why.clone())),
            (None, Some(name)) => self.why_unanswered(name).map(ClaimState::NotAnswered),
            (None, None) => Some(ClaimState::NotAnswered("no experiment asks".to_owned())),
        }
    }

    /// Why an experiment gave no answer; `None` when it was not chosen.
    fn why_unanswered(&self, name: &str) -> Option<String> {
        let attempt = self.attempts.iter().find(|one| one.experiment == name);
        Some(match attempt.map(|attempt| &attempt.ending) {
            None if self.is_whole => format!("there is no experiment {name}"),
            None => return None,
            Some(AttemptEnding::Failed(why)) => format!("experiment failed: {why}"),
            Some(AttemptEnding::NotBegun) => format!("ended before the experiment {name} began"),
            Some(AttemptEnding::Made(outcome)) if outcome.findings.was_interrupted => {
                format!("the experiment {name} was ended early")
            }
            Some(AttemptEnding::Made(_)) => format!("the experiment {name} says nothing of it"),
        })
    }

    /// Whether it was ended early.
    pub fn was_interrupted(&self) -> bool {
        let mut endings = self.attempts.iter().map(|attempt| &attempt.ending);
        endings.any(|ending| match ending {
            AttemptEnding::NotBegun => true,
            AttemptEnding::Made(outcome) => outcome.findings.was_interrupted,
            AttemptEnding::Failed(_) => false,
        })
    }

    /// How many claims have each verdict, in words; verdicts of no claim are left out.
    pub fn tally(&self) -> Vec<(&'static str, usize)> {
        const WORDS: [&str; 5] = [
            "holds",
            "does not hold here",
            "undecided",
            "cannot be tested here",
            "not answered",
        ];
        let rows = self.rows();
        let count = |word: &str| rows.iter().filter(|row| row.state.word() == word).count();
        let counts = WORDS.map(|word| (word, count(word)));
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// The notes of all experiments, each once; a note of one experiment alone begins with its
    /// name.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<(String, Vec<&str>)> = Vec::new();
        for outcome in self.outcomes() {
            for note in &outcome.findings.notes {
                match notes.iter_mut().find(|(known, _)| known == note) {
                    Some((_, names)) => names.push(&outcome.experiment),
                    None => notes.push((note.clone(), vec![&outcome.experiment])),
                }
            }
        }
        let lines = notes
            .into_iter()
            .map(|(note, names)| match names.as_slice() {
                [name] => format!("{name}: {note}"),
                _ => note,
            });
        lines.chain(self.notes_on_unlisted_answers()).collect()
    }

    /// Notes on answers to claims that are not in the list: an error in swtch, which is not hidden.
    fn notes_on_unlisted_answers(&self) -> Vec<String> {
        let claims: Vec<&str> = self
            .articles
            .iter()
            .flat_map(|article| &article.claims)
            .map(|claim| claim.id.as_str())
            .collect();
        self.outcomes()
            .flat_map(|outcome| &outcome.findings.answers)
            .filter(|answer| !claims.contains(&answer.claim))
            .map(|answer| {
                format!(
                    "an answer is not shown: {} is no claim of the list",
                    answer.claim
                )
            })
            .collect()
    }

    /// Writes it to every place that was asked for, and returns the exit code. Each place is tried
    /// even if another fails.
    ///
    /// # Errors
    /// One of the places cannot be written.
    pub fn write(&self, words: &ClaimsWords) -> Result<u8> {
        let told = answer::write(self, words.format, &mut stdout());
        let file = words.output.as_deref();
        let written = file.map_or(Ok(()), |path| self.write_file(path));
        let file = words.html.as_deref();
        let shown = file.map_or(Ok(()), |path| self.write_page(path));
        told.and(written).and(shown)?;
        Ok(self.exit_code())
    }

    fn write_file(&self, path: &Path) -> Result<()> {
        match OutcomeFileFormat::of(path)? {
            OutcomeFileFormat::Json => write_file(path, &answer::written(self, Format::Json)?),
            OutcomeFileFormat::Csv => write_file(path, &self.to_csv()?),
        }
    }

    fn write_page(&self, path: &Path) -> Result<()> {
        write_file(path, &page::page(self, &swtch_host::facts())?)
    }

    /// 0, or [`OPEN`] with a word on stderr.
    fn exit_code(&self) -> u8 {
        if self.was_interrupted() {
            message!("swtch: ended early (exit code {OPEN}): what was done until then is shown");
            return OPEN;
        }
        let rows = self.rows();
        let open: Vec<&str> = rows
            .iter()
            .filter(|row| matches!(row.state.word(), "undecided" | "not answered"))
            .map(|row| row.claim.id.as_str())
            .collect();
        if open.is_empty() {
            return 0;
        }
        message!(
            "swtch: undecided or not answered: {} (exit code {OPEN})",
            open.join(", ")
        );
        OPEN
    }
}

impl VerbAnswer for Review {
    fn to_table(&self) -> String {
        table::table(self, page_width())
    }

    fn to_json(&self) -> Json {
        let attempts = self.attempts.iter();
        let experiments = attempts.map(|attempt| match &attempt.ending {
            AttemptEnding::Made(outcome) => outcome.to_json(),
            AttemptEnding::Failed(why) => json!({ "experiment": attempt.experiment, "error": why }),
            AttemptEnding::NotBegun => {
                json!({ "experiment": attempt.experiment, "error": "not begun" })
            }
        });
        json!({
            "schema": "swtch.lab.claims/1",
            "host": self.origin,
            "took_s": self.took.as_secs_f64(),
            "was_interrupted": self.was_interrupted(),
            "claims": self.rows().iter().map(ClaimRow::to_json).collect::<Vec<_>>(),
            "notes": self.notes(),
            "experiments": experiments.collect::<Vec<_>>(),
        })
    }

    fn to_csv(&self) -> Result<String> {
        Ok(csv::text_of(|csv| {
            csv.record(&CLAIM_COLUMNS)?;
            for row in self.rows() {
                let fields = row.csv_fields();
                fields.iter().try_for_each(|field| csv.words(field))?;
                csv.end_record()?;
            }
            Ok(())
        }))
    }
}

/// Columns of the claims as CSV, one row each.
const CLAIM_COLUMNS: [&str; 10] = [
    "claim",
    "source",
    "says",
    "theirs",
    "doubt",
    "holds_when",
    "experiment",
    "ours",
    "verdict",
    "why",
];

impl ClaimRow<'_> {
    fn to_json(&self) -> Json {
        let Claim {
            id,
            says,
            figures,
            doubt,
            experiment,
            ..
        } = self.claim;
        json!({
            "claim": id,
            "source": self.article.source(),
            "machine": self.article.machine,
            "says": says,
            "theirs": figures,
            "doubt": doubt,
            "holds_when": self.claim.holds_when(),
            "experiment": experiment,
            "verdict": self.state.word(),
            "why": self.state.why(),
            "answers": self.state.answers(),
        })
    }

    fn csv_fields(&self) -> [String; 10] {
        let answers = self.state.answers().iter();
        let ours: Vec<&str> = answers.map(|answer| answer.ours.as_str()).collect();
        let known = |field: &Option<String>| field.clone().unwrap_or_default();
        let claim = self.claim;
        [
            claim.id.clone(),
            self.article.source(),
            claim.says.clone(),
            known(&claim.figures),
            known(&claim.doubt),
            known(&claim.holds_when()),
            known(&claim.experiment),
            ours.join("; "),
            self.state.word().to_owned(),
            self.state.why().unwrap_or_default(),
        ]
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::super::made_up::{origin, outcome};
    use super::super::list::ARTICLES;
    use super::*;

    /// `oversubscribe` was made, `mutex` failed, `turnaround` was not begun, `launch` says nothing.
    pub fn review() -> Review {
        let attempt = |experiment, ending| Attempt { experiment, ending };
        let mut silent = outcome("launch");
        silent.findings.answers.clear();
        Review {
            articles: ARTICLES.clone(),
            is_whole: true,
            origin: origin(),
            attempts: vec![
                attempt(
                    "oversubscribe",
                    AttemptEnding::Made(Box::new(outcome("oversubscribe"))),
                ),
                attempt(
                    "mutex",
                    AttemptEnding::Failed("no CPU <is> free".to_owned()),
                ),
                attempt("launch", AttemptEnding::Made(Box::new(silent))),
                attempt("turnaround", AttemptEnding::NotBegun),
            ],
            took: Duration::from_secs(161),
        }
    }

    fn state(review: &Review, id: &str) -> String {
        let rows = review.rows();
        let row = rows.iter().find(|row| row.claim.id == id).unwrap();
        row.state.sentence()
    }

    #[test]
    fn every_claim_has_a_row_whatever_came_of_its_experiment() {
        let review = review();
        assert_eq!(review.rows().len(), 35);
        let state = |id| state(&review, id);
        assert_eq!(state("A1"), "holds");
        assert_eq!(state("A2"), "undecided: the interval holds 1");
        assert_eq!(
            state("A3"),
            "not answered (the experiment oversubscribe says nothing of it)"
        );
        assert_eq!(
            state("C1"),
            "not answered (experiment failed: no CPU <is> free)"
        );
        assert_eq!(
            state("D1"),
            "not answered (ended before the experiment turnaround began)"
        );
        assert!(state("E6").starts_with("cannot be tested here because this is one machine"));
    }

    #[test]
    fn a_claim_holds_only_if_all_answers_say_so() {
        let answer = |verdict: &Verdict| Answer {
            claim: "A1",
            ours: String::new(),
            verdict: verdict.clone(),
        };
        let all = |verdicts: &[Verdict]| {
            let answers = verdicts.iter().map(answer).collect();
            ClaimState::Answered(answers).word()
        };
        let open = Verdict::Undecided("wide".to_owned());
        let cannot = Verdict::CannotBeTested("one CPU".to_owned());
        assert_eq!(all(&[Verdict::Holds, Verdict::Holds]), "holds");
        assert_eq!(
            all(&[Verdict::Holds, cannot.clone()]),
            "cannot be tested here"
        );
        assert_eq!(all(&[open.clone(), cannot]), "undecided");
        assert_eq!(all(&[Verdict::DoesNotHold, open]), "does not hold here");
    }

    #[test]
    fn what_was_not_asked_for_is_not_shown() {
        let mut review = review();
        review.is_whole = false;
        let ids: Vec<String> = review
            .rows()
            .iter()
            .map(|row| row.claim.id.clone())
            .collect();
        assert!(ids.contains(&"A1".to_owned()) && ids.contains(&"C7".to_owned()));
        assert!(!ids.contains(&"A7".to_owned()) && !ids.contains(&"E2".to_owned()));
    }

    #[test]
    fn json_and_csv_hold_every_claim() {
        let review = review();
        let json = review.to_json();
        assert_eq!(json["schema"], "swtch.lab.claims/1");
        assert_eq!(json["claims"].as_array().unwrap().len(), 35);
        assert_eq!(json["claims"][0]["verdict"], "holds");
        assert_eq!(json["claims"][0]["answers"][0]["verdict"], "holds");
        assert_eq!(json["experiments"][1]["error"], "no CPU <is> free");
        assert_eq!(json["was_interrupted"], true);
        let csv = review.to_csv().unwrap();
        assert_eq!(csv.matches("\r\n").count(), 36);
        assert!(csv.contains("A1,"));
    }

    #[test]
    fn an_answer_to_no_claim_is_not_hidden() {
        let mut review = review();
        let mut strange = outcome("quantum");
        strange.findings.answers[0].claim = "Z9";
        review.attempts.push(Attempt {
            experiment: "quantum",
            ending: AttemptEnding::Made(Box::new(strange)),
        });
        let notes = review.notes();
        assert!(notes.contains(&"an answer is not shown: Z9 is no claim of the list".to_owned()));
    }

    /// Each experiment repeats the notes on the machine; they are shown once.
    #[test]
    fn notes_of_several_experiments_are_told_once() {
        let notes = review().notes();
        assert_eq!(notes, ["another program had 3 % of the CPUs"]);
    }

    #[test]
    fn what_is_open_or_ended_early_has_its_own_exit_code() {
        let mut review = review();
        assert_eq!(review.exit_code(), OPEN, "ended early");
        review.attempts.truncate(1);
        review.is_whole = false;
        assert_eq!(review.exit_code(), OPEN, "A2 is undecided");
        for article in &mut review.articles {
            article.claims.retain(|claim| claim.id == "A1");
        }
        assert_eq!(review.exit_code(), 0);
    }
}
