//! Files that are read, and mistakes that are shown.

use std::fmt::Write as _;

use swtch_bench::load::{
    ChainOperation, Class, Cpus, EventKind, LoadLockKind, LoadRingSpec, RingKind, Step,
};
use swtch_core::Nanos;
use swtch_core::cost::Members;

use super::*;

const PAGE: &str = include_str!("../../../../docs/LOADS.md");

/// The complete examples of the page.
fn examples() -> Vec<&'static str> {
    let blocks = PAGE.split("```toml\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap())
        .collect()
}

/// Reads a load at 1 ns an iteration, with the parameters' defaults.
fn load(text: &str) -> Result<Load> {
    let file = LoadFile::read("a.toml", text)?;
    let parameters = Parameters::chosen(&file.head.parameters, false, &[])?;
    file.load(
        &file.variants[0].name,
        &parameters,
        &Calibration::of_ns(1.0),
    )
}

/// A load of one group with these lines.
fn group_of(lines: &str) -> Result<Load> {
    load(&format!(
        "title = \"t\"\n[[group]]\nname = \"g\"\n{lines}\n"
    ))
}

fn mistake(lines: &str) -> String {
    group_of(lines).unwrap_err().to_string()
}

#[test]
fn examples_of_the_page_can_be_played() {
    let examples = examples();
    assert_eq!(examples.len(), 2);
    for text in examples {
        let file = LoadFile::read("example.toml", text).unwrap();
        for is_quick in [false, true] {
            let known = &file.head.parameters;
            let parameters = Parameters::chosen(known, is_quick, &[]).unwrap();
            for variant in &file.variants {
                let calibration = Calibration::of_ns(1.0);
                file.load(&variant.name, &parameters, &calibration).unwrap();
            }
        }
    }
}

const GROUP_WORDS: [&str; 9] = [
    "name", "members", "count", "cpus", "class", "nice", "priority", "slice", "body",
];

#[test]
fn the_page_names_every_word() {
    let kernels = ChainOperation::ALL.iter().map(|one| one.as_str());
    let locks = LoadLockKind::ALL.into_iter().map(|(word, _)| word);
    let events = EventKind::ALL.into_iter().map(|(word, _)| word);
    for word in kernels.chain(locks).chain(events).chain(GROUP_WORDS) {
        assert!(PAGE.contains(&format!("`{word}`")), "{word}");
    }
    for word in group::STEPS {
        assert!(PAGE.contains(&format!("{{ {word} = ")), "{word}");
    }
}

#[test]
fn a_group_is_read_with_all_its_words() {
    let load = group_of(
        "members = \"processes\"\ncount = 4\ncpus = \"last\"\nclass = \"batch\"\nnice = -3\n\
         slice = \"3ms\"\nbody = [{ repeat = 2, body = [{ work = \"1ms\", kernel = \"divide\" }] }, \"yield\"]",
    );
    let group = &load.unwrap().groups[0];
    let last = *UsableCpus::here().unwrap().allowed.last().unwrap();
    assert_eq!((group.members, group.count), (Members::Processes, 4));
    assert_eq!(group.cpus, Cpus::Dealt(vec![last]));
    assert_eq!(group.class, Class::Batch { nice: -3 });
    assert_eq!(group.slice, Some(Nanos::from_ns(3_000_000)));
    let spin = Step::Spin {
        kernel: ChainOperation::Divide,
        iterations: 1_000_000,
    };
    let repeat = Step::Repeat {
        times: 2,
        body: vec![spin],
    };
    assert_eq!(group.body, [repeat, Step::Yield]);
}

#[test]
fn parameters_stand_for_their_values() {
    let load = load(
        "title = \"t\"\n[parameters.n]\nabout = \"\"\ndefault = 3\n[parameters.on]\nabout = \"\"\n\
         default = \"last\"\n[[group]]\nname = \"g\"\ncount = \"$n\"\ncpus = \"$on\"\nbody = [{ spin = \"$n\" }]",
    );
    let group = &load.unwrap().groups[0];
    assert_eq!(group.count, 3);
    assert!(matches!(&group.cpus, Cpus::Dealt(cpus) if cpus.len() == 1));
    let kernel = ChainOperation::Add;
    let iterations = 3;
    assert_eq!(group.body, [Step::Spin { kernel, iterations }]);
}

