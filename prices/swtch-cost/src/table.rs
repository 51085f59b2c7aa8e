//! The price list as text for people.

use std::fmt::Write as _;

use swtch_core::cost::{
    Estimate, KernelShareRow, MeasurementVerdict, Members, NamedContrast, Place, Policy, Price,
    PriceFact, PriceList, PriceUnit, Primitive,
};
use swtch_output::host::HostWords;
use swtch_output::text::{self, CellAlignment, escaped, nanos};

use super::list::{CHAINED, INDEPENDENT, TICKS};
use super::menu::Section;

mod curves;

/// The whole answer as one text.
pub fn table(list: &PriceList) -> String {
    let mut page = String::new();
    push_head(list, &mut page);
    for section in Section::ALL {
        let rows: Vec<&Price> = list
            .prices
            .iter()
            .filter(|price| price.section == section.as_str())
            .collect();
        if !rows.is_empty() {
            push_prices(*section, &rows, &mut page);
        }
    }
    push_contrasts(list, &mut page);
    push_kernel_share(list, &mut page);
    for row in curves::lines(list) {
        line(&mut page, format_args!("{row}"));
    }
    push_cliff(list, &mut page);
    push_displaced(list, &mut page);
    push_notes(list, &mut page);
    page
}

fn line(page: &mut String, words: std::fmt::Arguments<'_>) {
    page.write_fmt(words)
        .and_then(|()| page.write_char('\n'))
        .expect("writing to a string cannot fail");
}

/// The head: the machine, the session, and how much it was disturbed.
fn push_head(list: &PriceList, page: &mut String) {
    let origin = &list.origin;
    let host = HostWords::of_origin(origin).to_line();
    line(page, format_args!("host   {}", escaped(&host)));
    let session = &list.session;
    let cpu = session
        .cpu
        .map_or_else(|| "all CPUs".to_owned(), |cpu| format!("CPU {cpu}"));
    let cut = if session.was_interrupted {
        ", ended early"
    } else {
        ""
    };
    line(
        page,
        format_args!(
            "prices {} effort, {:.0} s on {cpu}{cut} · {}",
            session.effort, session.took_s, origin.measured_at
        ),
    );
    if let Some(worst) = worst_twin(&session.twins) {
        let reasons = session.verdict.reasons().iter().map(ToString::to_string);
        let reasons: Vec<String> = reasons.collect();
        let rest = match &session.verdict {
            MeasurementVerdict::Quiet => "nothing disturbed the measurement".to_owned(),
            MeasurementVerdict::Noisy(_) => format!("disturbed: {}", reasons.join("; ")),
            MeasurementVerdict::Unresolved(_) => format!("unresolved: {}", reasons.join("; ")),
        };
        line(
            page,
            format_args!(
                "noise  two identical measurements differed by {worst:.1} % at most; {rest}"
            ),
        );
    }
}

/// The largest difference between two arms that do the same, in percent.
fn worst_twin(twins: &[NamedContrast]) -> Option<f64> {
    let off = twins
        .iter()
        .map(|twin| (twin.ratio.point - 1.0).abs() * 100.0);
    off.max_by(f64::total_cmp)
}

fn push_prices(section: Section, rows: &[&Price], page: &mut String) {
    if section != Section::Switch {
        line(page, format_args!("\n{}", section.title()));
        return push_rows(rows, page);
    }
    let of = |policy| -> Vec<&Price> {
        let is_such = |price: &&&Price| price.policy == Some(policy);
        rows.iter().filter(is_such).copied().collect()
    };
    for (policy, title) in [
        (
            Policy::Batch,
            "A switch between two tasks of one CPU (SCHED_BATCH: a hop is one switch)",
        ),
        (
            Policy::Default,
            "The same as applications see it (default policy: who is woken may preempt)",
        ),
        (Policy::Fifo, "The same under SCHED_FIFO"),
    ] {
        let rows = of(policy);
        if !rows.is_empty() {
            line(page, format_args!("\n{title}"));
            push_rows(&rows, page);
        }
    }
}

