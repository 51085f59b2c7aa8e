//! A row for each variant: sums over all its members, to compare variants.

use swtch_bench::load::LoadResults;
use swtch_core::Nanos;
use swtch_report::report::{Cell, Sheet};

/// Rows of the variants that were played so far.
#[derive(Debug, Default)]
pub struct Variants {
    rows: Vec<Vec<Cell>>,
}

impl Variants {
    /// Adds the row of a variant that was played.
    pub fn add(&mut self, name: &str, played: &LoadResults) {
        let members = &played.members;
        let count = u64::try_from(members.len()).unwrap_or(u64::MAX);
        let took = || {
            members
                .iter()
                .map(|member| member.ended_ns - member.began_ns)
        };
        let last = members.iter().map(|member| member.ended_ns).max();
        let makespan = last.map(|last| Nanos::from_ns(last - played.started_ns));
        let cpu_time: u64 = members.iter().map(|member| member.cpu_time.as_ns()).sum();
        let mean = took().sum::<u64>().checked_div(count);
        self.rows.push(vec![
            Cell::text(name),
            Cell::Count(count),
            Cell::time(makespan),
            Cell::time(mean.map(Nanos::from_ns)),
            Cell::time(took().max().map(Nanos::from_ns)),
            Cell::Time(Nanos::from_ns(cpu_time)),
            Cell::Count(members.iter().map(|member| member.voluntary).sum()),
            Cell::Count(members.iter().map(|member| member.involuntary).sum()),
        ]);
    }

    /// The table, one row for each variant.
    pub fn sheet(self) -> Sheet {
        let columns = [
            "variant",
            "members",
            "makespan_ns",
            "mean_took_ns",
            "longest_took_ns",
            "cpu_time_ns",
            "voluntary",
            "involuntary",
        ];
        let mut sheet = Sheet::new("variants", &columns);
        sheet.rows = self.rows;
        sheet
    }
}
