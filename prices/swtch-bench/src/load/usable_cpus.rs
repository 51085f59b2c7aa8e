//! The CPUs of this machine, and the reason why one cannot be used.

use std::fs;

use crate::cpu;
use crate::error::Error;

/// The CPUs of this machine, and those among them that a load may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsableCpus {
    /// Numbers of the CPUs that the calling thread may use.
    pub allowed: Vec<u32>,
    /// CPUs that are online, as the kernel lists them (`0-3,8`).
    pub online: String,
    /// CPUs that are present, as the kernel lists them.
    pub present: String,
}

impl UsableCpus {
    /// The CPUs of this machine, for the calling thread.
    ///
    /// # Errors
    /// The kernel does not report them.
    pub fn here() -> Result<Self, Error> {
        let list = |name: &str| {
            let path = format!("/sys/devices/system/cpu/{name}");
            match fs::read_to_string(&path) {
                Ok(list) => Ok(list.trim().to_owned()),
                Err(source) => Err(Error::File {
                    path: path.into(),
                    source,
                }),
            }
        };
        let allowed = cpu::allowed()?.into_iter();
        Ok(Self {
            allowed: allowed.filter_map(|cpu| u32::try_from(cpu).ok()).collect(),
            online: list("online")?,
            present: list("present")?,
        })
    }

    /// The reason why a CPU cannot be used; `None` if it can.
    pub fn why_not(&self, cpu: u32) -> Option<String> {
        if self.allowed.contains(&cpu) {
            return None;
        }
        let allowed: Vec<String> = self.allowed.iter().map(u32::to_string).collect();
        Some(if !is_in(&self.present, cpu) {
            format!("there is no CPU {cpu}: this machine has {}", self.present)
        } else if !is_in(&self.online, cpu) {
            format!("CPU {cpu} is offline: {} are online", self.online)
        } else {
            format!(
                "CPU {cpu} may not be used: allowed (taskset, cpuset) are {}",
                allowed.join(",")
            )
        })
    }
}

/// Returns true if a list such as `0-3,8` contains `cpu`.
fn is_in(list: &str, cpu: u32) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ends = first.parse().ok().zip(last.parse().ok());
        ends.is_some_and(|(first, last): (u32, u32)| (first..=last).contains(&cpu))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_cannot_be_used_is_told_from_one_that_is_not_there() {
        let cpus = UsableCpus {
            allowed: vec![0, 2],
            online: "0-2".to_owned(),
            present: "0-3".to_owned(),
        };
        let why = |cpu| cpus.why_not(cpu);
        assert_eq!(why(2), None);
        assert_eq!(
            why(1).unwrap(),
            "CPU 1 may not be used: allowed (taskset, cpuset) are 0,2"
        );
        assert_eq!(why(3).unwrap(), "CPU 3 is offline: 0-2 are online");
        assert_eq!(why(4).unwrap(), "there is no CPU 4: this machine has 0-3");
    }
}
