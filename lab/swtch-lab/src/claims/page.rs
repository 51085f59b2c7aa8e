//! One HTML page with the claims and all findings. It fetches nothing and runs no script.
//!
//! Templates escape all text; figures are our own SVG. A page may show names that others chose, so
//! its policy forbids scripts and network even if one got through.

use anyhow::Result;
use maud::{Markup, PreEscaped, html};
use swtch_host::Fact;
use swtch_report::html::{self, notes, shown, table};

use super::super::findings::Findings;
use super::super::outcome::{Outcome, first_paragraph, machine_words};
use super::review::{Attempt, AttemptEnding, ClaimRow, ClaimState, Review};
use super::table::summary;

/// Renders a review as an HTML page.
///
/// # Errors
/// A figure cannot be drawn.
pub fn page(review: &Review, facts: &[Fact]) -> Result<String> {
    let experiments: Result<Vec<Markup>> = review.attempts.iter().map(experiment).collect();
    let experiments = experiments?;
    let origin = &review.origin;
    let body = html! {
        header {
            h1 { "What the textbooks say about context switches, and what this machine says" }
            p.machine { (machine_words(&review.origin)) }
            @if review.was_interrupted() {
                p.warning { strong { "Ended early: " } "what is missing was not measured." }
            }
            p.summary { (summary(review)) }
            (contents(review))
        }
        main {
            (claims(review))
            @for experiment in &experiments { (experiment) }
            (machine_facts(facts))
        }
        footer {
            p {
                "Made by swtch " (shown(&origin.swtch_version)) " (swtch lab claims) in "
                (review.took.as_secs()) " s."
            }
        }
    };
    Ok(html::page(
        &format!(
            "Context switches: what the textbooks say, and {}",
            origin.hostname
        ),
        &body,
    ))
}

fn contents(review: &Review) -> Markup {
    html! {
        nav aria-label="Contents" {
            a href="#claims" { "Claims" }
            @for attempt in &review.attempts {
                " · " a href={ "#" (attempt.experiment) } { (attempt.experiment) }
            }
            " · " a href="#machine" { "Machine" }
        }
    }
}

fn claims(review: &Review) -> Markup {
    let rows = review.rows();
    html! {
        section #claims {
            h2 { "The claims" }
            div.wide tabindex="0" role="region" aria-label="Table of claims" {
                table.claims {
                    caption { "Every claim, the authors' figures, and what was found here" }
                    thead { tr {
                        th scope="col" { "" span.unseen { "number" } }
                        th scope="col" { "claim" }
                        th scope="col" { "theirs" }
                        th scope="col" { "ours" }
                        th scope="col" { "verdict" }
                    } }
                    @for article in &review.articles {
                        @let of_article = rows.iter().filter(|row| row.article.letter == article.letter);
                        @if of_article.clone().next().is_some() {
                            tbody {
                                tr.article { th scope="rowgroup" colspan="5" {
                                    (article.letter) ". " (article.source())
                                    @if let Some(machine) = &article.machine {
                                        span.aside { (machine) }
                                    }
                                } }
                                @for row in of_article { (claim(row)) }
                            }
                        }
                    }
                }
            }
            (notes(&review.notes()))
        }
    }
}

fn claim(row: &ClaimRow<'_>) -> Markup {
    let answers = row.state.answers();
    html! {
        tr {
            th scope="row" { (row.claim.id) }
            td {
                (row.claim.says)
                @if let Some(doubt) = &row.claim.doubt { span.aside { "Doubtful: " (doubt) } }
                @if let Some(border) = row.claim.holds_when() { span.aside { "Holds if " (border) } }
            }
            td { (row.claim.figures.as_deref().unwrap_or("–")) }
            td {
                @for answer in answers {
                    p {
                        (shown(&answer.ours))
                        @if answers.len() > 1 { " → " (shown(&answer.verdict.to_string())) }
                    }
                }
                @if answers.is_empty() { "–" }
                @if let Some(name) = &row.claim.experiment {
                    p.aside { a href={ "#" (name) } { (name) } }
                }
            }
            td { (verdict(&row.state)) }
        }
    }
}

/// The verdict: a sign, a word and a colour say the same.
fn verdict(state: &ClaimState) -> Markup {
    let word = state.word();
    let (class, sign) = match word {
        "holds" => ("holds", "✓"),
        "does not hold here" => ("fails", "✗"),
        "undecided" => ("open", "?"),
        "cannot be tested here" => ("untested", "–"),
        _ => ("missing", "!"),
    };
    let sentence = state.sentence();
    let rest = sentence.strip_prefix(word).unwrap_or_default();
    html! {
        span class={ "verdict " (class) } { span aria-hidden="true" { (sign) " " } (word) }
        (shown(rest))
    }
}

