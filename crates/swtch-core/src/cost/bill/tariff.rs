//! Chooses the price of the list at which a switch is billed.
//!
//! The prices used are those of two members on one CPU under `SCHED_BATCH`, for which the kernel
//! counted one switch per hop. They are net of the system calls, which belong to the program.
//!
//! | reason | billed as | |
//! |---|---|---|
//! | pipe, net, poll, ipc, yield | its own primitive | measured |
//! | futex | its own primitive, with its calls | measured |
//! | other waits, locks of the kernel too | the plainest wait: a futex | estimated |
//! | preemptions | a yield with its scheduler pass: no blocking, no wake-up | estimated |
//!
//! Some calls do belong to the switch:
//!
//! - A lock calls the kernel only when a task has to wait or is waiting: without the switch there
//!   would be no call of futex.
//! - The calls of a yield are measured where nothing else is runnable, so they include a pass
//!   through the scheduler without a switch. A preempted task called nothing: the pass belongs to
//!   the switch. Only the cost of an empty system call does not.

use super::{Case, Successor};
use crate::cost::estimate::Estimate;
use crate::cost::kind::{Members, Place, Policy, Primitive};
use crate::cost::price::{Price, PriceList, PriceUnit};
use crate::reason::{Category, Reason};

/// The price at which one switch is billed.
#[derive(Clone, Debug, PartialEq)]
pub struct Tariff {
    /// Cost of the switch itself, in ns.
    pub direct: DirectCost,
    /// The price that is used, in words: `pipe between threads, same CPU, batch`.
    pub source: String,
    /// The basis of that price: measured for this kind of switch, or for another.
    pub basis: Basis,
}

/// The basis of a tariff: measured or estimated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The list holds the price of this kind of switch.
    Measured,
    /// The price of another kind is used instead, for these reasons.
    Estimated(Vec<String>),
}

/// A direct cost with its interval, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DirectCost {
    /// Lower end of the interval, ns.
    pub low_ns: f64,
    /// The point estimate in nanoseconds.
    pub point_ns: f64,
    /// Upper end of the interval, ns.
    pub high_ns: f64,
}

impl DirectCost {
    /// The estimate as a cost; `None` when no switch can cost that. Ends below 0 become 0.
    fn new(estimate: &Estimate) -> Option<Self> {
        let Estimate {
            low, point, high, ..
        } = *estimate;
        let is_ordered = low <= point && point <= high;
        let is_known = low.is_finite() && high.is_finite();
        (is_ordered && is_known && high > 0.0).then_some(Self {
            low_ns: low.max(0.0),
            point_ns: point.max(0.0),
            high_ns: high,
        })
    }

    /// The cost of this many switches.
    #[must_use]
    pub fn times(self, switches: f64) -> Self {
        Self {
            low_ns: self.low_ns * switches,
            point_ns: self.point_ns * switches,
            high_ns: self.high_ns * switches,
        }
    }

    /// The sum of both, end by end: errors of prices do not average out.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            low_ns: self.low_ns + other.low_ns,
            point_ns: self.point_ns + other.point_ns,
            high_ns: self.high_ns + other.high_ns,
        }
    }

    /// The cost minus another, with the widest interval that both allow; never below 0.
    #[must_use]
    fn less(self, other: Self) -> Self {
        Self {
            low_ns: (self.low_ns - other.high_ns).max(0.0),
            point_ns: (self.point_ns - other.point_ns).max(0.0),
            high_ns: (self.high_ns - other.low_ns).max(0.0),
        }
    }
}

/// The reason why a wait without a price of its own is billed as the plainest one.
const PLAINEST: &str = "not measured; the price of the cheapest wait is used, which is rather too \
                        little";

/// The reason why a preemption is billed as a yield.
const PREEMPTED: &str = "preemptions are priced as a plain switch; those caused by a wake-up cost \
                         a little more";

/// The reason why a switch to idle is billed as one between threads.
const TO_IDLE: &str = "going idle and coming back is priced as one switch between threads: nobody \
                       else wanted the CPU, and idle keeps the address space";

/// The reason why a switch to an unknown task is billed as one to another process.
const TO_UNKNOWN: &str = "who came next is not known; another process is assumed";

