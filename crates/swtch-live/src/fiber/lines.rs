//! The rates of both levels as text: side by side where the terminal is wide enough, otherwise one
//! level below the other.

use swtch_core::Nanos;

use super::rates::Rates;

/// Head for [`line()`]: a line with the levels above a line with the columns.
const HEAD: [&str; 2] = [
    "               ╭──── user level: the scheduler counts ─────╮  ╭── OS level: the kernel counts ──╮",
    "  time sch mode  switches/s   yields/s alone/s    each cost %  volunt./s invol./s     each cost %  \
     CPU %  runnable  delay/s",
];

const USER_HEAD: [&str; 2] = [
    "user level: the scheduler counts",
    "sch mode  switches/s   yields/s alone/s    each cost %  runnable  delay/s",
];

const OS_HEAD: [&str; 2] = [
    "OS level: the kernel counts, for its threads",
    "sch mode   volunt./s   invol./s            each cost %     CPU %",
];

/// The arrangement of the two levels on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelLayout {
    /// Both levels in one line per scheduler.
    SideBySide,
    /// One level below the other, for narrow terminals.
    Stacked,
}

impl LevelLayout {
    /// The layout for a terminal of this many columns; `None` means that lines may have any length.
    pub fn fitting(columns: Option<u16>) -> Self {
        let wide = HEAD[1].chars().count();
        match columns {
            Some(columns) if usize::from(columns) < wide => Self::Stacked,
            _ => Self::SideBySide,
        }
    }
}

/// The two head lines for [`line()`].
pub fn head() -> String {
    HEAD.map(|line| format!("{line}\n")).concat()
}

/// The rates of one scheduler as one line, both levels side by side.
pub fn line(rates: &Rates, at: Nanos) -> String {
    let [switches, yields, alone, each, cost] = user_cells(rates);
    let [voluntary, involuntary, os_each, os_cost, cpu] = os_cells(rates);
    format!(
        "{:>6} {:>3} {:<6}{switches:>10} {yields:>10} {alone:>7} {each:>7} {cost:>6}  \
         {voluntary:>9} {involuntary:>8} {os_each:>8} {os_cost:>6}  {cpu:>5}  {:>8}  {:>7}\n",
        seconds(at),
        rates.scheduler,
        rates.mode.as_str(),
        rates.runnable,
        delay(rates),
    )
}

/// The rates of all schedulers, one level below the other, with heads, in at most 80 columns.
pub fn stacked(all: &[Rates], at: Nanos) -> String {
    let mut text = format!("at {}\n\n", seconds(at));
    let name = |rates: &Rates| format!("{:>3} {:<6}", rates.scheduler, rates.mode.as_str());
    for head in USER_HEAD {
        text += &format!("{head}\n");
    }
    for rates in all {
        let [switches, yields, alone, each, cost] = user_cells(rates);
        text += &format!(
            "{}{switches:>10} {yields:>10} {alone:>7} {each:>7} {cost:>6}  {:>8}  {:>7}\n",
            name(rates),
            rates.runnable,
            delay(rates),
        );
    }
    text.push('\n');
    for head in OS_HEAD {
        text += &format!("{head}\n");
    }
    for rates in all {
        let [voluntary, involuntary, each, cost, cpu] = os_cells(rates);
        text += &format!(
            "{}{voluntary:>10} {involuntary:>10}         {each:>7} {cost:>6}  {cpu:>8}\n",
            name(rates),
        );
    }
    text
}

fn user_cells(rates: &Rates) -> [String; 5] {
    [
        brief(rates.user_per_s),
        brief(rates.yields_per_s),
        brief(rates.reselects_per_s),
        price(rates.user_ns),
        percent(rates.user_pct),
    ]
}

fn os_cells(rates: &Rates) -> [String; 5] {
    let os = |value: fn(&super::rates::OsRates) -> f64| {
        rates.os.as_ref().map(value).map_or_else(dash, brief)
    };
    let cpu = rates.os.and_then(|os| os.cpu_pct);
    [
        os(|os| os.voluntary_per_s),
        os(|os| os.involuntary_per_s),
        price(rates.os_ns),
        percent(rates.os_pct()),
        cpu.map_or_else(dash, |pct| format!("{pct:.1}")),
    ]
}

fn seconds(at: Nanos) -> String {
    format!("{:.1} s", at.as_ns() as f64 / 1e9)
}

fn delay(rates: &Rates) -> String {
    Nanos::from_rounded(rates.delay_ns_per_s).to_string()
}

fn price(ns: Option<f64>) -> String {
    ns.map_or_else(dash, swtch_output::text::nanos)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(dash, |pct| format!("{pct:.3}"))
}

fn dash() -> String {
    "-".to_owned()
}

/// Formats a rate for a table: `252`, `0.5`, `19,812,958`.
fn brief(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate => swtch_output::text::grouped(Nanos::from_rounded(rate).as_ns()),
    }
}

#[cfg(test)]
mod tests {
    use swtch_observe::Mode;

    use super::super::rates::OsRates;
    use super::*;

    fn rates() -> Rates {
        Rates {
            scheduler: 3,
            mode: Mode::Fiber,
            user_per_s: 19_812_958.0,
            yields_per_s: 19_812_958.0,
            reselects_per_s: 0.0,
            user_ns: Some(44.0),
            user_pct: Some(87.177),
            os: Some(OsRates {
                voluntary_per_s: 0.5,
                involuntary_per_s: 250.0,
                cpu_pct: Some(99.9),
            }),
            os_ns: None,
            runnable: 4,
            delay_ns_per_s: 0.0,
        }
    }

    /// Numbers are compared down a column, so they must end where the head ends.
    #[test]
    fn lines_end_below_the_ends_of_the_heads() {
        let line = line(&rates(), Nanos::from_ns(1_000_000_000));
        assert_eq!(line.trim_end().chars().count(), HEAD[1].chars().count());
        assert!(line.contains(" 19,812,958 "), "{line}");
        let text = stacked(&[rates()], Nanos::from_ns(1_000_000_000));
        let lines: Vec<&str> = text.lines().collect();
        for (head, below) in [(USER_HEAD[1], 4), (OS_HEAD[1], 8)] {
            assert_eq!(lines[below - 1], head, "{text}");
            assert_eq!(lines[below].chars().count(), head.chars().count(), "{text}");
        }
    }

    /// 80 columns is the narrowest terminal in common use.
    #[test]
    fn stacked_levels_fit_into_80_columns() {
        assert_eq!(LevelLayout::fitting(Some(80)), LevelLayout::Stacked);
        assert_eq!(LevelLayout::fitting(Some(200)), LevelLayout::SideBySide);
        assert_eq!(LevelLayout::fitting(None), LevelLayout::SideBySide);
        let text = stacked(&[rates()], Nanos::from_ns(1_000_000_000));
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}