#[test]
fn locks_events_and_rings_have_kinds() {
    let load = load(
        "title = \"t\"\nlimit = \"2s\"\n[locks]\nm = \"spin\"\n[events]\ne = \"eventfd\"\n[rings]\n\
         r = { tokens = 2, by = \"futex\" }\ns = { spare = 3, locks = \"mutex\" }\n[[group]]\nname = \"g\"\n\
         body = [\"yield\"]",
    )
    .unwrap();
    assert_eq!(load.limit, Nanos::from_ns(2_000_000_000));
    assert_eq!(load.locks["m"], LoadLockKind::Spin);
    assert_eq!(load.events["e"], EventKind::Eventfd);
    let ring = |kind, tokens| LoadRingSpec { kind, tokens };
    assert_eq!(load.rings["r"], ring(RingKind::Tokens(EventKind::Futex), 2));
    assert_eq!(
        load.rings["s"],
        ring(RingKind::Locks(LoadLockKind::Mutex), 3)
    );
}

/// The message of each mistake, and the text that it marks.
#[test]
fn mistakes_point_at_their_place() {
    let expected = [
        (
            "count = 0\nbody = [\"yield\"]",
            "a.toml:4:9: count must be at least 1",
            "0",
        ),
        (
            "count = \"$n\"\nbody = [\"yield\"]",
            "a.toml:4:9: there is no parameter `n`; there are none",
            "\"$n\"",
        ),
        (
            "nice = 50\nbody = [\"yield\"]",
            "a.toml:4:8: nice is from -20 to 19, not 50",
            "50",
        ),
        (
            "class = \"fifo\"\nnice = 1\nbody = [\"yield\"]",
            "a.toml:5:8: nice is for other and batch",
            "1",
        ),
        (
            "count = \"many\"\nbody = [\"yield\"]",
            "a.toml:4:9: invalid type: string \"many\", expected a number from 0 to 4294967295",
            "\"many\"",
        ),
        (
            "class = \"best\"\nbody = [\"yield\"]",
            "a.toml:4:9: unknown variant `best`, expected one of `other`, `batch`, `idle`, `fifo`, `rr`",
            "\"best\"",
        ),
        (
            "class = \"fifo\"\nslice = \"3ms\"\nbody = [\"yield\"]",
            "a.toml:5:9: a task under SCHED_FIFO with priority 1 has no slice of its own",
            "\"3ms\"",
        ),
        (
            "cpus = \"all\"\nbody = [\"yield\"]",
            "a.toml:4:8: these are no CPUs: give free, round-robin, first, last, a number, or a list of numbers",
            "\"all\"",
        ),
        (
            "body = [\"yield\", \"yeild\"]",
            "a.toml:4:18: `yeild` is no step: \"yield\" is the only bare word",
            "\"yeild\"",
        ),
        (
            "body = [{ spin = 1, kernal = \"add\" }]",
            "a.toml:4:21: unknown field `kernal`, expected one of `spin`, `work`, `repeat`, `lock`, `unlock`, `wait`, `signal`, `take`, `pass`, `sleep`, `watch`, `read`, `touch`, `kernel`, `body`, `bytes`, `stride`",
            "kernal",
        ),
        (
            "body = [{ sleep = 5 }]",
            "a.toml:4:19: a length of time is wanted here, such as \"500us\" or \"2s\"",
            "5",
        ),
        (
            "body = [{ repeat = 2, body = [\"yield\", { lock = \"m\" }] }]",
            "a.toml:4:40: lock m is never given back in this body",
            "{ lock = \"m\" }",
        ),
        (
            "body = [{ wait = \"e\" }]",
            "a.toml:4:9: nobody signals the event e",
            "{ wait = \"e\" }",
        ),
        (
            "body = [{ read = \"/no/such/file\", bytes = 1 }]",
            "a.toml:4:9: /no/such/file: No such file or directory (os error 2)",
            "{ read = \"/no/such/file\", bytes = 1 }",
        ),
        ("count = 2", "a.toml:2:1: missing field `body`", "[[group]]"),
        (
            "body = [{ spin = 1, stride = 64 }]",
            "a.toml:4:9: `stride` does not belong to this step",
            "{ spin = 1, stride = 64 }",
        ),
    ];
    for (lines, why, marked) in expected {
        let mistake = mistake(lines);
        let mut parts = mistake.splitn(2, '\n');
        assert_eq!(parts.next(), Some(why));
        let shown = parts.next().unwrap();
        let (line, marks) = shown.split_once('\n').unwrap();
        let place: String = line
            .chars()
            .zip(marks.chars())
            .filter(|(_, mark)| *mark == '^')
            .map(|(c, _)| c)
            .collect();
        assert_eq!(place, marked, "{mistake}");
    }
}

