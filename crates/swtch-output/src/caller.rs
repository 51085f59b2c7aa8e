//! The user who called `sudo`: with whose rights files are made, and as whom the recorder goes on once
//! it needs no more rights.
//!
//! `sudo` gives the rights of root for the loading of eBPF programs. What comes after needs none of
//! them: the trace belongs to the user who typed the command, in a directory that may be closed to
//! everybody else. To drop the capabilities alone would not do: root without them still owns the
//! files of the system.
//!
//! A path that this user gave is theirs, and they may have no other right than to call this program:
//! root must not make a file where they could not, nor give them one. So what such a path leads to is
//! made, replaced and removed under [`RightsOfCaller`], and the kernel itself checks each step.
//!
//! Other ways to root (`su`, a login, `doas`) are not handled: they do not set `SUDO_UID` and
//! `SUDO_GID`, so the trace is root's.

use std::io;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context as _, Error, Result, bail};
use nix::sys::prctl::set_keepcaps;
use nix::unistd::{
    Gid, Uid, User, geteuid, getgrouplist, getgroups, setfsgid, setfsuid, setgroups, setresgid,
    setresuid,
};
use rustix::thread::{Gid as ThreadGid, set_thread_groups};

/// The user who called `sudo`; never root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user id, from `SUDO_UID`.
    pub user: Uid,
    /// The user's primary group, from `SUDO_GID`.
    pub group: Gid,
    /// The entry of the user database; `None` if the user has none, or the database cannot be read.
    account: Option<User>,
    /// All groups of the user. They are looked up early, because a user database may take seconds
    /// to answer and a command runs later.
    groups: Vec<Gid>,
}

impl Caller {
    /// Returns the user who called `sudo`; `None` without `sudo`, or if root called it.
    ///
    /// # Errors
    /// When `SUDO_UID` or `SUDO_GID` is set to something that is not a user or group id.
    pub fn of_sudo() -> Result<Option<Self>> {
        static FOUND: OnceLock<Option<Caller>> = OnceLock::new();
        if !geteuid().is_root() {
            return Ok(None);
        }
        if let Some(found) = FOUND.get() {
            return Ok(found.clone());
        }
        let found = Self::of_variables()?;
        Ok(FOUND.get_or_init(|| found).clone())
    }

    fn of_variables() -> Result<Option<Self>> {
        let variable =
            |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let numbers = numbers(
            variable("SUDO_UID").as_deref(),
            variable("SUDO_GID").as_deref(),
        )?;
        let Some((user, group)) = numbers else {
            return Ok(None);
        };
        // If the database cannot be read, go on without an entry: only the home directory and the
        // further groups come from it.
        let account = User::from_uid(user).unwrap_or_default();
        let groups = groups(account.as_ref(), group)
            .with_context(|| format!("looking up the groups of user {user}, who called sudo"))?;
        Ok(Some(Self {
            user,
            group,
            account,
            groups,
        }))
    }

    /// The home directory in the user database, if it is an absolute path.
    pub fn home(&self) -> Option<PathBuf> {
        let home = self.account.as_ref().map(|account| account.dir.clone());
        home.filter(|home| home.is_absolute())
    }

    /// Changes the user of this process, with all its threads, to this user. Capabilities of the
    /// calling thread stay permitted, for `swtch_capture::drop_privileges` to choose from; other
    /// threads lose theirs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn switch_to_user(&self) -> Result<()> {
        set_keepcaps(true).context("keeping capabilities")?;
        let switch_to_user = || {
            setgroups(&self.groups)?;
            setresgid(self.group, self.group, self.group)?;
            setresuid(self.user, self.user, self.user)
        };
        switch_to_user()
            .with_context(|| format!("going on as user {}, who called sudo", self.user))?;
        set_keepcaps(false).context("keeping capabilities no more")
    }
}

/// Until it is dropped, this thread, and those that it starts, have the rights of the user who called
/// `sudo` where it comes to files (`setfsuid(2)`); all other rights stay. What is made belongs to that
/// user, and where they may not write the kernel refuses. Nothing changes without `sudo`.
#[derive(Debug)]
pub struct RightsOfCaller {
    /// The rights that this thread had before; `None` without `sudo`.
    before: Option<FileRights>,
    /// It belongs to the thread whose rights it changed.
    of_this_thread: PhantomData<*const ()>,
}

/// With whose rights a thread reaches files.
#[derive(Clone, Debug)]
struct FileRights {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl RightsOfCaller {
    /// Takes the rights.
    ///
    /// # Errors
    /// When the kernel refuses, or the variables of `sudo` hold no numbers.
    pub fn take() -> Result<Self> {
        let Some(caller) = Caller::of_sudo()? else {
            return Ok(Self::of(None));
        };
        let before = FileRights::of_this_thread().context("reading the rights of this thread")?;
        let of_caller = FileRights {
            user: caller.user,
            group: caller.group,
            groups: caller.groups,
        };
        if let Err(error) = of_caller.set() {
            // Root without the right to be another user: the first error is the one to report.
            let _ = before.set();
            let user = caller.user;
            let making = || format!("making files as user {user}, who called sudo (SUDO_UID)");
            return Err(error).with_context(making);
        }
        Ok(Self::of(Some(before)))
    }

