//! What an experiment measured, by name, and the answers to claims that are made of it.
//!
//! ```text
//! experiment:   number("shared", 2.00 (1.99 … 2.01))
//!                                   │
//! claims.toml:  ours    = "those that share take {shared} times"    └▶ what was found
//!               borders = { shared = [1.8, 2.2] }                   └▶ the verdict
//! ```
//!
//! What it does *not* do: know any border. Each stands once, in the file of claims.

use std::collections::BTreeMap;

use crate::claim::{Answer, Verdict, all_of};
use crate::claims::list::{self, Claim, filled};
use crate::measured::{LabNumber, STOPPED, cannot_be_tested};
use swtch_core::stats::ConfidenceInterval;

/// The numbers and words of an experiment.
pub struct Quantities {
    /// One of each name, or a list of them, each with its label.
    numbers: BTreeMap<&'static str, Vec<(String, LabNumber)>>,
    words: BTreeMap<&'static str, String>,
    /// Verdicts that no border gives, by claim.
    verdicts: Vec<(&'static str, Verdict)>,
    /// Answers that are known without any number.
    known: Vec<Answer>,
    /// The verdict on a claim for which something is missing.
    missing: Verdict,
}

impl Quantities {
    /// The quantities of an experiment that plays loads: what is missing was not played.
    pub fn of_loads() -> Self {
        Self::without(cannot_be_tested(STOPPED))
    }

    /// The quantities of an experiment that times arms: what is missing has too few process trees.
    pub fn of_arms() -> Self {
        let why = "what it takes was not measured, or in too few process trees";
        Self::without(Verdict::Undecided(why.to_owned()))
    }

    const fn without(missing: Verdict) -> Self {
        Self {
            numbers: BTreeMap::new(),
            words: BTreeMap::new(),
            verdicts: Vec::new(),
            known: Vec::new(),
            missing,
        }
    }

    /// A number, if it was measured.
    pub fn number(&mut self, name: &'static str, number: Option<impl Into<LabNumber>>) {
        self.list(name, [(String::new(), number)]);
    }

    /// Numbers of one name, each with a label. All of them are judged.
    pub fn list<N: Into<LabNumber>>(
        &mut self,
        name: &'static str,
        numbers: impl IntoIterator<Item = (String, Option<N>)>,
    ) {
        let measured = numbers.into_iter();
        let measured = measured.filter_map(|(label, number)| Some((label, number?.into())));
        self.numbers.entry(name).or_default().extend(measured);
    }

    /// A number that need not exist on every machine. It is judged where it does.
    pub fn optional(&mut self, name: &'static str, number: Option<impl Into<LabNumber>>) {
        match number {
            Some(_) => self.number(name, number),
            None => self.words(name, "-"),
        }
    }

    /// A number that is exactly known: there is no interval that could leave anything open.
    pub fn exact(&mut self, name: &'static str, number: f64) {
        let exact = LabNumber {
            point: number,
            interval: Some(ConfidenceInterval {
                low: number,
                high: number,
            }),
            rounds: None,
        };
        self.number(name, Some(exact));
    }

    /// What is shown and not judged, even where a border has its name.
    pub fn words(&mut self, name: &'static str, words: impl ToString) {
        self.words.insert(name, words.to_string());
    }

    /// A verdict on a claim beside those of its borders.
    pub fn judge(&mut self, claim: &'static str, verdict: Verdict) {
        self.verdicts.push((claim, verdict));
    }

    /// The answer to a claim whatever the numbers are.
    pub fn answer_with(&mut self, claim: &'static str, ours: impl ToString, verdict: Verdict) {
        self.known.push(Answer {
            claim,
            ours: ours.to_string(),
            verdict,
        });
    }

    /// Why a claim cannot be tested, beside what is known all the same.
    pub fn cannot(&mut self, claim: &'static str, ours: impl ToString, why: impl Into<String>) {
        self.answer_with(claim, ours, cannot_be_tested(why));
    }

    /// The answers to all claims on an experiment.
    pub fn answers(&self, experiment: &str) -> Vec<Answer> {
        let claims = list::all().filter(|claim| claim.experiment.as_deref() == Some(experiment));
        claims.map(|claim| self.answer_to(claim)).collect()
    }

