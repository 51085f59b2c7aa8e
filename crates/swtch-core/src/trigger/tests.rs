use super::*;
use crate::ids::{CgroupId, CpuId};
use crate::syscall::{Arch, SyscallTable};
use crate::timeline::Timeline;
use crate::units::Timestamp;
use crate::wait::WaitEvidence;
use crate::{Evidence, SwitchEvent, TaskKey};

/// A thread of `web-3` that was woken at 5 ms, came to CPU 1 at 36 ms and left it at 40 ms, still
/// runnable; it had left at 2 ms.
fn row() -> Switch {
    let at = |ms: u64| Timestamp::from_ns(ms * 1_000_000);
    let event = SwitchEvent {
        ts: at(40),
        cpu: CpuId::new(1),
        task: Some(TaskKey::new(7)),
        next_task: Some(TaskKey::IDLE),
        run_start: Some(at(36)),
        charged: None,
        irq: Nanos::ZERO,
        evidence: Evidence::RUNNABLE,
        cgroup: CgroupId::new(1),
        user_word: None,
        wait: WaitEvidence {
            out: Some(at(2)),
            woken: Some(at(5)),
            ..WaitEvidence::default()
        },
        kernel_count: 1,
        in_scope: true,
    };
    let calls = SyscallTable::of(Arch::X86_64);
    let row = Timeline::new(calls).row(&event);
    row.expect("the task has a name")
}

fn holds(words: &str) -> bool {
    let switch = row();
    let thread = TriggerThread {
        pid: Pid::new(12),
        tid: Tid::new(15),
        comm: "web-3",
    };
    let moment = TriggerMoment::of_switch(&switch, Some(thread), 250_000);
    let trigger: Trigger = words.parse().expect(words);
    assert_eq!(trigger.to_string(), words);
    trigger.holds(&moment)
}

#[test]
fn fields_are_compared_with_values() {
    for words in [
        "runq > 20ms",
        "runq = 31ms",
        "off >= 34ms",
        "off<=34ms",
        "blocked = 3ms",
        "ran < 5ms",
        "cpu = 1",
        "pid = 12",
        "tid != 12",
        "switches/s > 200k",
        "switches/s < 0.3M",
        "comm = web-3",
        "comm ~ ^web",
        "comm ~ '^(web|db)-[0-9]$'",
        "comm != \"db 1\"",
        "reason != throttle",
    ] {
        assert!(holds(words), "{words}");
    }
    for words in [
        "runq > 31ms",
        "comm ~ ^eb",
        "comm = web",
        "switches/s > 250k",
    ] {
        assert!(!holds(words), "{words}");
    }
}

#[test]
fn conditions_are_joined_and_binds_closer() {
    assert!(holds("off > 30ms & comm ~ ^web"));
    assert!(!holds("off > 1s & comm ~ ^web"));
    assert!(holds("off > 1s & comm ~ ^db | cpu = 1"));
    assert!(!holds("off > 1s & (comm ~ ^db | cpu = 1)"));
    assert!(holds("!(off > 1s) && !cpu = 2 || pid = 1"));
}

/// Of a run that began before the recording no length is known, so none is long or short.
#[test]
fn what_is_not_known_meets_no_comparison() {
    let mut switch = row();
    switch.ran = None;
    let moment = TriggerMoment::of_switch(&switch, None, 0);
    for words in ["ran > 0", "ran <= 1s", "comm != x", "comm ~ .", "pid != 1"] {
        let trigger: Trigger = words.parse().unwrap();
        assert!(!trigger.holds(&moment), "{words}");
    }
}

/// The sentence, and the characters that are marked.
fn mistake(words: &str) -> (String, String) {
    let mistake = words.parse::<Trigger>().expect_err(words);
    let marked = words.chars().skip(mistake.at).take(mistake.length);
    (mistake.what.clone(), marked.collect())
}

