//! Processor features that keep address spaces and registers apart: what a switch must load, and
//! what it can leave in place.
//!
//! Sources: `arch/x86/mm/tlb.c`, `arch/x86/kernel/fpu/xstate.c`,
//! `arch/x86/include/asm/cpufeatures.h` (v6.18); `proc(5)`.

use super::processor::field;
use super::{Fact, SourcedValue, or_none, read};

const CPUINFO: &str = "/proc/cpuinfo";

/// Name of the fact, processor flag, why it matters.
const FLAGS: &[(&str, &str, &str)] = &[
    (
        "pcid",
        "pcid",
        "without it each switch to another process empties the TLB; with it Linux keeps the last 6",
    ),
    (
        "invpcid",
        "invpcid",
        "without it entries of other address spaces are dropped by emptying all",
    ),
    (
        "five_level_paging",
        "la57",
        "a TLB miss walks one level more where it is in use",
    ),
    (
        "page_table_isolation",
        "pti",
        "each entry to and exit from the kernel changes the page tables",
    ),
    (
        "global_pages",
        "pge",
        "without it the kernel's own entries are lost too",
    ),
];

/// Flags of register sets that a switch saves when a task uses them, smallest first.
const REGISTERS: &[&str] = &["fxsr", "avx", "avx512f", "pku", "amx_tile", "apx_f"];

/// Flags of the instructions that save them.
const FORMS: &[&str] = &["xsave", "xsaveopt", "xsavec", "xsaves"];

pub(super) fn facts() -> Vec<Fact> {
    let flags = Flags::of(&read(CPUINFO).unwrap_or_default());
    let mut facts: Vec<Fact> = FLAGS
        .iter()
        .map(|(name, flag, note)| flags.has(flag).named(name, note))
        .collect();
    facts.extend([
        flags.those_of(REGISTERS).named(
            "register_sets",
            "the more of them a task has in use, the more a switch saves and loads",
        ),
        flags.those_of(FORMS).named(
            "xsave_forms",
            "xsaves and xsaveopt skip what is unused or unchanged; plain xsave writes all",
        ),
    ]);
    facts
}

/// The flags of the first processor; `None` on architectures whose `cpuinfo` has no such line.
#[derive(Debug)]
struct Flags(Option<Vec<String>>);

impl Flags {
    fn of(cpuinfo: &str) -> Self {
        let flags = field(cpuinfo, "flags");
        Self(flags.map(|flags| flags.split_whitespace().map(str::to_owned).collect()))
    }

    fn has(&self, flag: &str) -> SourcedValue {
        self.answer(|flags| {
            let found = flags.iter().any(|known| known == flag);
            if found { "yes" } else { "no" }.to_owned()
        })
    }

    /// The flags in `wanted` that the processor has, in that order.
    fn those_of(&self, wanted: &[&str]) -> SourcedValue {
        self.answer(|flags| {
            let found = wanted
                .iter()
                .copied()
                .filter(|flag| flags.iter().any(|known| known == flag));
            or_none(&found.collect::<Vec<_>>().join(" "))
        })
    }

    fn answer(&self, answer: impl FnOnce(&[String]) -> String) -> SourcedValue {
        match &self.0 {
            Some(flags) => SourcedValue::known(answer(flags), "flags in /proc/cpuinfo"),
            None => SourcedValue::unknown("this architecture's cpuinfo has no flags", CPUINFO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FactValue;

    const XEON: &str = "processor : 0\nflags\t\t: fpu fxsr pge pcid avx xsave avx2 xsaveopt\n";

    #[test]
    fn flags_are_whole_words() {
        let flags = Flags::of(XEON);
        assert_eq!(flags.has("pcid").value, FactValue::Known("yes".into()));
        assert_eq!(flags.has("invpcid").value, FactValue::Known("no".into()));
        let forms = flags.those_of(FORMS).value;
        assert_eq!(forms, FactValue::Known("xsave xsaveopt".into()));
        assert_eq!(
            flags.those_of(&["la57"]).value,
            FactValue::Known("none".into())
        );
    }

    #[test]
    fn an_architecture_without_flags_is_unknown_and_not_no() {
        let flags = Flags::of("processor : 0\nFeatures : fp asimd\n");
        assert!(matches!(flags.has("pcid").value, FactValue::Unknown(_)));
    }
}
