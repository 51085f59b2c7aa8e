//! The machine's saved price list: where it is, and whether it is still valid here.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use swtch_core::cost::{Estimate, Origin, PRICES_VERSION, Price, PriceList};
use swtch_output::caller::as_caller;
use swtch_output::destination::{write_whole, write_whole_with_own_rights};
use swtch_output::text::json_text;
use swtch_store::input;

/// The largest list that is read, in bytes. A thorough one, with all curves, has less than 1 MB.
const MOST_BYTES: u64 = 32 << 20;

/// Value of the key `schema` in the file.
const SCHEMA: &str = "swtch.prices/1";

/// Returns where the list of this machine and user is: `$XDG_DATA_HOME/swtch/prices.json` (XDG Base Directory
/// Specification).
///
/// # Errors
///
/// When neither `XDG_DATA_HOME` nor `HOME` says where.
pub fn place() -> Result<PathBuf> {
    let directory = |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    let of_data = directory("XDG_DATA_HOME").map(|data| data.join("swtch/prices.json"));
    let of_home = || directory("HOME").map(|home| place_in_home(&home));
    match of_data.or_else(of_home) {
        Some(place) => Ok(place),
        None => {
            bail!("neither XDG_DATA_HOME nor HOME is set, so there is no place for a price list")
        }
    }
}

/// Returns where the list is in a home directory when `XDG_DATA_HOME` is not set.
pub fn place_in_home(home: &Path) -> PathBuf {
    home.join(".local/share/swtch/prices.json")
}

/// The list as one JSON object.
///
/// # Panics
///
/// Never: a list is plain data.
pub fn to_json(list: &PriceList) -> Value {
    let mut object = json!({ "schema": SCHEMA });
    let Value::Object(fields) = serde_json::to_value(list).expect("plain data has a JSON form")
    else {
        unreachable!("a struct is an object")
    };
    object
        .as_object_mut()
        .expect("it was made as one")
        .extend(fields);
    object
}

/// Writes this machine's list whole or not at all, and makes the directory for it. Under `sudo` it is made as root
/// only in a directory of root's that nobody else can change; any other is made with the rights of the caller.
///
/// # Errors
///
/// When the directory cannot be made, or the file cannot be written.
pub fn save(list: &PriceList, place: &Path) -> Result<()> {
    let save = || {
        if let Some(directory) = place.parent() {
            fs::create_dir_all(directory)
                .with_context(|| format!("writing {}", place.display()))?;
        }
        write_whole_with_own_rights(place, json_text(&to_json(list)).as_bytes())
    };
    if is_in_place_of_root(place) {
        save()
    } else {
        as_caller(save)
    }
}

/// Returns true if the directories above that exist are root's, and nobody else may write to the last of them.
fn is_in_place_of_root(place: &Path) -> bool {
    let existing = || {
        place
            .ancestors()
            .skip(1)
            .filter_map(|above| fs::metadata(above).ok())
    };
    let is_closed = |above: &fs::Metadata| above.mode() & 0o022 == 0;
    existing().all(|above| above.uid() == 0) && existing().next().as_ref().is_some_and(is_closed)
}

/// Writes a list to a file that was named, whole or not at all, with the rights of the caller.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write(list: &PriceList, path: &Path) -> Result<()> {
    write_whole(path, json_text(&to_json(list)).as_bytes())
}

/// Reads a list.
///
/// # Errors
///
/// When the file cannot be read, is no price list, or is of a newer version.
pub fn load(path: &Path) -> Result<PriceList> {
    let shown = || format!("reading {}", path.display());
    let text = input::read_text(path, MOST_BYTES).with_context(shown)?;
    parse(&text).with_context(shown)
}

fn parse(text: &str) -> Result<PriceList> {
    let value: Value = serde_json::from_str(text).context("this is no JSON")?;
    let schema = value["schema"].as_str().unwrap_or_default();
    if !schema.starts_with("swtch.prices/") {
        bail!("this is no price list: `swtch cost --save` or `swtch cost -o FILE.json` writes one");
    }
    let version = value["version"].as_u64().unwrap_or_default();
    if version > u64::from(PRICES_VERSION) {
        bail!(
            "the list has version {version}, and this swtch reads up to {PRICES_VERSION}: update swtch"
        );
    }
    let list: PriceList = serde_json::from_value(value).context("this is no whole price list")?;
    if let Some(price) = list.prices.iter().find(|price| !is_possible(price)) {
        bail!(
            "the price of {} is none: it must be above 0, inside its interval",
            price.kind
        );
    }
    Ok(list)
}

/// Returns true if a price is inside its interval, and the interval is above 0, since other prices are divided by it.
fn is_possible(price: &Price) -> bool {
    let is_inside = |estimate: &Estimate| {
        0.0 < estimate.low && estimate.low <= estimate.point && estimate.point <= estimate.high
    };
    is_inside(&price.hand_off_ns) && price.relative.as_ref().is_none_or(is_inside)
}

/// Returns how a list's origin differs from this machine, in words; empty when the list is valid here.
pub fn differences(list: &Origin, here: &Origin) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |what: &str, list: &str, here: &str| {
        if list != here {
            differences.push(format!("{what} was {list}, and is {here}"));
        }
    };
    compare("the host", &list.hostname, &here.hostname);
    compare("the processor", &list.cpu_model, &here.cpu_model);
    compare("the kernel", &list.kernel_release, &here.kernel_release);
    compare(
        "the kernel's build",
        &list.kernel_version,
        &here.kernel_version,
    );
    compare(
        "the number of CPUs",
        &list.cpus.to_string(),
        &here.cpus.to_string(),
    );
    if differences.is_empty() && list.boot_id != here.boot_id {
        differences.push(format!(
            "the machine has booted since {} (frequency and mitigations may differ)",
            list.measured_at
        ));
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin {
            hostname: "here".into(),
            kernel_release: "6.18".into(),
            kernel_version: "#1".into(),
            machine: "x86_64".into(),
            cpu_model: "cpu".into(),
            cpus: 2,
            boot_id: "a".into(),
            measured_at: "2026-01-01T00:00:00Z".into(),
            swtch_version: "0".into(),
        }
    }

    #[test]
    fn the_same_boot_has_no_difference() {
        assert!(differences(&origin(), &origin()).is_empty());
    }

    #[test]
    fn another_boot_or_kernel_is_named() {
        let other = |change: fn(&mut Origin)| {
            let mut here = origin();
            change(&mut here);
            differences(&origin(), &here).join("; ")
        };
        assert!(other(|o| o.boot_id = "b".into()).contains("has booted"));
        let kernel = other(|o| {
            o.kernel_release = "6.19".into();
            o.boot_id = "b".into();
        });
        assert_eq!(kernel, "the kernel was 6.18, and is 6.19");
    }

    #[test]
    fn what_is_no_list_is_refused_with_the_reason() {
        let why = |text| format!("{:#}", parse(text).unwrap_err());
        assert!(why("x").contains("no JSON"));
        assert!(why("{}").contains("no price list"));
        assert!(why(r#"{"schema":"swtch.prices/2","version":99}"#).contains("update swtch"));
    }
}
