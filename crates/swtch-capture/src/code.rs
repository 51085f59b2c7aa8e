//! The code that a process maps, and the files that it comes from.
//!
//! A path in `/proc/PID/maps` is one of that process's own world. In a container, another file or none
//! may have this path here; and after an upgrade, the file that has the path now is not the one that
//! runs. Names that were read from either would be wrong, so a file is opened through the process.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt as _, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags, ResolveFlags, memfd_create, openat, openat2};
use rustix::io::Errno;
use swtch_core::{Pid, ProcessStat};

/// The words that the kernel writes behind the path of a file that has been replaced or removed.
const DELETED: &str = " (deleted)";

/// The code that a process maps, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeMap(Vec<CodeMapping>);

/// One mapping of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// The place in the file at which they begin.
    pub offset: u64,
    /// The file; `None` for code that was made while the process ran, and for the kernel's vDSO.
    pub file: Option<CodeFile>,
    /// True for the vDSO: code of the kernel's that runs in the process, the same in all 64-bit processes.
    pub is_vdso: bool,
}

/// A file as `proc_pid_maps(5)` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeFile {
    device: u64,
    inode: u64,
    path: String,
}

impl CodeMap {
    /// The mappings in the text of `/proc/PID/maps`, which are in order there.
    pub fn parse(maps: &str) -> Self {
        Self(maps.lines().filter_map(CodeMapping::parse).collect())
    }

    /// Reads what a process maps now.
    ///
    /// # Errors
    ///
    /// When it has ended, or may not be looked into.
    pub fn of(pid: Pid) -> io::Result<Self> {
        let maps = fs::read(format!("/proc/{pid}/maps"))?;
        Ok(Self::parse(&String::from_utf8_lossy(&maps)))
    }

    /// The mapping that an address is in; `None` if there is no code.
    pub fn at(&self, address: u64) -> Option<&CodeMapping> {
        let next = self.0.partition_point(|one| one.range.end <= address);
        self.0.get(next).filter(|one| one.range.contains(&address))
    }

    /// All of them.
    pub fn mappings(&self) -> impl Iterator<Item = &CodeMapping> {
        self.0.iter()
    }
}

impl CodeMapping {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let is_code = fields.next()?.as_bytes().get(2) == Some(&b'x');
        if !is_code {
            return None;
        }
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let offset = number(fields.next()?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let device = libc::makedev(
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        );
        let inode = fields.next()?.parse().ok()?;
        let path = fields.next().map_or("", str::trim_start);
        let file = path.starts_with('/').then(|| CodeFile {
            device,
            inode,
            path: path.to_owned(),
        });
        Some(Self {
            range: number(start)?..number(end)?,
            offset,
            file,
            is_vdso: path == "[vdso]",
        })
    }
}

/// A copy of the vDSO, as this process has it: an ELF file.
///
/// # Errors
/// When there is none, or this process may not read its own memory.
pub fn own_vdso() -> io::Result<File> {
    let map = CodeMap::of(Pid::new(std::process::id()))?;
    let vdso = map.mappings().find(|mapping| mapping.is_vdso);
    let range = vdso.ok_or(ErrorKind::NotFound)?.range.clone();
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, range.start)?;
    let copy = File::from(memfd_create("vdso", MemfdFlags::CLOEXEC)?);
    copy.write_all_at(&bytes, 0)?;
    Ok(copy)
}

impl CodeFile {
    /// Its path in the process's world, which ends with ` (deleted)` if it has none any more.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Opens this file, by a process that maps it. On file systems in layers, where the mapping states another device
    /// than the file (overlayfs, btrfs), it opens what is at the file's path.
    ///
    /// # Errors
    ///
    /// When the process has ended or may not be looked into, when the file may not be read, or when it
    /// cannot be reached any more: a library that was replaced. A program itself still can be.
    pub fn open(&self, pid: Pid) -> io::Result<File> {
        let path = self.path.strip_prefix('/');
        let found = match path.filter(|path| !path.ends_with(DELETED)) {
            Some(path) => self.seen_by(pid, path)?,
            None => self.program_of(pid)?,
        };
        self.checked(&found)
    }

