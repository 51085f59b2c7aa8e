//! An experiment's answer to a claim of the textbooks, and the verdict on it.

use std::fmt;

use serde::Serialize;

/// An experiment's answer to one claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// Identifier of the claim in `lab/claims.toml`, such as `A1`.
    pub claim: &'static str,
    /// What was found, in one line of words and numbers with their intervals.
    pub ours: String,
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Whether a claim holds on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "why")]
pub enum Verdict {
    Holds,
    DoesNotHold,
    /// The experiment was made, and its intervals allow both answers.
    Undecided(String),
    /// This machine cannot tell: the sentence ends "cannot be tested here because …".
    CannotBeTested(String),
}

impl Verdict {
    /// [`Self::Holds`] if `holds` is true, else [`Self::DoesNotHold`].
    pub const fn of(holds: bool) -> Self {
        if holds {
            Self::Holds
        } else {
            Self::DoesNotHold
        }
    }

    /// The verdict in a word or two, as tables and files have it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold here",
            Self::Undecided(_) => "undecided",
            Self::CannotBeTested(_) => "cannot be tested here",
        }
    }

    /// Why the claim is undecided or cannot be tested; `None` for the other verdicts.
    pub const fn why(&self) -> Option<&str> {
        match self {
            Self::Holds | Self::DoesNotHold => None,
            Self::Undecided(why) | Self::CannotBeTested(why) => Some(why.as_str()),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds | Self::DoesNotHold => self.as_str().fmt(f),
            Self::Undecided(why) => write!(f, "{}: {why}", self.as_str()),
            Self::CannotBeTested(why) => write!(f, "{} because {why}", self.as_str()),
        }
    }
}

/// The verdict of all together: the first of the worst kind. The worst is "does not hold", then
/// "undecided", then "cannot be tested".
pub fn all_of(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
    let worse = |one: &Verdict| match one {
        Verdict::Holds => 0,
        Verdict::CannotBeTested(_) => 1,
        Verdict::Undecided(_) => 2,
        Verdict::DoesNotHold => 3,
    };
    let mut worst = Verdict::Holds;
    for verdict in verdicts {
        if worse(&verdict) > worse(&worst) {
            worst = verdict;
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;

    #[test]
    fn a_verdict_reads_as_a_sentence() {
        let because = Verdict::CannotBeTested("there is one CPU".to_owned());
        assert_eq!(
            because.to_string(),
            "cannot be tested here because there is one CPU"
        );
        let open = Verdict::Undecided("the interval holds 1".to_owned());
        assert_eq!(open.to_string(), "undecided: the interval holds 1");
        assert_eq!(Verdict::of(false).to_string(), "does not hold here");
    }

    /// Programs read this form of an answer.
    #[test]
    fn an_answer_is_one_flat_object() {
        let answer = |verdict| Answer {
            claim: "A1",
            ours: "1.00 ×".to_owned(),
            verdict,
        };
        assert_eq!(
            to_value(answer(Verdict::Holds)).unwrap(),
            json!({ "claim": "A1", "ours": "1.00 ×", "verdict": "holds" })
        );
        assert_eq!(
            to_value(answer(Verdict::Undecided("wide".to_owned()))).unwrap(),
            json!({ "claim": "A1", "ours": "1.00 ×", "verdict": "undecided", "why": "wide" })
        );
    }
}