/// The tariff at which a case is billed, or why there is none.
pub(super) fn resolve(list: &PriceList, case: Case) -> Result<Tariff, String> {
    let members = match case.successor {
        Successor::SameProcess | Successor::Idle => Members::Threads,
        Successor::OtherProcess | Successor::Unknown => Members::Processes,
    };
    let mut choice = choose(list, case.reason, members)?;
    choice.offer.add_calls(list, Calls::of(case.reason));
    match case.successor {
        Successor::SameProcess | Successor::OtherProcess => {}
        Successor::Idle => choice.whys.push(TO_IDLE.to_owned()),
        Successor::Unknown => choice.whys.push(TO_UNKNOWN.to_owned()),
    }
    Ok(choice.into_tariff())
}

/// A price, and the reasons for which it is only an estimate.
struct Choice {
    offer: Offer,
    whys: Vec<String>,
}

impl Choice {
    fn into_tariff(self) -> Tariff {
        let Offer {
            primitive,
            members,
            direct,
            with,
            ..
        } = self.offer;
        Tariff {
            direct,
            source: format!("{primitive} between {members}, same CPU, batch{with}"),
            basis: match self.whys.is_empty() {
                true => Basis::Measured,
                false => Basis::Estimated(self.whys),
            },
        }
    }
}

fn choose(list: &PriceList, reason: Reason, members: Members) -> Result<Choice, String> {
    use Primitive::{Epoll, FutexShared, MessageQueue, Pipe, SocketPair, SysvSemaphore, Yield};
    match reason {
        Reason::Futex => own(list, &[FutexShared], members),
        Reason::Ipc => own(list, &[SysvSemaphore, MessageQueue], members),
        Reason::Pipe => own(list, &[Pipe], members),
        Reason::Net => own(list, &[SocketPair], members),
        Reason::Poll => own(list, &[Epoll], members),
        Reason::Yield => either(list, Yield, members),
        Reason::Slice
        | Reason::Wakeup
        | Reason::Class
        | Reason::Throttle
        | Reason::Migrate
        | Reason::Other
        | Reason::Policy
        | Reason::Preempted => {
            let mut choice = either(list, Yield, members)?;
            choice.whys.insert(0, PREEMPTED.to_owned());
            Ok(choice)
        }
        // A lock of the kernel is no futex, and costs no call of its own: the call was made anyway.
        Reason::Lock
        | Reason::Io
        | Reason::Sleep
        | Reason::Fault
        | Reason::Child
        | Reason::Stop
        | Reason::Exit
        | Reason::Unknown
        | Reason::Preemptive
        | Reason::Blocked => plainest(list, members),
    }
}

/// The first of a wait's own primitives that the list holds; without any, the plainest wait.
fn own(list: &PriceList, own: &[Primitive], members: Members) -> Result<Choice, String> {
    let mut refusals = Vec::new();
    for primitive in own {
        match either(list, *primitive, members) {
            Ok(choice) => return Ok(choice),
            Err(refusal) => refusals.push(refusal),
        }
    }
    let mut choice = plainest(list, members)?;
    choice.whys.splice(0..0, refusals);
    Ok(choice)
}

/// The price of a futex; where the list lacks it, of the cheapest wait that it holds.
fn plainest(list: &PriceList, members: Members) -> Result<Choice, String> {
    let mut choice = either(list, Primitive::FutexShared, members)
        .or_else(|refusal| cheapest(list, members).ok_or(refusal))?;
    choice.whys.insert(0, PLAINEST.to_owned());
    Ok(choice)
}

fn cheapest(list: &PriceList, members: Members) -> Option<Choice> {
    let waits = Primitive::ALL
        .iter()
        .filter(|one| **one != Primitive::Yield);
    let choices = waits.filter_map(|primitive| either(list, *primitive, members).ok());
    // A price between the wanted members comes before one between others.
    choices.min_by(|a, b| {
        let by_fit = a.whys.len().cmp(&b.whys.len());
        by_fit.then(a.offer.direct.point_ns.total_cmp(&b.offer.direct.point_ns))
    })
}

/// The price between these members; where the list lacks it, that between the others.
fn either(list: &PriceList, primitive: Primitive, members: Members) -> Result<Choice, String> {
    let refusal = match offer(list, primitive, members) {
        Ok(offer) => {
            let whys = Vec::new();
            return Ok(Choice { offer, whys });
        }
        Err(refusal) => refusal,
    };
    let others = match members {
        Members::Threads => Members::Processes,
        Members::Processes => Members::Threads,
    };
    match offer(list, primitive, others) {
        Ok(offer) => Ok(Choice {
            offer,
            whys: vec![format!("{refusal}; that between {others} stands for it")],
        }),
        Err(_) => Err(refusal),
    }
}