fn push_rows(rows: &[&Price], page: &mut String) {
    let is_ring = rows.iter().any(|price| price.members.is_some());
    let shown = OptionalColumns {
        members: is_ring,
        places: rows
            .iter()
            .any(|price| price.place.is_some_and(Place::is_remote)),
        net: rows.iter().any(|price| price.net_ns.is_some()),
    };
    let mut head = vec![("kind", CellAlignment::Left)];
    if shown.members {
        head.push(("between", CellAlignment::Left));
    }
    if shown.places {
        head.push(("where", CellAlignment::Left));
    }
    if shown.net {
        head.extend([("net", CellAlignment::Right), ("±", CellAlignment::Right)]);
    }
    let (time, count) = match is_ring {
        true => ("hand-off", "switches/hop"),
        false => ("time", "switches"),
    };
    for name in [time, "±", count, "× system call"] {
        head.push((name, CellAlignment::Right));
    }
    head.push(("", CellAlignment::Left));
    let head: Vec<_> = head
        .into_iter()
        .map(|(name, side)| (name.to_owned(), side))
        .collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|price| cells(price, &shown)).collect();
    for row in text::columns(&head, &rows, None) {
        line(page, format_args!("{row}"));
    }
}

/// Columns that not every section has.
struct OptionalColumns {
    members: bool,
    places: bool,
    net: bool,
}

fn cells(price: &Price, shown: &OptionalColumns) -> Vec<String> {
    let word = |word: Option<&'static str>| word.unwrap_or("-").to_owned();
    let mut cells = vec![price.kind.clone()];
    if shown.members {
        cells.push(word(price.members.map(Members::as_str)));
    }
    if shown.places {
        cells.push(word(price.place.map(Place::as_str)));
    }
    if shown.net {
        let (net, reach) = price.net_ns.as_ref().map_or_else(dashes, point_and_reach);
        cells.extend([net, reach]);
    }
    let (hand_off, reach) = point_and_reach(&price.hand_off_ns);
    cells.extend([hand_off, reach, switches(price)]);
    cells.push(price.system_calls.map_or_else(
        || "-".to_owned(),
        |ratio| format!("{ratio:.*}", if ratio < 1.0 { 2 } else { 1 }),
    ));
    cells.push(match &price.per {
        PriceUnit::Operation(_) if shown.members => "per operation".to_owned(),
        _ => String::new(),
    });
    cells
}

fn dashes() -> (String, String) {
    ("-".to_owned(), "-".to_owned())
}

/// The point, and how far the interval reaches from it.
fn point_and_reach(estimate: &Estimate) -> (String, String) {
    let reach = (estimate.high - estimate.point).max(estimate.point - estimate.low);
    (nanos(estimate.point), nanos(reach))
}

/// Switches per operation: voluntary and involuntary ones apart if there are both, else their sum.
fn switches(price: &Price) -> String {
    let (voluntary, involuntary) = (price.voluntary_per_op, price.involuntary_per_op);
    let total = voluntary + involuntary;
    if price.members.is_none() && total < 0.0005 {
        "0".to_owned()
    } else if involuntary < 0.0005 || voluntary < 0.0005 {
        format!("{total:.3}")
    } else {
        format!("{voluntary:.2} + {involuntary:.2}")
    }
}