    fn answer_to(&self, claim: &'static Claim) -> Answer {
        let known = self.known.iter().find(|answer| answer.claim == claim.id);
        known.cloned().unwrap_or_else(|| {
            let ours = filled(&claim.ours, |name, unit| self.shown(claim, name, unit));
            let found = ours.zip(self.verdict(claim));
            let (ours, verdict) =
                found.unwrap_or_else(|| ("nothing".to_owned(), self.missing.clone()));
            Answer {
                claim: &claim.id,
                ours,
                verdict,
            }
        })
    }

    fn shown(&self, claim: &Claim, name: &str, unit: &str) -> Option<String> {
        if let Some(words) = self.words.get(name) {
            return Some(words.clone());
        }
        let Some(numbers) = self.numbers.get(name) else {
            return claim.in_words(name, unit);
        };
        let all = numbers.iter().map(|(label, number)| match label.as_str() {
            "" => number.in_unit(unit),
            label => format!("{label}: {}", number.in_unit(unit)),
        });
        let all: Vec<String> = all.collect();
        let has_labels = numbers.iter().any(|(label, _)| !label.is_empty());
        (!all.is_empty()).then(|| all.join(if has_labels { "; " } else { ", " }))
    }

    /// The verdict of all borders; `None` when a number is missing, or when nothing judges.
    fn verdict(&self, claim: &Claim) -> Option<Verdict> {
        let mut verdicts = Vec::new();
        for (name, [from, to]) in &claim.borders {
            if !self.words.contains_key(name.as_str()) {
                let numbers = self
                    .numbers
                    .get(name.as_str())
                    .filter(|all| !all.is_empty())?;
                verdicts.extend(
                    numbers
                        .iter()
                        .map(|(_, number)| number.is_within(*from, *to)),
                );
            }
        }
        let of_claim = self.verdicts.iter().filter(|(id, _)| *id == claim.id);
        verdicts.extend(of_claim.map(|(_, verdict)| verdict.clone()));
        (!verdicts.is_empty()).then(|| all_of(verdicts))
    }

    /// The answer to one claim.
    #[cfg(test)]
    pub fn answer(&self, id: &str) -> Answer {
        self.answer_to(list::claim(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quantities of A2, whose borders are 1.8 to 2.2 and 0.9 to 1.1.
    fn sharing(shared: f64, own: Option<f64>) -> Quantities {
        let mut all = Quantities::of_loads();
        let number = |number: f64| LabNumber::of(&[number; 6]);
        all.words("crowded", 3);
        all.number("shared", number(shared));
        all.number("own", own.and_then(number));
        all
    }

    #[test]
    fn an_answer_is_the_sentence_of_the_claim_with_its_numbers() {
        let answer = sharing(2.0, Some(1.0)).answer("A2");
        assert_eq!(answer.verdict, Verdict::Holds);
        let ours = "3 threads: those that share take 2.00 (2.00 … 2.00) times, the others 1.00 (1.00 … 1.00) \
                    times the time of a single one";
        assert_eq!(answer.ours, ours);
    }

    #[test]
    fn every_border_of_a_claim_counts() {
        let verdict = |shared, own| sharing(shared, Some(own)).answer("A2").verdict;
        assert_eq!(verdict(1.7, 1.0), Verdict::DoesNotHold);
        assert_eq!(verdict(2.0, 1.2), Verdict::DoesNotHold);
    }

    /// A claim whose number is missing must not hold for want of a verdict.
    #[test]
    fn what_is_missing_is_not_judged() {
        let answer = sharing(2.0, None).answer("A2");
        assert_eq!(
            (answer.ours.as_str(), answer.verdict),
            ("nothing", cannot_be_tested(STOPPED))
        );
        let arms = Quantities::of_arms();
        for claim in list::all().filter(|claim| claim.experiment.is_some()) {
            assert!(
                matches!(arms.answer_to(claim).verdict, Verdict::Undecided(_)),
                "{}",
                claim.id
            );
        }
    }
}