#[test]
fn mistakes_are_pointed_at() {
    for (words, what, marked) in [
        ("runqq > 20ms", "there is no field runqq", "runqq"),
        ("runq > 20", "a length of time with a unit", "20"),
        ("runq ~ 20ms", "runq is compared by =, !=", "~"),
        ("runq 20ms", "an operator is missing", "2"),
        ("runq >", "a value is missing here", ""),
        ("", "a field is missing here", ""),
        ("off > 1s &", "a field is missing here", ""),
        ("off > 1s cpu = 1", "an & or | is missing", "c"),
        ("(off > 1s", "the ) for this is missing", "("),
        ("off > 1s)", "an & or | is missing", ")"),
        ("reason = throtle", "there is no such reason: ", "throtle"),
        ("reason > throttle", "reason is compared by = or !=", ">"),
        ("comm ~ [", "this is no pattern", "["),
        ("comm = 'a", "the quote is not closed", "'"),
        ("pid = x", "needs to be a number", "x"),
        ("switches/s > -1", "needs to be a number", "-1"),
        ("über > 1ms", "there is no field über", "über"),
    ] {
        let (said, at) = mistake(words);
        assert!(said.contains(what), "{words}: {said}");
        assert_eq!(at, marked, "{words}");
    }
}

#[test]
fn the_place_of_a_mistake_is_marked_below_it() {
    let mistake = "off > 1s & runq > 20".parse::<Trigger>().unwrap_err();
    let expected = "this needs to be a length of time with a unit: 20ms, 1.5s, 50us\n  \
                    off > 1s & runq > 20\n                    ^^";
    assert_eq!(mistake.to_string(), expected);
}

/// A crafted condition must not use up the stack.
#[test]
fn levels_have_an_end() {
    let deep = format!("{}cpu = 1{}", "(".repeat(1000), ")".repeat(1000));
    assert!(mistake(&deep).0.contains("too many"));
    assert!(mistake(&"!".repeat(1000)).0.contains("too many"));
    let wide = vec!["!(cpu = 2)"; 1000].join(" & ");
    assert!(holds(&wide));
}

/// Of a wait that lasts, only its length can come to meet a condition.
#[test]
fn conditions_on_lengths_of_waits_are_asked_while_a_wait_lasts() {
    let is_about_waits = |words: &str| words.parse::<Trigger>().expect(words).is_about_waits();
    for words in [
        "off > 1s",
        "blocked > 1s & comm ~ ^web",
        "!(off < 1s) | cpu = 1",
    ] {
        assert!(is_about_waits(words), "{words}");
    }
    for words in [
        "runq > 20ms",
        "reason = throttle",
        "switches/s > 200k",
        "ran > 1s",
    ] {
        assert!(!is_about_waits(words), "{words}");
    }
}

/// A switch that is not looked at because of this could not have met the condition.
#[test]
fn a_condition_that_holds_may_hold() {
    let switch = row();
    // It waited for 34 ms and ran for 4.
    let [wait, ran] = [34, 4].map(|ms| Nanos::from_ns(ms * 1_000_000));
    let may_hold = |words: &str, wait: Nanos, ran: Nanos| {
        let trigger: Trigger = words.parse().expect(words);
        trigger.may_hold(wait, ran)
    };
    for field in ["runq", "off", "blocked", "ran"] {
        for relation in ["=", "!=", "<", "<=", ">", ">="] {
            for length in ["0ns", "3ms", "4ms", "31ms", "34ms", "35ms", "1s"] {
                let one = format!("{field} {relation} {length}");
                for words in [
                    one.clone(),
                    format!("!({one})"),
                    format!("{one} & comm ~ ^web"),
                    format!("{one} | cpu = 9"),
                    format!("!({one}) & off > 1ms"),
                ] {
                    let held = holds(&words);
                    assert!(!held || may_hold(&words, wait, ran), "{words}");
                }
            }
        }
    }
    assert_eq!(switch.ran, Some(ran));
    assert!(!may_hold("off > 35ms", wait, ran) && !may_hold("ran >= 5ms", wait, ran));
    assert!(!may_hold("runq > 35ms & reason = slice", wait, ran));
    assert!(may_hold("runq > 35ms | reason = slice", wait, ran));
}
