//! The line of `/proc/PID/stat` and of `/proc/PID/task/TID/stat` (`proc_pid_stat(5)`; `do_task_stat` in `fs/proc/array.c`,
//! v6.18), read in one place: the name in its second field may hold any byte, blanks and parentheses included, so
//! fields are counted from the last parenthesis.

use std::str::FromStr;

/// One such line. Fields have the numbers of the manual.
#[derive(Clone, Debug)]
pub struct ProcessStat<'a> {
    name: &'a [u8],
    /// From the third on.
    fields: Vec<&'a str>,
}

impl<'a> ProcessStat<'a> {
    /// `None` if there is no such line in these bytes.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let begin = line.iter().position(|&byte| byte == b'(')?;
        let end = line.iter().rposition(|&byte| byte == b')')?;
        let fields = str::from_utf8(line.get(end + 1..)?).ok()?;
        Some(Self {
            name: line.get(begin + 1..end)?,
            fields: fields.split_ascii_whitespace().collect(),
        })
    }

    /// The name of the thread, field 2: at most 15 bytes of any kind.
    pub const fn name(&self) -> &'a [u8] {
        self.name
    }

    /// A field by its number, from 3 on.
    pub fn field(&self, number: usize) -> Option<&'a str> {
        self.fields.get(number.checked_sub(3)?).copied()
    }

    /// A field that is a number.
    pub fn number<T: FromStr>(&self, number: usize) -> Option<T> {
        self.field(number)?.parse().ok()
    }

    /// The letter of the state, field 3: `R`, `S`, `D`, `T`, `Z`, ….
    pub fn state(&self) -> Option<char> {
        self.field(3)?.chars().next()
    }

    /// The process that this one is a child of, field 4.
    pub fn parent(&self) -> Option<u32> {
        self.number(4)
    }

    /// Time on CPUs in user and in kernel mode, fields 14 and 15, in ticks of a hundredth of a second (`USER_HZ` of x86-64
    /// and arm64).
    pub fn cpu_ticks(&self) -> Option<u64> {
        Some(self.number::<u64>(14)? + self.number::<u64>(15)?)
    }

    /// When it began, in ticks since boot, field 22.
    pub fn start_ticks(&self) -> Option<u64> {
        self.number(22)
    }

    /// Returns true if no thread of the process runs any more. A first thread that has ended is a zombie, too, while
    /// others go on (field 20 is the number of threads).
    pub fn is_dead(&self) -> bool {
        matches!(self.state(), Some('Z' | 'X'))
            && self.number(20).is_some_and(|threads: u64| threads <= 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a thread that calls itself `a) R 1 (\xff`.
    const LINE: &[u8] =
        b"77 (a) R 1 (\xff) S 5 77 77 0 -1 4194560 130 0 0 0 12 30 1 2 20 0 3 0 8745 9 9 \
        0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 0";

    #[test]
    fn fields_come_after_a_name_of_any_bytes() {
        let stat = ProcessStat::parse(LINE).unwrap();
        assert_eq!(stat.name(), b"a) R 1 (\xff");
        assert_eq!((stat.state(), stat.parent()), (Some('S'), Some(5)));
        assert_eq!(
            (stat.cpu_ticks(), stat.start_ticks()),
            (Some(42), Some(8745))
        );
        assert_eq!(stat.number(39), Some(1), "the CPU on which it was last");
    }

    /// `pthread_exit` in `main` makes a zombie of the first thread while the others go on.
    #[test]
    fn a_process_is_dead_when_no_thread_of_it_runs() {
        let is_dead = |state: &str, threads: u32| {
            let zeros = "0 ".repeat(16);
            let line = format!("77 (a) {state} {zeros}{threads} 0 1");
            ProcessStat::parse(line.as_bytes()).unwrap().is_dead()
        };
        assert!(is_dead("Z", 1) && is_dead("X", 0));
        assert!(!is_dead("Z", 2), "the first thread has ended, others go on");
        assert!(!is_dead("S", 1));
    }

    #[test]
    fn what_is_cut_has_no_such_fields() {
        assert!(ProcessStat::parse(b"77 (a").is_none());
        assert!(ProcessStat::parse(b") (").is_none());
        let stat = ProcessStat::parse(b"77 (a) S 1").unwrap();
        assert_eq!((stat.start_ticks(), stat.field(2)), (None, None));
        assert!(!stat.is_dead());
    }
}
