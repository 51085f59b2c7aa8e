//! The claims as a page of text: one block each, because sentences do not fit columns.
//!
//! ```text
//! A1  Up to as many threads as CPUs (N), every thread takes the reference time.
//!     theirs   N=1: 7.286 s · 2: 7.379, 7.457
//!     holds if the slowest thread takes 0.9 to 1.1 times the time of a single one
//!     ours     1.00 × the reference (0.99 to 1.01)
//!     verdict  holds
//! ```

use swtch_output::text::{counted, hung};

use super::super::outcome::host_line;
use super::review::{AttemptEnding, ClaimRow, ClaimState, Review};

/// The whole page, wrapped to `width` columns.
pub fn table(review: &Review, width: usize) -> String {
    let mut lines = vec![host_line(&review.origin)];
    let count = u64::try_from(review.attempts.len()).unwrap_or(u64::MAX);
    lines.push(format!(
        "lab    claims · {} in {} s",
        counted(count, "experiment"),
        review.took.as_secs()
    ));
    if review.was_interrupted() {
        lines.push("       ended early: what is missing was not measured".to_owned());
    }
    let mut letter = None;
    for row in review.rows() {
        if letter != Some(row.article.letter) {
            letter = Some(row.article.letter);
            push_article(&row, width, &mut lines);
        }
        push_row(&row, width, &mut lines);
    }
    push_failures(review, width, &mut lines);
    lines.extend(hung("", &summary(review), width));
    for (word, ids) in by_verdict(review) {
        lines.extend(hung(&format!("  {word:<21}  "), &ids.join(" "), width));
    }
    for note in review.notes() {
        lines.extend(hung("note: ", &note, width));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn push_article(row: &ClaimRow<'_>, width: usize, lines: &mut Vec<String>) {
    if lines.last().is_some_and(|line| !line.is_empty()) {
        lines.push(String::new());
    }
    let label = format!("{}.  ", row.article.letter);
    lines.extend(hung(&label, &row.article.source(), width));
    if let Some(machine) = &row.article.machine {
        lines.extend(hung("    ", machine, width));
    }
    lines.push("─".repeat(width));
}

fn push_row(row: &ClaimRow<'_>, width: usize, lines: &mut Vec<String>) {
    lines.extend(hung(
        &format!("{:<4}", row.claim.id),
        &row.claim.says,
        width,
    ));
    if let Some(figures) = &row.claim.figures {
        lines.extend(hung("    theirs   ", figures, width));
    }
    if let Some(doubt) = &row.claim.doubt {
        lines.extend(hung("    doubt    ", doubt, width));
    }
    if let Some(border) = row.claim.holds_when() {
        lines.extend(hung("    holds if ", &border, width));
    }
    let answers = row.state.answers();
    for answer in answers {
        // With several answers, each shows its own verdict.
        let words = match answers {
            [_] => answer.ours.clone(),
            _ => format!("{} → {}", answer.ours, answer.verdict),
        };
        lines.extend(hung("    ours     ", &words, width));
    }
    lines.extend(hung("    verdict  ", &row.state.sentence(), width));
    lines.push(String::new());
}

fn push_failures(review: &Review, width: usize, lines: &mut Vec<String>) {
    for attempt in &review.attempts {
        if let AttemptEnding::Failed(why) = &attempt.ending {
            let label = format!("failed: {}  ", attempt.experiment);
            lines.extend(hung(&label, why, width));
            lines.push(String::new());
        }
    }
}

/// Counts by verdict: `35 claims: 20 hold, 3 do not hold here, 12 not answered`.
pub fn summary(review: &Review) -> String {
    let claims = u64::try_from(review.rows().len()).unwrap_or(u64::MAX);
    let parts: Vec<String> = review
        .tally()
        .into_iter()
        .map(|(word, count)| format!("{count} {}", in_plural(word, count)))
        .collect();
    format!("{}: {}", counted(claims, "claim"), parts.join(", "))
}

fn in_plural(word: &'static str, count: usize) -> &'static str {
    match (word, count) {
        ("holds", count) if count != 1 => "hold",
        ("does not hold here", count) if count != 1 => "do not hold here",
        (word, _) => word,
    }
}

/// The claims of each verdict.
fn by_verdict(review: &Review) -> Vec<(&'static str, Vec<String>)> {
    let rows = review.rows();
    let words = review.tally().into_iter().map(|(word, _)| word);
    let of = |word| {
        let of_word = rows
            .iter()
            .filter(|row| ClaimState::word(&row.state) == word);
        of_word.map(|row| row.claim.id.clone()).collect()
    };
    words.map(|word| (word, of(word))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::review::tests::review;
    use super::*;

    #[test]
    fn a_claim_is_a_block_of_their_words_and_ours() {
        let page = table(&review(), 100);
        let block = "\
A1  Up to as many threads as CPUs (N), every thread takes the reference time.
    theirs   N=1: 7.286 s · 2: 7.379, 7.457 · 3: 7.488, 7.550, 7.628 · 4: 6.989, 7.176, 7.238, 7.301
    holds if the slowest thread takes 0.9 to 1.1 times the time of a single one
    ours     1.00 × the reference (0.99 to 1.01)
    verdict  holds
";
        assert!(page.contains(block), "{page}");
        assert!(page.contains(
            "35 claims: 1 holds, 1 undecided, 1 cannot be tested here, 32 not answered\n"
        ));
    }

    #[test]
    fn no_line_is_wider_than_asked_for() {
        for width in [60, 100] {
            let page = table(&review(), width);
            let too_wide = page
                .lines()
                .skip(1)
                .find(|line| line.chars().count() > width);
            assert_eq!(too_wide, None);
        }
    }

    /// Two answers that differ: the reader sees which said what.
    #[test]
    fn all_answers_to_a_claim_are_shown() {
        let mut review = review();
        let AttemptEnding::Made(outcome) = &mut review.attempts[0].ending else {
            panic!("it was made")
        };
        outcome.findings.answers[1].claim = "A1";
        let page = table(&review, 100);
        assert!(page.contains("    ours     1.00 × the reference (0.99 to 1.01) → holds\n"));
        assert!(
            page.contains("    ours     2.00 × (0.90 to 2.10) → undecided: the interval holds 1\n")
        );
        assert!(page.contains("    verdict  undecided: the interval holds 1\n"));
    }
}
