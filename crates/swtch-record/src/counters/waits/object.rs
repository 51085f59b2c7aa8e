//! Finds what stands behind the numbers that a blocked call is given: files, and whose calls they are.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use swtch_core::{EvidenceBits, Pid, Tid, WaitObject};
use swtch_output::text;

/// Whose system calls a process makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramKind {
    /// Those of this machine's 64-bit table.
    Native,
    /// Those of a 32-bit table, or the program cannot be looked at.
    Other,
    /// None: it is a thread of the kernel, or a process that has ended.
    Kernel,
}

impl ProgramKind {
    pub(super) fn of(pid: Pid) -> Self {
        // The fifth byte of an ELF file is its class (elf(5)): 2 is 64 bits.
        let mut start = [0; 5];
        let read = File::open(format!("/proc/{pid}/exe"))
            .and_then(|mut program| program.read_exact(&mut start));
        match read {
            Ok(()) if start == *b"\x7fELF\x02" => Self::Native,
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Kernel,
            Ok(()) | Err(_) => Self::Other,
        }
    }

    pub(super) const fn bits(self) -> EvidenceBits {
        match self {
            Self::Native => EvidenceBits(0),
            Self::Other => EvidenceBits::COMPAT,
            Self::Kernel => EvidenceBits::KTHREAD,
        }
    }
}

/// The file behind a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenFile {
    pub kind: WaitObject,
    pub name: String,
}

impl OpenFile {
    /// The file behind a descriptor of a thread; `None` if there is none or it may not be seen.
    pub(super) fn of(pid: Pid, tid: Tid, descriptor: u64) -> Option<Self> {
        // Descriptors are 32-bit numbers; the rest of the register holds anything.
        let descriptor = descriptor & u64::from(u32::MAX);
        let link = format!("/proc/{pid}/task/{tid}/fd/{descriptor}");
        let target = fs::read_link(&link).ok()?;
        let name = text::from_bytes(target.as_os_str().as_encoded_bytes());
        let kind = kind_by_name(&name).or_else(|| kind_on_disk(link.as_ref()))?;
        Some(Self { kind, name })
    }
}

/// The kind of a file that has no path: its name tells (`proc_pid_fd(5)`).
fn kind_by_name(name: &str) -> Option<WaitObject> {
    let anonymous = name.strip_prefix("anon_inode:");
    match anonymous.map(|rest| rest.trim_matches(['[', ']'])) {
        Some("eventfd") => Some(WaitObject::EventFd),
        Some("timerfd") => Some(WaitObject::TimerFd),
        Some(_) => Some(WaitObject::OtherFd),
        None if name.starts_with("pipe:") => Some(WaitObject::Fifo),
        None if name.starts_with("socket:") => Some(WaitObject::Socket),
        None => None,
    }
}

/// The kind of a file with a path. It asks no server: one that does not answer may be what the
/// thread waits for.
fn kind_on_disk(link: &Path) -> Option<WaitObject> {
    let facts = statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    Some(match FileType::from_raw_mode(facts.stx_mode.into()) {
        FileType::RegularFile | FileType::Directory => WaitObject::Regular,
        FileType::BlockDevice => WaitObject::Block,
        FileType::CharacterDevice => WaitObject::Char,
        FileType::Fifo => WaitObject::Fifo,
        FileType::Socket => WaitObject::Socket,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn own(file: &impl AsRawFd) -> Option<OpenFile> {
        let pid = std::process::id();
        let number = u64::try_from(file.as_raw_fd()).unwrap();
        OpenFile::of(Pid::new(pid), Tid::new(pid), number)
    }

    #[test]
    fn a_descriptor_tells_its_kind() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = own(&reader).unwrap();
        assert_eq!(pipe.kind, WaitObject::Fifo);
        assert!(pipe.name.starts_with("pipe:["), "{pipe:?}");
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(own(&socket).unwrap().kind, WaitObject::Socket);
        let null = own(&File::open("/dev/null").unwrap()).unwrap();
        assert_eq!(
            (null.kind, null.name.as_str()),
            (WaitObject::Char, "/dev/null")
        );
        let plain = own(&tempfile::tempfile().unwrap()).unwrap();
        assert_eq!(plain.kind, WaitObject::Regular);
        assert_eq!(
            kind_by_name("anon_inode:[eventfd]"),
            Some(WaitObject::EventFd)
        );
        assert_eq!(
            kind_by_name("anon_inode:inotify"),
            Some(WaitObject::OtherFd)
        );
    }

    #[test]
    fn a_descriptor_that_is_not_there_tells_nothing() {
        let pid = std::process::id();
        assert_eq!(OpenFile::of(Pid::new(pid), Tid::new(pid), 1 << 31), None);
    }

    #[test]
    fn a_program_of_this_machine_is_told_from_a_thread_of_the_kernel() {
        let own = Pid::new(std::process::id());
        assert_eq!(ProgramKind::of(own), ProgramKind::Native);
        assert_eq!(ProgramKind::of(Pid::new(u32::MAX)), ProgramKind::Kernel);
    }
}
