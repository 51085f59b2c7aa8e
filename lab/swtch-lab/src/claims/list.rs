//! The claims as data: `experiments/claims.toml`, where each number of a border stands once.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

const FILE: &str = include_str!("../../experiments/claims.toml");

/// A textbook or article on context switches.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Article {
    /// First letter of the identifiers of its claims: `A`.
    pub letter: char,
    pub title: String,
    /// Its author; `None` if the text names none.
    pub author: Option<String>,
    /// Year of publication, where it is known.
    pub year: Option<u16>,
    /// The machine and the method behind its figures.
    pub machine: Option<String>,
    /// Its claims, in the order of the file.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
}

/// A sentence that can be put to the test.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its identifier in tables and answers: `A1`.
    pub id: String,
    pub says: String,
    /// The numbers that the author gives.
    pub figures: Option<String>,
    /// Where the author's arithmetic or reading is doubtful.
    pub doubt: Option<String>,
    /// The condition under which the analysis takes it to hold: a sentence to be filled in.
    holds_when: Option<String>,
    /// Between what ends each number of the experiment must lie.
    #[serde(default)]
    pub borders: BTreeMap<String, [f64; 2]>,
    /// Further numbers that the experiment reckons with.
    #[serde(default)]
    given: BTreeMap<String, f64>,
    /// The experiment's answer: a sentence to be filled in with what was measured.
    #[serde(default)]
    pub ours: String,
    /// The experiment that answers it.
    pub experiment: Option<String>,
    /// Why no experiment can test it.
    pub untestable: Option<String>,
}

/// All articles, in the order of the file.
///
/// # Panics
/// The file is malformed, which the tests would have found.
pub static ARTICLES: LazyLock<Vec<Article>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ClaimsFile {
        article: Vec<Article>,
    }
    let read: ClaimsFile =
        toml::from_str(FILE).expect("invariant: the tests read claims.toml, which is embedded");
    read.article
});

/// All claims, in the order of the file.
pub fn all() -> impl Iterator<Item = &'static Claim> {
    ARTICLES.iter().flat_map(|article| &article.claims)
}

/// The claim of this name.
///
/// # Panics
/// There is none.
pub fn claim(id: &str) -> &'static Claim {
    let found = all().find(|claim| claim.id == id);
    found.unwrap_or_else(|| panic!("{id} is no claim of claims.toml"))
}

/// The text with words in place of each `{name}` or `{name unit}`; `None` when `word` has none for
/// one of them.
pub fn filled(text: &str, word: impl Fn(&str, &str) -> Option<String>) -> Option<String> {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (slot, rest) = part.split_once('}')?;
        let (name, unit) = slot.split_once(' ').unwrap_or((slot, ""));
        filled.push_str(&word(name, unit)?);
        filled.push_str(rest);
    }
    Some(filled)
}

impl Claim {
    /// When the analysis takes it to hold, with the borders that are applied.
    pub fn holds_when(&self) -> Option<String> {
        filled(self.holds_when.as_ref()?, |name, unit| {
            self.in_words(name, unit)
        })
    }

    /// The finite ends of a border, or a number that is given, with two digits after the point at
    /// most.
    pub fn in_words(&self, name: &str, unit: &str) -> Option<String> {
        let border = self.borders.get(name).map(|ends| ends.as_slice());
        let numbers = border.or_else(|| self.given.get(name).map(std::slice::from_ref))?;
        let (factor, unit) = match unit {
            "%" => (100.0, " %"),
            _ => (1.0, ""),
        };
        let finite = numbers.iter().filter(|number| number.is_finite());
        let words = finite.map(|number| ((number * factor * 100.0).round() / 100.0).to_string());
        Some(words.collect::<Vec<_>>().join(" to ") + unit)
    }

    /// A number that the experiment reckons with.
    ///
    /// # Panics
    /// The claim has none of this name.
    pub fn given(&self, name: &str) -> f64 {
        self.given[name]
    }
}