/// The part of the primitive's calls that belongs to the switch.
#[derive(Clone, Copy)]
enum Calls {
    /// No part of the calls: the program calls in any case.
    None,
    /// All of the calls: without the switch there would be none.
    OfFutex,
    /// The part that exceeds an empty system call.
    OfYield,
}

impl Calls {
    fn of(reason: Reason) -> Self {
        match reason {
            Reason::Futex => Self::OfFutex,
            reason if reason.category() == Category::Preemption => Self::OfYield,
            _ => Self::None,
        }
    }
}

/// Kind of the price of an empty system call.
const SYSTEM_CALL: &str = "system-call";

/// A price that a switch can be billed at.
struct Offer {
    primitive: Primitive,
    members: Members,
    /// Cost of the calls when no task has to wait.
    calls: Option<DirectCost>,
    direct: DirectCost,
    /// The words for what was added to the net price.
    with: &'static str,
}

impl Offer {
    /// Adds the part of the calls that belongs to the switch; nothing where another primitive is
    /// used instead, or where the list does not tell.
    fn add_calls(&mut self, list: &PriceList, part: Calls) {
        let Some(calls) = self.calls else { return };
        let (added, with) = match (part, self.primitive) {
            (Calls::OfFutex, Primitive::FutexShared) => (Some(calls), ", with its calls"),
            (Calls::OfYield, Primitive::Yield) => {
                let empty = list.prices.iter().find(|price| price.kind == SYSTEM_CALL);
                let empty = empty.and_then(|price| DirectCost::new(&price.hand_off_ns));
                let pass = empty.map(|empty| calls.less(empty));
                (pass, ", with its pass through the scheduler")
            }
            _ => (None, ""),
        };
        if let Some(added) = added {
            self.direct = self.direct.plus(added);
            self.with = with;
        }
    }
}

fn offer(list: &PriceList, primitive: Primitive, members: Members) -> Result<Offer, String> {
    let is_it = |price: &&Price| {
        price.kind == primitive.as_str()
            && price.members == Some(members)
            && price.count == Some(2)
            && price.place == Some(Place::SameCpu)
            && price.policy == Some(Policy::Batch)
    };
    let name = format!("price of {primitive} between {members}");
    let price = list.prices.iter().find(is_it);
    let price = price.ok_or_else(|| format!("the list holds no {name}"))?;
    if let PriceUnit::Operation(because) = &price.per {
        return Err(format!("the list's {name} is not per switch: {because}"));
    }
    let net = price.net_ns.as_ref();
    let net = net.ok_or_else(|| format!("the list's {name} is not net of its calls"))?;
    let direct = DirectCost::new(net);
    let direct =
        direct.ok_or_else(|| format!("the list's {name} is none that a switch can have"))?;
    let calls = price.baseline_ns.as_ref().and_then(DirectCost::new);
    Ok(Offer {
        primitive,
        members,
        calls,
        direct,
        with: "",
    })
}

#[cfg(test)]
mod tests {
    use super::super::drawn::{case, estimate, list, price};
    use super::*;

    const FLAT: [f64; 3] = [100.0, 100.0, 100.0];

    fn tariff(list: &PriceList, reason: Reason, successor: Successor) -> Tariff {
        resolve(list, case(reason, successor)).unwrap()
    }

    fn why(tariff: Tariff) -> String {
        match tariff.basis {
            Basis::Measured => panic!("{} is measured", tariff.source),
            Basis::Estimated(whys) => whys.join("; "),
        }
    }

    /// Every primitive between threads and between processes, each at a price of its own.
    fn whole() -> PriceList {
        let mut whole = list(&[]);
        for (place, primitive) in (1_u32..).zip(Primitive::ALL) {
            let point = f64::from(place) * 10.0;
            let processes = point + 1000.0;
            whole.prices.extend([
                price(
                    primitive.as_str(),
                    "threads",
                    [point - 1.0, point, point + 2.0],
                ),
                price(primitive.as_str(), "processes", [processes; 3]),
            ]);
        }
        whole
    }