fn experiment(attempt: &Attempt) -> Result<Markup> {
    let body = match &attempt.ending {
        AttemptEnding::Made(outcome) => outcome_of(outcome)?,
        AttemptEnding::Failed(why) => {
            html! { p.warning { strong { "It failed: " } (shown(why)) } }
        }
        AttemptEnding::NotBegun => html! { p.warning { "It was ended before this began." } },
    };
    Ok(html! {
        section id=(attempt.experiment) {
            h2 { (attempt.experiment) }
            (body)
        }
    })
}

fn outcome_of(outcome: &Outcome) -> Result<Markup> {
    let Findings {
        tables,
        pictures,
        sentences,
        notes: said,
        ..
    } = &outcome.findings;
    let drawn: Result<Vec<String>> = pictures.iter().map(|picture| picture.to_svg()).collect();
    let drawn = drawn?;
    Ok(html! {
        p.title { (shown(&outcome.title)) }
        p { (shown(&first_paragraph(&outcome.about))) }
        @if outcome.findings.was_interrupted {
            p.warning { strong { "Ended early: " } "what is missing was not measured." }
        }
        @if !sentences.is_empty() {
            ul { @for sentence in sentences { li { (shown(sentence)) } } }
        }
        @for svg in &drawn { figure { (PreEscaped(svg)) } }
        @for one in tables { (table(&one.title, &one.sheet, usize::MAX)) }
        (notes(said))
        p.aside {
            "Made again by: " code { "swtch lab " (outcome.experiment) " " (shown(&outcome.parameter_words())) }
        }
    })
}

fn machine_facts(facts: &[Fact]) -> Markup {
    html! {
        section #machine {
            h2 { "The machine" }
            details {
                summary { "What is known of it, and why it matters" }
                div.wide tabindex="0" role="region" aria-label="Facts of the machine" {
                    table {
                        caption { "Facts that change the answers" }
                        thead { tr {
                            th scope="col" { "fact" }
                            th scope="col" { "value" }
                            th scope="col" { "read from" }
                            th scope="col" { "why it matters" }
                        } }
                        tbody { @for fact in facts { tr {
                            th scope="row" { (fact.name) }
                            td { (shown(&fact.value.to_string())) }
                            td { (shown(&fact.source)) }
                            td { (fact.note) }
                        } } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::review::tests::review;
    use super::*;

    fn made() -> String {
        page(&review(), &swtch_host::facts()).unwrap()
    }

    #[test]
    fn the_page_holds_every_claim_and_every_figure() {
        let page = made();
        for id in ["A1", "A9", "B7", "C7", "D6", "E6"] {
            assert!(
                page.contains(&format!("<th scope=\"row\">{id}</th>")),
                "{id}"
            );
        }
        assert_eq!(page.matches("<svg ").count(), 4);
        assert!(page.contains("It failed: "));
        assert!(page.contains("It was ended before this began."));
    }

    #[test]
    fn nothing_is_fetched_and_nothing_runs() {
        let page = made();
        for word in ["<script", "src=", "@import", "url(", "<link", "<iframe"] {
            assert!(!page.contains(word), "{word}");
        }
        let names = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!names.contains("http://") && !names.contains("https://"));
    }

    /// A thread may call itself anything.
    #[test]
    fn hostile_text_stays_text() {
        let mut review = review();
        let hostile = "<img src=x onerror=alert(1)>\u{202e}\u{1b}[2J";
        review.origin.hostname = hostile.to_owned();
        let AttemptEnding::Made(outcome) = &mut review.attempts[0].ending else {
            panic!("it was made")
        };
        outcome.findings.notes.push(hostile.to_owned());
        outcome.findings.sentences.push(hostile.to_owned());
        outcome.findings.answers[0].ours = hostile.to_owned();
        outcome.findings.tables[0].title = hostile.to_owned();
        outcome.findings.tables[0].sheet.rows[0][0] = swtch_report::report::Cell::text(hostile);
        outcome.findings.pictures[0].title = hostile.to_owned();
        outcome.findings.pictures[0].name = hostile.to_owned();
        let page = page(&review, &[]).unwrap();
        assert!(!page.contains("<img"));
        assert!(!page.contains(['\u{202e}', '\u{1b}']));
    }

    #[test]
    fn the_page_stays_small() {
        assert!(made().len() < 2_000_000);
    }

    /// For the eye: `SWTCH_PICTURES=DIR cargo test -p swtch-lab page_to_look_at`.
    #[test]
    fn a_page_to_look_at_is_left_where_the_environment_says() {
        let Some(dir) = std::env::var_os("SWTCH_PICTURES") else {
            swtch_test::skip!("SWTCH_PICTURES does not say where to leave the page");
        };
        std::fs::write(std::path::Path::new(&dir).join("claims.html"), made()).unwrap();
        let text = super::super::table::table(&review(), 100);
        std::fs::write(std::path::Path::new(&dir).join("claims.txt"), text).unwrap();
    }
}