impl Article {
    /// Title, author and year in a line.
    pub fn source(&self) -> String {
        let year = self.year.map(|year| year.to_string());
        let rest: Vec<String> = self.author.iter().cloned().chain(year).collect();
        match rest.as_slice() {
            [] => self.title.clone(),
            rest => format!("{}. {}", self.title, rest.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_claim_of_the_five_articles_is_there_once() {
        let ids: Vec<String> = all().map(|claim| claim.id.clone()).collect();
        let expected = [("A", 9), ("B", 7), ("C", 7), ("D", 6), ("E", 6)]
            .iter()
            .flat_map(|(letter, count)| {
                (1..=*count).map(move |number| format!("{letter}{number}"))
            });
        assert_eq!(ids, expected.collect::<Vec<_>>());
    }

    #[test]
    fn claims_bear_the_letter_of_their_article() {
        for article in ARTICLES.iter() {
            for claim in &article.claims {
                assert!(claim.id.starts_with(article.letter), "{}", claim.id);
            }
        }
    }

    #[test]
    fn a_claim_has_an_experiment_with_a_border_or_a_reason_for_none() {
        for claim in all() {
            let Claim {
                id,
                holds_when,
                experiment,
                untestable,
                ..
            } = claim;
            assert!(experiment.is_some() != untestable.is_some(), "{id}");
            assert_eq!(experiment.is_some(), holds_when.is_some(), "{id}");
        }
    }

    /// A claim without an experiment to answer it is an error of the program.
    #[test]
    fn the_experiment_that_a_claim_names_exists() {
        let named = all().filter_map(|claim| claim.experiment.clone());
        let mut unknown: Vec<String> = named
            .filter(|name| Experiment::named(name).is_none())
            .collect();
        unknown.sort();
        unknown.dedup();
        assert_eq!(unknown, [""; 0]);
    }

    /// A sentence gets its numbers from the borders that are applied, and leaves none of them out
    /// but what a comparison says: more, fewer, none. The lock ring applies its own.
    #[test]
    fn the_numbers_of_a_sentence_are_those_that_are_applied() {
        let is_comparison = |end: &f64| end.is_infinite() || *end == 1.0 || end.abs() < 1e-6;
        for claim in all().filter(|claim| claim.experiment.as_deref() != Some("lock-ring")) {
            assert_eq!(claim.holds_when().is_some(), claim.experiment.is_some());
            let sentence = claim.holds_when.as_deref().unwrap_or_default();
            let written = filled(sentence, |_, _| Some(String::new())).unwrap();
            let has_digits = written.contains(|letter: char| letter.is_ascii_digit());
            assert!(!has_digits, "{}: {written}", claim.id);
            let borders = claim.borders.iter();
            let borders = borders.filter(|(_, ends)| !ends.iter().all(is_comparison));
            for name in borders.map(|(name, _)| name).chain(claim.given.keys()) {
                let is_said = sentence.contains(&format!("{{{name}"));
                assert!(is_said, "{}: {name} is not in the sentence", claim.id);
            }
        }
    }

    /// A name that is mistyped in the file would leave its claim without an answer.
    #[test]
    fn what_a_claim_names_is_told_by_an_experiment() {
        let mut sources = Vec::new();
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => sources.push(fs::read_to_string(path).unwrap()),
                }
            }
        }
        let is_told = |name: &str| {
            let literal = format!("\"{name}\"");
            sources.iter().any(|source| source.contains(&literal))
        };
        for claim in all() {
            let slots = claim.ours.split('{').skip(1);
            let slots = slots.filter_map(|part| part.split(['}', ' ']).next());
            let named = claim.borders.keys().map(String::as_str).chain(slots);
            for name in named.filter(|name| !claim.given.contains_key(*name)) {
                assert!(is_told(name), "{}: nothing tells {name}", claim.id);
            }
        }
    }

    #[test]
    fn a_sentence_is_filled_in_with_its_borders() {
        let sentence = |id| claim(id).holds_when().unwrap();
        let of_a1 = "the slowest thread takes 0.9 to 1.1 times the time of a single one";
        assert_eq!(sentence("A1"), of_a1);
        let of_a5 = "there are switches, and at 2 µs each they are less than 1 % of the run";
        assert_eq!(sentence("A5"), of_a5);
        assert!(sentence("A7").ends_with("and the user switches not 1.33 times as many"));
        assert!(sentence("B5").starts_with("10 thousand instructions or more"));
    }
}
