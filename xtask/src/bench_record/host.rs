//! The machine and the program versions for which a table of numbers holds.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The facts without which the numbers mean nothing.
#[derive(Debug)]
pub struct HostFacts {
    cpu: String,
    cpus: usize,
    is_virtual: bool,
    kernel: String,
    /// Load average over the minute before the first round.
    load: String,
    date: String,
    versions: Vec<String>,
}

impl HostFacts {
    /// Reads the facts from `/proc`, and the versions from the programs' `--version`.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn read<'a>(programs: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("reading /proc/cpuinfo")?;
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?
            .trim()
            .to_owned();
        let load = fs::read_to_string("/proc/loadavg").context("reading /proc/loadavg")?;
        let versions = programs
            .into_iter()
            .map(|program| first_line(program, &["--version"]))
            .collect::<Result<_>>()?;
        Ok(Self {
            cpu: cpu_model(&cpuinfo),
            cpus: cpuinfo
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            is_virtual: is_virtual(&cpuinfo),
            kernel,
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            date: first_line(Path::new("date"), &["-u", "+%F"])?,
            versions,
        })
    }

    /// The facts as the object `host` of the JSON file.
    pub fn to_json(&self) -> Value {
        json!({
            "cpu": self.cpu,
            "cpus": self.cpus,
            "virtual_machine": self.is_virtual,
            "kernel": self.kernel,
            "load_average_before": self.load,
            "date": self.date,
            "versions": self.versions,
        })
    }
}

impl fmt::Display for HostFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = if self.is_virtual {
            ", virtual machine"
        } else {
            ""
        };
        let Self {
            cpu,
            cpus,
            kernel,
            load,
            date,
            versions,
            ..
        } = self;
        write!(
            f,
            "{cpu}, {cpus} CPUs{machine}, Linux {kernel}, load {load} before, {date}, {}",
            versions.join(", ")
        )
    }
}

/// x86 has the line `model name`; arm64 has only numbers.
fn cpu_model(cpuinfo: &str) -> String {
    ["model name", "CPU part"]
        .iter()
        .find_map(|key| cpuinfo.lines().find(|line| line.starts_with(key)))
        .and_then(|line| line.split_once(':'))
        .map_or_else(
            || "unnamed CPU".to_owned(),
            |(_, name)| name.trim().to_owned(),
        )
}

/// The flag `hypervisor` of x86 (CPUID leaf 1, ecx bit 31).
fn is_virtual(cpuinfo: &str) -> bool {
    cpuinfo
        .lines()
        .filter(|line| line.starts_with("flags"))
        .any(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn first_line(program: &Path, arguments: &[&str]) -> Result<String> {
    let name = program.display();
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("starting {name}"))?;
    ensure!(
        output.status.success(),
        "{name} {}: {}",
        arguments.join(" "),
        output.status
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .next()
        .with_context(|| format!("{name} said nothing"))?;
    Ok(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_and_hypervisor_are_read_from_cpuinfo() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n";
        assert_eq!(cpu_model(cpuinfo), "Some CPU @ 2 GHz");
        assert!(is_virtual(cpuinfo));
        assert!(!is_virtual("flags\t: fpu hypervisors\n"));
        assert_eq!(cpu_model("processor\t: 0\n"), "unnamed CPU");
    }
}
