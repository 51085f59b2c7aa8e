//! The user who called `sudo`; the recorder goes on as that user once it needs no more rights.
//!
//! `sudo` gives the rights of root for the loading of eBPF programs. What comes after needs none of
//! them: the trace belongs to the user who typed the command, in a directory that may be closed to
//! everybody else. To drop the capabilities alone would not do: root without them still owns the
//! files of the system.
//!
//! Other ways to root (`su`, a login, `doas`) are not handled: they do not set `SUDO_UID` and
//! `SUDO_GID`, so the trace is root's.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use nix::sys::prctl::set_keepcaps;
use nix::unistd::{Gid, Uid, User, geteuid, getgrouplist, setgroups, setresgid, setresuid};

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
        if !geteuid().is_root() {
            return Ok(None);
        }
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
