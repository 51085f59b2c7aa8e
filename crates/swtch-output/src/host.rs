//! The machine of an answer, in the words of its first line.

use swtch_core::cost::Origin;

use crate::built::is_light;
use crate::text::counted;

/// The facts about a machine that a line says. Nothing is escaped: the caller escapes the whole line.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostWords<'a> {
    /// Name of the host.
    pub hostname: &'a str,
    /// Release of the kernel, as `uname -r` prints it.
    pub kernel_release: &'a str,
    /// Architecture, as `uname -m` prints it; `None` where the line does not say it.
    pub machine: Option<&'a str>,
    /// Model name of the processor; `None` where the line does not say it.
    pub cpu_model: Option<&'a str>,
    /// Number of CPUs; `None` where the line does not say it.
    pub cpus: Option<u64>,
    /// True if the numbers are those of the light build.
    pub is_light: bool,
}

impl<'a> HostWords<'a> {
    /// Takes what a price list says about its machine.
    pub fn of_origin(origin: &'a Origin) -> Self {
        Self {
            hostname: &origin.hostname,
            kernel_release: &origin.kernel_release,
            machine: Some(&origin.machine),
            cpu_model: Some(&origin.cpu_model),
            cpus: Some(u64::try_from(origin.cpus).unwrap_or_default()),
            is_light: is_light(&origin.swtch_version),
        }
    }

    /// The first line of an answer: `db1 · Linux 6.18.0 x86_64 · a CPU · 2 CPUs`.
    pub fn to_line(self) -> String {
        let machine = self.machine.map(|machine| format!(" {machine}"));
        let kernel = self.kernel() + &machine.unwrap_or_default();
        self.joined(" · ", [Some(kernel), self.cpu_model.map(str::to_owned)])
    }

    /// The host inside a sentence: `db1, Linux 6.18.0, x86_64, 2 CPUs`.
    pub fn to_list(self) -> String {
        self.joined(", ", [Some(self.kernel()), self.machine.map(str::to_owned)])
    }

    /// The host, and in brackets what it is: `db1 (Linux 6.18.0, 2 CPUs)`.
    pub fn to_bracketed(self) -> String {
        let kernel = self.kernel();
        let cpus = self.cpus.map(|cpus| format!(", {}", counted(cpus, "CPU")));
        format!("{} ({kernel}{})", self.hostname, cpus.unwrap_or_default())
    }

    fn kernel(self) -> String {
        format!("Linux {}", self.kernel_release)
    }

    /// The host, what is in between, and the CPUs. An imported file may tell nothing of its host.
    fn joined(self, separator: &str, between: [Option<String>; 2]) -> String {
        if self.hostname.is_empty() && self.kernel_release.is_empty() {
            return "not told".to_owned();
        }
        let cpus = self.cpus.map(|cpus| counted(cpus, "CPU"));
        let parts = std::iter::once(self.hostname.to_owned());
        let build = self.is_light.then(|| "light build of swtch".to_owned());
        let parts: Vec<String> = parts
            .chain(between.into_iter().flatten())
            .chain(cpus)
            .chain(build)
            .collect();
        parts.join(separator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_given() {
        let short = HostWords {
            hostname: "db1",
            kernel_release: "6.18.0",
            cpus: Some(2),
            ..HostWords::default()
        };
        assert_eq!(short.to_line(), "db1 · Linux 6.18.0 · 2 CPUs");
        assert_eq!(short.to_list(), "db1, Linux 6.18.0, 2 CPUs");
        assert_eq!(short.to_bracketed(), "db1 (Linux 6.18.0, 2 CPUs)");
        let long = HostWords {
            machine: Some("x86_64"),
            cpu_model: Some("a CPU"),
            ..short
        };
        assert_eq!(long.to_line(), "db1 · Linux 6.18.0 x86_64 · a CPU · 2 CPUs");
        let light = HostWords {
            is_light: true,
            ..short
        };
        assert_eq!(
            light.to_line(),
            "db1 · Linux 6.18.0 · 2 CPUs · light build of swtch"
        );
        let without_model = HostWords {
            cpu_model: None,
            ..long
        };
        assert_eq!(without_model.to_list(), "db1, Linux 6.18.0, x86_64, 2 CPUs");
    }
}