#[test]
fn a_cpu_that_is_not_there_is_named_with_those_that_are() {
    let mistake = mistake("cpus = [0, 9999]\nbody = [\"yield\"]");
    let start = "a.toml:4:8: there is no CPU 9999: this machine has 0";
    assert!(mistake.starts_with(start), "{mistake}");
}

#[test]
fn what_is_no_toml_is_shown_where_it_ends_to_be() {
    let mistake = LoadFile::read("a.toml", "title = \"t\"\n[[group\n").unwrap_err();
    let mistake = mistake.to_string();
    assert!(mistake.starts_with("a.toml:2:8: "), "{mistake}");
}

#[test]
fn mistakes_of_the_head_point_at_their_place() {
    let expected = [
        ("about = \"\"", "a.toml:1:1: missing field `title`"),
        (
            "title = 3",
            "a.toml:1:9: invalid type: integer `3`, expected a string",
        ),
        (
            "title = \"t\"\n[parameters.work]\nabout = \"\"",
            "a.toml:2:1: missing field `default`",
        ),
    ];
    for (text, why) in expected {
        let mistake = LoadFile::read("a.toml", text).unwrap_err().to_string();
        assert_eq!(mistake.lines().next(), Some(why));
    }
}

#[test]
fn a_file_has_groups_or_variants() {
    let mut text = "title = \"t\"\n".to_owned();
    let mistake = LoadFile::read("a.toml", &text).unwrap_err().to_string();
    let start = "a.toml:1:1: there is nothing to play: no [[group]] and no [[variant]]";
    assert!(mistake.starts_with(start), "{mistake}");
    for (table, list) in [("group", "body"), ("variant", "group")] {
        write!(text, "[[{table}]]\nname = \"x\"\n{list} = []\n").unwrap();
    }
    let mistake = LoadFile::read("a.toml", &text).unwrap_err().to_string();
    assert!(
        mistake.contains("groups or variants with groups, not both"),
        "{mistake}"
    );
}

/// Behind a mistake the parser goes one call deeper for each bracket.
#[test]
fn very_many_brackets_are_a_mistake_and_no_overflow_of_the_stack() {
    for pattern in ["={[]{}", "{a{", "{ repeat = 3, body {a={a== [ "] {
        let opened = pattern.bytes().filter(|byte| b"[{".contains(byte)).count();
        let text = format!("x = [\n{}", pattern.repeat(99_000 / opened));
        let mistake = LoadFile::read("a.toml", &text).unwrap_err();
        assert!(mistake.is::<LoadFileError>(), "{mistake}");
        let text = format!("x = [\n{}", pattern.repeat(101_000 / opened));
        let refused = LoadFile::read("a.toml", &text).unwrap_err().to_string();
        assert!(refused.ends_with("100000 is the limit"), "{refused}");
    }
}