fn push_contrasts(list: &PriceList, page: &mut String) {
    if list.contrasts.is_empty() {
        return;
    }
    line(page, format_args!("\n{}", Section::Contrast.title()));
    let head = [
        ("what", CellAlignment::Left),
        ("adds", CellAlignment::Right),
        ("from", CellAlignment::Right),
        ("to", CellAlignment::Right),
        ("×", CellAlignment::Right),
        ("", CellAlignment::Left),
        ("", CellAlignment::Left),
    ];
    let head = head.map(|(name, side)| (name.to_owned(), side));
    let row = |contrast: &NamedContrast| {
        let difference = &contrast.difference_ns;
        vec![
            contrast.name.clone(),
            nanos(difference.point),
            nanos(difference.low),
            nanos(difference.high),
            format!("{:.3}", contrast.ratio.point),
            contrast.verdict.to_string(),
            match &contrast.proof {
                Some(proof) => format!("{} ({proof})", contrast.about),
                None => contrast.about.clone(),
            },
        ]
    };
    let rows: Vec<_> = list.contrasts.iter().map(row).collect();
    for row in text::columns(&head, &rows, None) {
        line(page, format_args!("{row}"));
    }
}

fn push_kernel_share(list: &PriceList, page: &mut String) {
    if list.kernel_share.is_empty() {
        return;
    }
    line(
        page,
        format_args!(
            "\nOf a switch, inside the scheduler: __schedule() from its entry to its exit in the next task"
        ),
    );
    let names = [
        "kind",
        "between",
        "share",
        "±",
        "of net",
        "±",
        "net",
        "probes",
        "slow-down",
        "p50",
        "p99",
        "switches",
    ];
    let side = |index| {
        if index < 2 {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        }
    };
    let head = names.iter().enumerate();
    let head: Vec<_> = head
        .map(|(index, name)| ((*name).to_owned(), side(index)))
        .collect();
    let row = |row: &KernelShareRow| {
        let (share, half) = point_and_reach(&row.share_ns);
        let pct = &row.share_pct_of_net;
        let pct_half = (pct.high - pct.point).max(pct.point - pct.low);
        let length = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), nanos);
        vec![
            row.kind.clone(),
            row.members.to_string(),
            share,
            half,
            format!("{:.1} %", pct.point),
            format!("{pct_half:.1} %"),
            nanos(row.net_ns.point),
            nanos(row.probe_ns.point),
            nanos(row.slow_down_ns.point),
            length(row.p50_ns),
            length(row.p99_ns),
            row.switches.to_string(),
        ]
    };
    let rows: Vec<_> = list.kernel_share.iter().map(row).collect();
    for row in text::columns(&head, &rows, None) {
        line(page, format_args!("{row}"));
    }
    line(
        page,
        format_args!(
            "share: a mean without what the probes themselves add to it (probes); p50 and p99 have that. Not in it: the system call, waking the other task, \
             the way out of the kernel. slow-down: of the hand-off by all probes; net is without them."
        ),
    );
}

/// Adds at which ring size address-space identifiers run out.
fn push_cliff(list: &PriceList, page: &mut String) {
    let has_rings = list.curves.iter().any(|curve| curve.figure == "tlb");
    match &list.cliff {
        Some(cliff) => line(
            page,
            format_args!(
                "Address-space identifiers run out between {} and {} processes: each hop then costs {} more.",
                cliff.last_before,
                cliff.first_behind,
                nanos(cliff.rise_ns)
            ),
        ),
        None if has_rings => line(
            page,
            format_args!(
                "No size of the ring was found at which address-space identifiers run out."
            ),
        ),
        None => {}
    }
}

/// Adds what the CPU could have done in the time of one switch.
fn push_displaced(list: &PriceList, page: &mut String) {
    let switch = list.prices.iter().find(|price| {
        price.kind == Primitive::FutexShared.as_str()
            && price.members == Some(Members::Processes)
            && price.policy == Some(Policy::Batch)
            && price.place == Some(Place::SameCpu)
    });
    let Some(net) = switch.and_then(|price| price.net_ns) else {
        return;
    };
    let mut instead = Vec::new();
    if let Some(per_second) = fact(list, TICKS) {
        instead.push(format!(
            "{:.0} ticks of the CPU's clock counter",
            net.point * per_second / 1e9
        ));
    }
    for (kind, words) in [
        ("empty call", "empty calls"),
        ("system-call", "system calls"),
        ("copy of 64 KiB", "copies of 64 KiB"),
    ] {
        if let Some(price) = list.prices.iter().find(|price| price.kind == kind) {
            let times = net.point / price.hand_off_ns.point;
            instead.push(format!("{times:.*} {words}", usize::from(times < 100.0)));
        }
    }
    line(
        page,
        format_args!(
            "\nA switch between two processes ({} net, futex-shared) takes the time of {}. {}",
            nanos(net.point),
            instead.join(", "),
            instructions(list, net.point)
        ),
    );
}