    #[test]
    fn each_wait_is_billed_as_its_own_primitive() {
        let expected = [
            (Reason::Futex, "futex-shared"),
            (Reason::Ipc, "sysv-semaphore"),
            (Reason::Pipe, "pipe"),
            (Reason::Net, "socketpair"),
            (Reason::Poll, "epoll"),
            (Reason::Yield, "yield"),
        ];
        for (reason, primitive) in expected {
            for (successor, members) in [
                (Successor::SameProcess, "threads"),
                (Successor::OtherProcess, "processes"),
            ] {
                let tariff = tariff(&whole(), reason, successor);
                let source = format!("{primitive} between {members}, same CPU, batch");
                assert_eq!((tariff.source, tariff.basis), (source, Basis::Measured));
            }
        }
    }

    #[test]
    fn no_reason_is_left_without_a_price_of_a_whole_list() {
        for case in Case::all() {
            let tariff = resolve(&whole(), case).unwrap();
            let own = matches!(
                case.reason,
                Reason::Futex | Reason::Ipc | Reason::Pipe | Reason::Net | Reason::Poll
            ) || case.reason == Reason::Yield;
            let is_known = matches!(
                case.successor,
                Successor::SameProcess | Successor::OtherProcess
            );
            assert_eq!(tariff.basis == Basis::Measured, own && is_known, "{case:?}");
        }
    }

    #[test]
    fn a_preemption_is_a_switch_without_a_wait() {
        for reason in [
            Reason::Slice,
            Reason::Wakeup,
            Reason::Migrate,
            Reason::Other,
        ] {
            let tariff = tariff(&whole(), reason, Successor::OtherProcess);
            assert_eq!(tariff.source, "yield between processes, same CPU, batch");
            assert!(why(tariff).contains("a plain switch"));
        }
    }

    /// A price whose calls have this cost.
    fn with_calls(kind: &str, net: [f64; 3], calls: [f64; 3]) -> Price {
        Price {
            baseline_ns: Some(estimate(calls)),
            ..price(kind, "threads", net)
        }
    }

    /// 700 net and 200 for wait and wake-up. A sleep makes its call in any case.
    #[test]
    fn without_the_switch_nobody_would_call_futex() {
        let mut list = list(&[]);
        let futex = with_calls("futex-shared", [690.0, 700.0, 720.0], [195.0, 200.0, 210.0]);
        list.prices.push(futex);
        let futex = tariff(&list, Reason::Futex, Successor::SameProcess);
        let expected = DirectCost {
            low_ns: 885.0,
            point_ns: 900.0,
            high_ns: 930.0,
        };
        assert_eq!((futex.direct, futex.basis), (expected, Basis::Measured));
        assert_eq!(
            futex.source,
            "futex-shared between threads, same CPU, batch, with its calls"
        );
        let sleep = tariff(&list, Reason::Sleep, Successor::SameProcess);
        assert_eq!(sleep.direct.point_ns, 700.0);
    }

    /// 300 net, and of the 130 of a call that finds nothing else runnable all but the 50 of an
    /// empty call. A task that yields makes its call in any case.
    #[test]
    fn a_preempted_task_did_not_ask_for_the_pass_through_the_scheduler() {
        let mut list = list(&[]);
        let system_call = Price {
            hand_off_ns: estimate([48.0, 50.0, 54.0]),
            net_ns: None,
            per: PriceUnit::Operation("no hand-over".into()),
            ..price("system-call", "none", [0.0; 3])
        };
        let waits = with_calls("yield", [290.0, 300.0, 310.0], [124.0, 130.0, 132.0]);
        list.prices.extend([waits, system_call]);
        let slice = tariff(&list, Reason::Slice, Successor::SameProcess);
        let expected = DirectCost {
            low_ns: 360.0,
            point_ns: 380.0,
            high_ns: 394.0,
        };
        assert_eq!(slice.direct, expected);
        assert!(
            slice
                .source
                .ends_with("with its pass through the scheduler")
        );
        let yielded = tariff(&list, Reason::Yield, Successor::SameProcess);
        assert_eq!(yielded.direct.point_ns, 300.0);
        assert_eq!(yielded.source, "yield between threads, same CPU, batch");
        list.prices.pop();
        let slice = tariff(&list, Reason::Slice, Successor::SameProcess);
        assert_eq!(slice.direct.point_ns, 300.0, "nothing tells the pass");
    }

    #[test]
    fn other_waits_are_billed_as_the_plainest_one_and_said_so() {
        for reason in [
            Reason::Sleep,
            Reason::Io,
            Reason::Lock,
            Reason::Exit,
            Reason::Unknown,
        ] {
            let tariff = tariff(&whole(), reason, Successor::SameProcess);
            assert_eq!(
                tariff.source,
                "futex-shared between threads, same CPU, batch"
            );
            assert!(why(tariff).contains("rather too little"));
        }
    }