    const fn of(before: Option<FileRights>) -> Self {
        Self {
            before,
            of_this_thread: PhantomData,
        }
    }
}

impl Drop for RightsOfCaller {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            before.set().expect("root may take back its own rights");
        }
    }
}

impl FileRights {
    fn of_this_thread() -> io::Result<Self> {
        Ok(Self {
            user: user_of_files(),
            group: group_of_files(),
            groups: getgroups()?,
        })
    }

    /// Makes them those of this thread. The user comes last: it takes the right to pass by the
    /// permissions of files.
    fn set(&self) -> io::Result<()> {
        // The system call, which is of one thread; setgroups(3) changes all of them.
        let groups = self.groups.iter().map(|group| group.as_raw());
        set_thread_groups(&groups.map(ThreadGid::from_raw).collect::<Vec<_>>())?;
        setfsgid(self.group);
        setfsuid(self.user);
        if (user_of_files(), group_of_files()) == (self.user, self.group) {
            Ok(())
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
}

/// The number that no user has, and with which setfsuid(2) changes nothing: it returns who it is.
const NOBODY: u32 = u32::MAX;

/// The user with whose rights this thread makes files.
pub fn user_of_files() -> Uid {
    setfsuid(Uid::from_raw(NOBODY))
}

fn group_of_files() -> Gid {
    setfsgid(Gid::from_raw(NOBODY))
}

/// Does this with the rights on files of the user who called `sudo`. Where they are refused, the error
/// says whose rights they were.
///
/// # Errors
/// As `act`, and when the rights cannot be taken.
pub fn as_caller<T>(act: impl FnOnce() -> Result<T>) -> Result<T> {
    let rights = RightsOfCaller::take()?;
    let done = act();
    drop(rights);
    done.map_err(|error| match (Caller::of_sudo(), is_denied(&error)) {
        (Ok(Some(caller)), true) => error.context(refusal(caller.user)),
        _ => error,
    })
}

fn is_denied(error: &Error) -> bool {
    error.chain().any(|cause| {
        let of_system = cause.downcast_ref::<io::Error>();
        of_system.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    })
}

fn refusal(user: Uid) -> String {
    format!(
        "files are made with the rights of user {user}, who called sudo (SUDO_UID): name a place of that \
         user's, or, in a shell of root, unset SUDO_UID and SUDO_GID first"
    )
}

fn groups(account: Option<&User>, group: Gid) -> nix::Result<Vec<Gid>> {
    let name = account.map(|account| account.name.as_str());
    match name.map(std::ffi::CString::new) {
        Some(Ok(name)) => getgrouplist(&name, group),
        _ => Ok(vec![group]),
    }
}

/// The user and group id that `sudo` left; `None` if they are root's or not set.
fn numbers(user: Option<&str>, group: Option<&str>) -> Result<Option<(Uid, Gid)>> {
    let (Some(user), Some(group)) = (user, group) else {
        return Ok(None);
    };
    let number = |name: &str, value: &str| match value.parse::<u32>() {
        // The highest number means "as it is" to the kernel (setresuid(2)).
        Ok(number) if number != u32::MAX => Ok(number),
        _ => bail!(
            "{name} is {value:?}, which is no number that sudo gives: unset SUDO_UID and SUDO_GID \
             to record as root"
        ),
    };
    let (user, group) = (number("SUDO_UID", user)?, number("SUDO_GID", group)?);
    Ok((user != 0).then(|| (Uid::from_raw(user), Gid::from_raw(group))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_denied_is_told_with_whose_rights_it_was() {
        let of_kind = |kind| Error::from(io::Error::from(kind)).context("writing a.json");
        assert!(is_denied(&of_kind(io::ErrorKind::PermissionDenied)));
        assert!(!is_denied(&of_kind(io::ErrorKind::StorageFull)));
        let said = refusal(Uid::from_raw(1000));
        assert!(
            said.contains("user 1000") && said.contains("unset SUDO_UID"),
            "{said}"
        );
    }

    #[test]
    fn only_numbers_of_somebody_else_than_root_are_taken() {
        let of = |user, group| numbers(Some(user), Some(group));
        let somebody = Some((Uid::from_raw(1000), Gid::from_raw(100)));
        assert_eq!(of("1000", "100").unwrap(), somebody);
        assert_eq!(of("0", "0").unwrap(), None);
        assert_eq!(numbers(None, None).unwrap(), None);
        assert_eq!(numbers(Some("1000"), None).unwrap(), None);
        for odd in ["", "-1", "4294967295", "4294967296", "root", "10 ", "1e3"] {
            let said = of(odd, "100").unwrap_err().to_string();
            assert!(
                said.contains("SUDO_UID") && said.contains("unset"),
                "{said}"
            );
            assert!(of("1000", odd).is_err(), "{odd:?}");
        }
    }
}