/// A sentence on the instructions that the CPU could run in that time.
fn instructions(list: &PriceList, ns: f64) -> String {
    match (fact(list, CHAINED), fact(list, INDEPENDENT)) {
        (Some(chained), Some(independent)) => format!(
            "In that time the CPU could run {:.0} instructions that wait for one another, or {:.0} that do not.",
            ns * chained,
            ns * independent
        ),
        _ => "Instructions are not counted: this machine shows us no hardware counters.".to_owned(),
    }
}

/// The value of a fact that is a number.
fn fact(list: &PriceList, name: &str) -> Option<f64> {
    let fact = list.facts.iter().find(|fact| fact.name == name)?;
    fact.value.as_ref()?.parse().ok()
}

/// Notes that a reader needs to interpret the numbers.
fn push_notes(list: &PriceList, page: &mut String) {
    page.push('\n');
    line(
        page,
        format_args!(
            "net: hand-off less the same calls without a peer. ±: how far a 95 % interval reaches, over the process trees of this session; between sessions the speed of the machine may move by more."
        ),
    );
    if let Some(policy) = list.session.contrast_policy
        && !(list.contrasts.is_empty() && list.curves.is_empty())
    {
        line(
            page,
            format_args!(
                "Contrasts and curves were measured under the policy {policy}, cgroups under batch."
            ),
        );
    }
    let mut reasons: Vec<(&str, String)> = Vec::new();
    for price in &list.prices {
        let PriceUnit::Operation(why) = &price.per else {
            continue;
        };
        if price.members.is_some() && !reasons.iter().any(|(_, known)| known == why) {
            reasons.push((&price.kind, why.clone()));
        }
    }
    for (kind, why) in reasons {
        line(page, format_args!("per operation ({kind}): {why}"));
    }
    push_idle_facts(list, page);
    for missing in &list.missing {
        let words = format!("not here: {}: {}", missing.kind, missing.why);
        line(page, format_args!("{}", escaped(&words)));
    }
    let session = &list.session;
    let unresolved = match (session.was_interrupted, list.has_values()) {
        _ if session.is_resolved => return,
        (true, _) => "it was ended early; with fewer than 6 process trees, ± covers only those",
        (false, false) => "nothing of what was asked for could be measured",
        (false, true) => {
            "an interval is wider than 5 % of its price, or arms that do the same differ; measure \
             again on a quieter machine, or with --thorough"
        }
    };
    line(page, format_args!("unresolved: {unresolved}"));
}

/// Adds how idle CPUs wait: remote wake-ups depend on that beside the primitive.
fn push_idle_facts(list: &PriceList, page: &mut String) {
    let has_remote = |price: &Price| price.place.is_some_and(Place::is_remote);
    if !list.prices.iter().any(has_remote) {
        return;
    }
    let is_of_idle = |fact: &&PriceFact| fact.name.contains("idle") || fact.name == "hypervisor";
    let facts: Vec<String> = list
        .facts
        .iter()
        .filter(is_of_idle)
        .filter_map(|fact| Some(format!("{} {}", fact.name, fact.value.as_ref()?)))
        .collect();
    let words = format!("idle CPUs here: {}", facts.join("; "));
    line(page, format_args!("{}", escaped(&words)));
}