    #[test]
    fn idle_keeps_the_address_space_and_is_an_estimate() {
        let tariff = tariff(&whole(), Reason::Pipe, Successor::Idle);
        assert_eq!(tariff.source, "pipe between threads, same CPU, batch");
        assert!(why(tariff).contains("going idle and coming back"));
    }

    #[test]
    fn somebody_unknown_is_taken_for_another_process() {
        let tariff = tariff(&whole(), Reason::Pipe, Successor::Unknown);
        assert_eq!(tariff.source, "pipe between processes, same CPU, batch");
        assert!(why(tariff).contains("not known"));
    }

    #[test]
    fn a_message_queue_stands_for_a_semaphore_that_is_not_listed() {
        let list = list(&[("message-queue", "threads", FLAT)]);
        let tariff = tariff(&list, Reason::Ipc, Successor::SameProcess);
        assert_eq!(
            tariff.source,
            "message-queue between threads, same CPU, batch"
        );
        assert_eq!(tariff.basis, Basis::Measured);
    }

    #[test]
    fn a_short_list_estimates_and_names_what_it_lacks() {
        let list = list(&[("futex-shared", "threads", FLAT)]);
        let pipe = why(tariff(&list, Reason::Pipe, Successor::SameProcess));
        assert!(
            pipe.starts_with("the list holds no price of pipe between threads"),
            "{pipe}"
        );
        let other = why(tariff(&list, Reason::Futex, Successor::OtherProcess));
        assert!(
            other.contains("that between threads stands for it"),
            "{other}"
        );
    }

    #[test]
    fn without_a_futex_the_cheapest_wait_is_the_plainest() {
        let list = list(&[
            ("pipe", "threads", [300.0; 3]),
            ("condvar", "threads", [200.0; 3]),
            ("eventfd", "processes", [50.0; 3]),
            ("yield", "threads", [10.0; 3]),
        ]);
        let tariff = tariff(&list, Reason::Sleep, Successor::SameProcess);
        assert_eq!(tariff.source, "condvar between threads, same CPU, batch");
    }

    #[test]
    fn a_list_without_waits_says_what_is_missing() {
        let list = list(&[("yield", "threads", FLAT)]);
        let refusal = resolve(&list, case(Reason::Sleep, Successor::SameProcess)).unwrap_err();
        assert_eq!(
            refusal,
            "the list holds no price of futex-shared between threads"
        );
        let refusal = resolve(
            &super::super::drawn::list(&[]),
            case(Reason::Slice, Successor::Idle),
        );
        assert_eq!(
            refusal.unwrap_err(),
            "the list holds no price of yield between threads"
        );
    }

    /// Rings on other CPUs, under other policies, of more members, and prices per operation.
    #[test]
    fn only_prices_of_one_switch_on_one_cpu_count() {
        let refusal = |change: fn(&mut Price)| {
            let mut only = list(&[("yield", "threads", FLAT)]);
            change(&mut only.prices[0]);
            resolve(&only, case(Reason::Yield, Successor::SameProcess)).unwrap_err()
        };
        assert!(refusal(|p| p.place = Some(Place::SameCache)).contains("holds no price"));
        assert!(refusal(|p| p.policy = Some(Policy::Fifo)).contains("holds no price"));
        assert!(refusal(|p| p.count = Some(4)).contains("holds no price"));
        assert!(refusal(|p| p.net_ns = None).contains("not net of its calls"));
        let counted = refusal(|p| p.per = PriceUnit::Operation("2 switches a hop".into()));
        assert!(
            counted.ends_with("is not per switch: 2 switches a hop"),
            "{counted}"
        );
    }

    /// Lists are files, and files can hold any number.
    #[test]
    fn a_number_that_no_switch_can_cost_is_no_price() {
        let with = |net: [f64; 3]| {
            let list = list(&[("yield", "threads", net)]);
            resolve(&list, case(Reason::Yield, Successor::SameProcess))
        };
        assert!(with([f64::NAN; 3]).is_err());
        assert!(with([1.0, 2.0, f64::INFINITY]).is_err());
        assert!(with([3.0, 2.0, 1.0]).is_err());
        assert!(with([-3.0, -2.0, -1.0]).is_err());
        let near_zero = with([-3.0, 1.0, 5.0]).unwrap().direct;
        assert_eq!((near_zero.low_ns, near_zero.point_ns), (0.0, 1.0));
    }
}
