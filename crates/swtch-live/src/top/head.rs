//! The lines above the rows of a frame: how many switches, what they cost, what was not counted, and what `top` itself
//! uses.

use serde_json::{Value, json};
use swtch_core::Nanos;
use swtch_output::text::{counted, escaped, grouped, rate};
use swtch_report::report::{in_hundredths, lost_names_in_words, spans_json, untraced_in_words};

use super::session::MadeFrame;

impl MadeFrame {
    /// The rates of all rows together.
    pub fn rates_in_words(&self) -> String {
        let (frame, total) = (&self.frame, &self.frame.total);
        let involuntary = total.tally.involuntary();
        let per_s = |number| rate(frame.per_second(number));
        format!(
            "{} switches/s: {} voluntary, {} not · {} from idle · {}",
            per_s(total.switches()),
            per_s(total.tally.voluntary),
            per_s(involuntary),
            per_s(frame.from_idle),
            counted(frame.threads as u64, "thread"),
        )
    }

    /// Says what the switches cost; how to find out where that is not known.
    pub fn cost_in_words(&self) -> String {
        let (frame, total) = (&self.frame, &self.frame.total);
        if !self.has_prices {
            return "what they cost is not known: swtch cost --save measures it".to_owned();
        }
        let share = |ns| frame.share_pct(ns);
        let cost = total.cost;
        let unpriced = match total.unpriced {
            0 => String::new(),
            some => format!(", {} without a price", rate(frame.per_second(some))),
        };
        format!(
            "switching takes {:.2} % of one CPU ({:.2} to {:.2}){unpriced}",
            share(cost.point_ns),
            share(cost.low_ns),
            share(cost.high_ns),
        )
    }

    /// Says of each kind of spans that is counted how long they took, and how many switches there were to each.
    pub fn spans_in_words(&self) -> impl Iterator<Item = String> {
        self.spans.iter().map(|(kind, lengths)| {
            let spans = lengths.count();
            let length = |percent| lengths.percentile(percent).unwrap_or(Nanos::ZERO);
            match spans {
                0 => format!("{}: none ended", escaped(kind)),
                _ => format!(
                    "{}: {} spans/s of {} (median), {} (99 %), {} switches to each",
                    escaped(kind),
                    rate(self.frame.per_second(spans)),
                    length(50.0),
                    length(99.0),
                    in_hundredths(self.frame.total.switches(), spans),
                ),
            }
        })
    }

    /// Says what was not counted, or not named, and why; `None` if everything was.
    pub fn loss_in_words(&self) -> Option<String> {
        let (groups, _) = self.groups;
        let switches = (self.frame.lost > 0).then(|| {
            format!(
                "{} not counted: the {} groups that the kernel side counts were all taken (--groups N makes \
                 room for more)",
                counted(self.frame.lost, "switch"),
                grouped(groups.into()),
            )
        });
        let names = lost_names_in_words(self.lost_names);
        let untraced = untraced_in_words(self.frame.untraced, None);
        let all: Vec<_> = switches.into_iter().chain(untraced).chain(names).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Says what this process and its programs in the kernel use.
    pub fn own_cost_in_words(&self) -> String {
        let in_kernel = self.kernel_ns_per_switch.map_or_else(String::new, |ns| {
            let share = self.kernel_pct(ns);
            format!(", in the kernel {ns:.0} ns a switch ({share:.2} %)")
        });
        format!("swtch uses {:.2} % of one CPU{in_kernel}", self.own_cpu_pct)
    }

    fn kernel_pct(&self, ns_per_switch: f64) -> f64 {
        let seen = self.frame.total.switches() + self.frame.from_idle;
        self.frame.share_pct(ns_per_switch * seen as f64)
    }

    /// The facts of the frame, for JSON.
    pub fn to_json(&self) -> Value {
        let (frame, total) = (&self.frame, &self.frame.total);
        let (groups, groups_in_use) = self.groups;
        let share = |ns: f64| self.has_prices.then(|| rounded(frame.share_pct(ns)));
        json!({
            "at_ns": self.at.as_ns(),
            "interval_ns": frame.interval.as_ns(),
            "switches": total.switches(),
            "voluntary": total.tally.voluntary,
            "involuntary": total.tally.involuntary(),
            "from_idle": frame.from_idle,
            "lost": frame.lost,
            "untraced": frame.untraced,
            "lost_names": self.lost_names,
            "threads": frame.threads,
            "switches_per_s": rounded(frame.per_second(total.switches())),
            "cost_pct": share(total.cost.point_ns),
            "cost_low_pct": share(total.cost.low_ns),
            "cost_high_pct": share(total.cost.high_ns),
            "unpriced": self.has_prices.then_some(total.unpriced),
            "own_cpu_pct": rounded(self.own_cpu_pct),
            "kernel_ns_per_switch": self.kernel_ns_per_switch.map(rounded),
            "groups": groups,
            "groups_in_use": groups_in_use,
            "spans": spans_json(&self.spans),
        })
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_core::Distribution;

    #[test]
    fn the_switches_of_a_frame_are_divided_by_its_spans() {
        let mut made = MadeFrame::default();
        assert_eq!(made.spans_in_words().next(), None);
        let mut lengths = Distribution::default();
        made.spans = vec![("query".to_owned(), lengths.clone())];
        assert_eq!(
            made.spans_in_words().next().as_deref(),
            Some("query: none ended")
        );
        for _ in 0..4 {
            lengths.record(Nanos::from_ns(2_000));
        }
        made.spans[0].1 = lengths;
        made.frame.interval = Nanos::from_ns(500_000_000);
        made.frame.total.tally.switches = 10;
        let told = made.spans_in_words().next().unwrap();
        assert!(told.starts_with("query: 8.0 spans/s of "), "{told}");
        assert!(told.ends_with(", 2.50 switches to each"), "{told}");
        assert_eq!(made.to_json()["spans"][0]["count"], 4);
    }

    #[test]
    fn what_is_missing_of_a_frame_is_said_in_one_line() {
        let mut made = MadeFrame::default();
        assert_eq!(made.loss_in_words(), None);
        made.lost_names = 2;
        let names = "2 records of tasks lost: some threads have no name, or an old one";
        assert_eq!(made.loss_in_words().as_deref(), Some(names));
        assert_eq!(made.to_json()["lost_names"], 2);
        made.frame.lost = 1;
        let both = made.loss_in_words().unwrap();
        assert!(both.starts_with("1 switch not counted") && both.ends_with(names));
        made.frame.untraced = 3;
        let three = "; the kernel made 3 context switches that it did not report to tracing: they are in no row";
        assert!(made.loss_in_words().unwrap().contains(three));
        assert_eq!(made.to_json()["untraced"], 3);
    }
}