    /// What is at this path where the process sees it, not opened. The kernel tells paths from where this process is, if
    /// it can reach them: also of a process that has changed its root alone (`chroot(2)`).
    fn seen_by(&self, pid: Pid, path: &str) -> io::Result<File> {
        let root = opened_as_path(Path::new(&format!("/proc/{pid}/root")))?;
        match path_below(&root, path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.seen_from_here(path)?.ok_or(error)
            }
            found => found,
        }
    }

    /// This file at this path from here, not opened; `None` if another file is there, as the process chooses the path.
    fn seen_from_here(&self, path: &str) -> io::Result<Option<File>> {
        let found = path_below(&opened_as_path(Path::new("/"))?, path)?;
        let facts = found.metadata()?;
        let is_it = (facts.dev(), facts.ino()) == (self.device, self.inode);
        Ok(is_it.then_some(found))
    }

    /// The program that the process runs, not opened, if it is this file. It can be reached when it has no path any more.
    fn program_of(&self, pid: Pid) -> io::Result<File> {
        let exe = format!("/proc/{pid}/exe");
        if fs::read_link(&exe)? != Path::new(&self.path) {
            return Err(ErrorKind::NotFound.into());
        }
        opened_as_path(Path::new(&exe))
    }

    /// Opens what was found, if it is a file and may be this one. Whoever owns the process chooses what is at a path. A
    /// pipe would wait for its writer, and a device may do anything when it is opened: so what was looked at (`O_PATH`)
    /// is opened.
    fn checked(&self, place: &File) -> io::Result<File> {
        let found = place.metadata()?;
        // Layered file systems (overlayfs, btrfs) state another device than the mapping does, and
        // then perhaps another inode, too.
        let is_another = found.dev() == self.device && found.ino() != self.inode;
        if !found.is_file() || is_another {
            return Err(ErrorKind::NotFound.into());
        }
        File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))
    }
}

/// Opens `/tmp/perf-PID.map` of a process, in which its runtime lists the functions that it has compiled, as the process
/// sees it.
///
/// # Errors
/// When there is none, or when it is of another user than the process, or older than it.
pub fn open_compiled(pid: Pid) -> io::Result<File> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    // The last number is its pid in its own pid namespace (`proc_pid_status(5)`).
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let number = numbers.and_then(|numbers| numbers.split_ascii_whitespace().next_back());
    let number = number.ok_or(ErrorKind::NotFound)?;
    let root = opened_as_path(Path::new(&format!("/proc/{pid}/root")))?;
    let place = path_below(&root, &format!("tmp/perf-{number}.map"))?;
    let (found, process) = (place.metadata()?, fs::metadata(format!("/proc/{pid}"))?);
    if !found.is_file() || found.uid() != process.uid() || found.mtime() < started_at(pid)? {
        return Err(ErrorKind::NotFound.into());
    }
    File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// `USER_HZ` of x86-64 and arm64.
const TICKS_A_SECOND: u64 = 100;

/// When a process was started, in seconds since 1970. Both parts of it are rounded down, so it may be up to 2 s too early:
/// a file that is a little older than the process passes for its own.
fn started_at(pid: Pid) -> io::Result<i64> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    let ticks = ProcessStat::parse(&stat).and_then(|stat| stat.start_ticks());
    let since_boot = ticks.and_then(|ticks| i64::try_from(ticks / TICKS_A_SECOND).ok());
    let machine = fs::read_to_string("/proc/stat")?;
    let boot = machine.lines().find_map(|line| line.strip_prefix("btime "));
    let boot = boot.and_then(|boot| boot.parse::<i64>().ok());
    match (boot, since_boot) {
        (Some(boot), Some(since_boot)) => Ok(boot + since_boot),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// What is at a path, not opened.
fn opened_as_path(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_PATH).open(path)
}

/// What is below a directory, not opened. The kernel tells the paths of what it maps without symbolic links: one that is
/// there now leads elsewhere.
fn path_below(directory: &File, path: &str) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let strict = openat2(
        directory,
        path,
        flags,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    );
    let found = match strict {
        // Before Linux 5.6, and where a container's filter does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => openat(directory, path, flags, Mode::empty()),
        found => found,
    };
    Ok(found?.into())
}

/// Returns true if `path` leads to this file, and nobody but root and this user can change that. Another user who could
/// put a FIFO in its place would stop whoever opens the path. A path with a symbolic link is refused: others may own the
/// directories above what the link leads to.
pub(crate) fn is_at(open: &File, path: &Path) -> bool {
    let identity = |of: &fs::Metadata| (of.dev(), of.ino());
    let (Ok(ours), Ok(theirs)) = (fs::metadata(path), open.metadata()) else {
        return false;
    };
    let has_links = !fs::canonicalize(path).is_ok_and(|real| real == path);
    // The file and its directory, and then the directories that lead there.
    let mut places = path.ancestors();
    identity(&ours) == identity(&theirs)
        && !has_links
        && places
            .by_ref()
            .take(2)
            .all(|place| is_ours_to_change(place, StickyBit::IsNotEnough))
        && places.all(|place| is_ours_to_change(place, StickyBit::IsEnough))
}

/// Whether the sticky bit of a directory that anybody may write to, as `/tmp` has it, makes it safe: others can add files
/// there, but not replace ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StickyBit {
    IsEnough,
    IsNotEnough,
}

