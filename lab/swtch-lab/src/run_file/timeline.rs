//! The members of a play over time: running, waiting for the CPU, or blocked.

use swtch_bench::load::{Load, LoadResults};
use swtch_plot::Picture;
use swtch_plot::content::Content;

use crate::evidence::LoadRuns;
use crate::outcome::host_line;

/// The most lanes that fit on a page.
const MAX_LANES: usize = 24;

/// The picture of a variant.
pub fn timeline(variant: &str, load: &Load, played: &LoadResults, evidence: &LoadRuns) -> Picture {
    let label = |(place, member): (usize, &swtch_bench::load::PlayedMember)| {
        let name = load.groups[member.group].name_of(member.index);
        let label = match member.cpu {
            Some(cpu) => format!("{name} on CPU {cpu}"),
            None => name,
        };
        (place, label)
    };
    let members = played.members.iter().enumerate().map(label);
    let labels: Vec<_> = members.take(MAX_LANES).collect();
    let more = played.members.len().saturating_sub(labels.len());
    let (name, title) = match variant {
        "" => ("timeline".to_owned(), "members over time".to_owned()),
        variant => (
            format!("timeline-{variant}"),
            format!("{variant}: members over time"),
        ),
    };
    Picture {
        name,
        title,
        subtitle: host_line(&swtch_host::origin()),
        explanation: "from the first begin to the last end, as the recorder saw it".to_owned(),
        notes: (more > 0)
            .then(|| format!("{more} more members are not shown"))
            .into_iter()
            .collect(),
        content: Content::Lanes(evidence.lanes(&labels)),
    }
}
