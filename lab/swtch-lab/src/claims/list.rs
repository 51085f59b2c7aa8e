//! The claims as data: `lab/claims.toml`.

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
    /// The condition under which the analysis takes it to hold.
    pub holds_when: Option<String>,
    /// The experiment that answers it.
    pub experiment: Option<String>,
    /// Why no experiment can test it.
    pub untestable: Option<String>,
}

/// All articles, in the order of the file.
///
/// # Panics
/// The file is malformed, which the tests would have found.
pub fn articles() -> Vec<Article> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ClaimsFile {
        article: Vec<Article>,
    }
    let read: ClaimsFile =
        toml::from_str(FILE).expect("invariant: the tests read lab/claims.toml, which is embedded");
    read.article
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

    fn claims() -> Vec<Claim> {
        articles().into_iter().flat_map(|one| one.claims).collect()
    }

    #[test]
    fn every_claim_of_the_five_articles_is_there_once() {
        let ids: Vec<String> = claims().into_iter().map(|claim| claim.id).collect();
        let expected = [("A", 9), ("B", 7), ("C", 7), ("D", 6), ("E", 6)]
            .iter()
            .flat_map(|(letter, count)| {
                (1..=*count).map(move |number| format!("{letter}{number}"))
            });
        assert_eq!(ids, expected.collect::<Vec<_>>());
    }

    #[test]
    fn claims_bear_the_letter_of_their_article() {
        for article in articles() {
            for claim in &article.claims {
                assert!(claim.id.starts_with(article.letter), "{}", claim.id);
            }
        }
    }

    #[test]
    fn a_claim_has_an_experiment_with_a_border_or_a_reason_for_none() {
        for claim in claims() {
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
        let named = claims().into_iter().filter_map(|claim| claim.experiment);
        let mut unknown: Vec<String> = named
            .filter(|name| Experiment::named(name).is_none())
            .collect();
        unknown.sort();
        unknown.dedup();
        assert_eq!(unknown, [""; 0]);
    }
}