/// Returns true if nobody can change what is there but root, this user and their own group.
fn is_ours_to_change(path: &Path, sticky: StickyBit) -> bool {
    // SAFETY: this takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    // SAFETY: as above.
    let group = unsafe { libc::getegid() };
    let is_ours = |of: fs::Metadata| {
        let of_own_group = of.mode() & 0o020 == 0 || of.gid() == group;
        let is_closed = of.mode() & 0o002 == 0 && of_own_group;
        let is_sticky = sticky == StickyBit::IsEnough && of.mode() & libc::S_ISVTX != 0;
        [0, user].contains(&of.uid()) && (is_closed || is_sticky)
    };
    fs::metadata(path).is_ok_and(is_ours)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const MAPS: &str = "\
00400000-00401000 r--p 00000000 fe:00 7 /usr/bin/a b
00401000-00403000 r-xp 00001000 fe:00 7                                  /usr/bin/a b
00403000-00404000 rw-p 00003000 fe:00 7                                  /usr/bin/a b
7f0000000000-7f0000002000 rwxp 00000000 00:00 0 
7f0000002000-7f0000003000 r-xp 00002000 fe:00 31                         /lib/x.so (deleted)
7fff00000000-7fff00001000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn code_is_found_by_address_and_nothing_else_is() {
        let map = CodeMap::parse(MAPS);
        let file = |address| {
            map.at(address)
                .map(|one| one.file.as_ref().map(CodeFile::path))
        };
        assert_eq!(map.mappings().count(), 4);
        assert_eq!(file(0x0040_0fff), None, "readable only");
        assert_eq!(file(0x0040_1000), Some(Some("/usr/bin/a b")));
        assert_eq!(file(0x0040_2fff), Some(Some("/usr/bin/a b")));
        assert_eq!(file(0x0040_3000), None, "data");
        assert_eq!(file(0x7f00_0000_0000), Some(None), "made while it ran");
        assert_eq!(file(0x7f00_0000_2abc), Some(Some("/lib/x.so (deleted)")));
        assert_eq!(file(0x7fff_0000_0000), Some(None), "the vDSO");
        assert_eq!((file(0), file(u64::MAX)), (None, None));
        assert!(
            map.at(0x7fff_0000_0000)
                .is_some_and(|mapping| mapping.is_vdso)
        );
    }

    #[test]
    fn the_vdso_is_an_elf_file() {
        let mut start = [0; 4];
        own_vdso().unwrap().read_exact_at(&mut start, 0).unwrap();
        assert_eq!(&start, b"\x7fELF");
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        for line in [
            "",
            "x",
            "1-2",
            "1-2 r-xp",
            "g-2 r-xp 0 0:0 0 /a",
            "1-2 r-xp 0 00 0 /a",
        ] {
            assert_eq!(CodeMap::parse(line), CodeMap::default(), "{line}");
        }
    }

    #[test]
    fn code_of_this_process_is_opened_by_it() {
        let pid = Pid::new(std::process::id());
        let map = CodeMap::of(pid).unwrap();
        let here = code_of_this_process as fn() as usize as u64;
        let file = map.at(here).and_then(|one| one.file.clone()).unwrap();
        let open = file.open(pid).unwrap();
        let exe = std::env::current_exe().unwrap();
        assert!(is_at(&open, &exe));
        assert!(!is_at(&open, Path::new("/proc/self/maps")));
        // Anybody can put something else where anybody may write.
        let dir = tempfile::tempdir().unwrap();
        let anybody = fs::Permissions::from_mode(0o777);
        fs::set_permissions(dir.path(), anybody).unwrap();
        let copy = dir.path().join("copy");
        fs::write(&copy, "").unwrap();
        assert!(!is_at(&File::open(&copy).unwrap(), &copy));
        // What a link leads to may lie where others may write.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(exe.parent().unwrap(), &link).unwrap();
        let by_link = link.join(exe.file_name().unwrap());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!is_at(&open, &by_link));
        let other = CodeFile {
            inode: file.inode + 1,
            ..file
        };
        assert!(other.open(pid).is_err() || open.metadata().unwrap().dev() != other.device);
    }

    #[test]
    fn a_symbolic_link_on_the_way_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link"].map(|name| dir.path().join(name));
        fs::create_dir(&real).unwrap();
        fs::write(real.join("code"), "").unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        let root = opened_as_path(dir.path()).unwrap();
        assert!(path_below(&root, "real/code").is_ok());
        assert_eq!(
            path_below(&root, "link/code").unwrap_err().raw_os_error(),
            Some(libc::ELOOP)
        );
    }

    fn code_of_this_process() {}
}
