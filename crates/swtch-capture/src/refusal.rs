//! The reason why the kernel refused a program, in the words of its verifier.
//!
//! libbpf passes the verifier's log to a print function and returns only an error number, which
//! says next to nothing ("Invalid argument"). So [`listen`] collects what libbpf prints while it
//! loads, and [`Refusal::from_printed`] keeps the name of the program and the last lines.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libbpf_rs::PrintLevel;

/// Everything that libbpf has printed since [`listen`]. Its print function takes no context, so
/// there is one buffer for the process.
static PRINTED: Mutex<String> = Mutex::new(String::new());

/// Lines of the verifier's log that are kept. It explains a refusal in its last lines; before them
/// it lists the instructions that it accepted, thousands of lines.
const LAST_LINES: usize = 10;

/// Collects libbpf's warnings from here on, and drops the earlier ones. It is called before
/// programs are loaded, so that [`last`] is about this load.
pub(crate) fn listen() {
    lock_printed().clear();
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        lock_printed().push_str(&text);
    })));
}

/// Returns the refusal that libbpf has described since [`listen`].
pub(crate) fn last() -> Refusal {
    Refusal::from_printed(&lock_printed())
}

fn lock_printed() -> MutexGuard<'static, String> {
    // Each push appends a whole text, so the buffer is valid even after a panic of its holder.
    PRINTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program that the kernel refused, and the last lines of its verifier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the program; `None` when no single program is the cause, such as for a map.
    pub program: Option<String>,
    /// The end of the verifier's log, or of libbpf's own messages if there is no log: at most
    /// `LAST_LINES` lines. Control characters are not escaped; who shows the lines has to do that.
    pub last_lines: Vec<String>,
    /// True if the verifier wrote these lines. It examines only programs that this process has the
    /// right to load, so "Permission denied" then means a forbidden memory access of the program.
    pub is_by_verifier: bool,
}

impl Refusal {
    /// Finds the program and the log in the text that libbpf printed.
    fn from_printed(printed: &str) -> Self {
        let lines = printed
            .lines()
            .map(|line| line.strip_prefix("libbpf: ").unwrap_or(line));
        let lines: Vec<_> = lines.filter(|line| !line.trim().is_empty()).collect();
        let log = lines_of_log(&lines);
        let explanation = log.unwrap_or(&lines);
        let last = &explanation[explanation.len().saturating_sub(LAST_LINES)..];
        Self {
            program: refused_program(&lines).map(str::to_owned),
            last_lines: last.iter().map(|line| (*line).to_owned()).collect(),
            is_by_verifier: log.is_some(),
        }
    }
}

/// Returns the name of the program that was refused; `None` if libbpf blames no program. Where the
/// kernel refused none, it is the first program that libbpf itself complains about.
fn refused_program<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let line = lines
        .iter()
        .find(|line| line.contains("BPF program load failed"))
        .or_else(|| lines.iter().find(|line| line.starts_with("prog '")))?;
    let (program, _) = line.strip_prefix("prog '")?.split_once('\'')?;
    Some(program)
}

/// Returns the lines between libbpf's marks around a verifier's log; `None` if there are no marks.
fn lines_of_log<'a>(lines: &'a [&'a str]) -> Option<&'a [&'a str]> {
    let start = lines
        .iter()
        .position(|line| line.contains("-- BEGIN PROG LOAD LOG --"))?;
    let log = &lines[start + 1..];
    let end = log
        .iter()
        .position(|line| line.contains("-- END PROG LOAD LOG --"));
    Some(&log[..end.unwrap_or(log.len())])
}

/// Writes the subject of a sentence about the refusal: `the eBPF program sched_switch`.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.program {
            Some(program) => write!(f, "the eBPF program {program}"),
            None => write!(f, "the eBPF programs"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text that libbpf 1.7 prints for a program that the verifier rejects.
    fn printed_around(log: &str) -> String {
        format!(
            "libbpf: prog 'sched_switch': BPF program load failed: -EINVAL\n\
             libbpf: prog 'sched_switch': -- BEGIN PROG LOAD LOG --\n\
             {log}-- END PROG LOAD LOG --\n\
             libbpf: prog 'sched_switch': failed to load: -EINVAL\n\
             libbpf: failed to load object 'swtch_bpf'\n"
        )
    }

    /// Without the name it is unclear which of twenty programs to look at.
    #[test]
    fn a_refused_program_is_named_with_the_verifiers_last_lines() {
        let log: String = (0..500).map(|n| format!("{n}: (bf) r0 = r1\n")).collect();
        let refusal = Refusal::from_printed(&printed_around(&format!("{log}invalid access\n")));
        assert_eq!(refusal.program.as_deref(), Some("sched_switch"));
        assert_eq!(refusal.last_lines.len(), LAST_LINES);
        assert_eq!(refusal.last_lines.last().unwrap(), "invalid access");
        assert_eq!(refusal.last_lines[0], "491: (bf) r0 = r1");
        assert!(refusal.is_by_verifier);
        assert_eq!(refusal.to_string(), "the eBPF program sched_switch");
    }

    /// libbpf itself can refuse before it asks the kernel; then only its own messages exist.
    #[test]
    fn without_a_log_the_words_of_libbpf_are_kept() {
        let printed = "libbpf: prog 'sched_switch': relo #3: failed to resolve CO-RE relocation\n";
        let refusal = Refusal::from_printed(printed);
        assert_eq!(refusal.program.as_deref(), Some("sched_switch"));
        assert!(!refusal.is_by_verifier);
        assert_eq!(
            refusal.last_lines,
            ["prog 'sched_switch': relo #3: failed to resolve CO-RE relocation"]
        );
    }

    /// A map that cannot be created is not the fault of a program.
    #[test]
    fn nobody_is_named_when_no_program_is_to_blame() {
        let refusal = Refusal::from_printed("libbpf: map 'tasks': failed to create: -ENOMEM\n");
        assert_eq!(refusal.program, None);
        assert_eq!(refusal.to_string(), "the eBPF programs");
        assert_eq!(Refusal::from_printed(""), Refusal::default());
    }
}
