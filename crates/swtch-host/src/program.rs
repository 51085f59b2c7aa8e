//! Facts about how this program was built and which C library it uses, since its own code is part of every number.
//!
//! Sources: `build.rs`, `proc_pid_maps(5)`; glibc's banner (`csu/version.c`).

use std::fs;

use swtch_output::built::{IS_LIGHT, VERSION};

use super::{Fact, SourcedValue, read};

const MAPS: &str = "/proc/self/maps";

pub(super) fn facts() -> Vec<Fact> {
    let built = |value: &str| SourcedValue::known(value, "the build of swtch");
    vec![
        built(VERSION).named("swtch_version", "numbers of two versions may differ"),
        built(env!("SWTCH_COMPILER")).named(
            "build_compiler",
            "it decides the code between two system calls",
        ),
        built(env!("SWTCH_TARGET")).named("build_target", "the instruction set that it may use"),
        built(if IS_LIGHT {
            "light: hardly optimised"
        } else {
            env!("SWTCH_PROFILE")
        })
        .named(
            "build_profile",
            "without optimisation our own share of each hand-over is larger",
        ),
        library().named(
            "c_library",
            "locks, condition variables and semaphores are its code",
        ),
    ]
}

/// Name and version of the C library that this process uses.
fn library() -> SourcedValue {
    if cfg!(target_feature = "crt-static") {
        return SourcedValue::known("linked statically", "the build of swtch");
    }
    let Some(path) = read(MAPS)
        .ok()
        .as_deref()
        .and_then(library_path)
        .map(str::to_owned)
    else {
        return SourcedValue::unknown("no C library is mapped", MAPS);
    };
    match fs::read(&path).ok().as_deref().and_then(glibc_version) {
        Some(version) => SourcedValue::known(format!("glibc {version}"), path),
        None => SourcedValue::known("not glibc, or a version it does not tell", path),
    }
}

/// The path of the C library among the mapped files: `libc.so.6`, `libc-2.31.so`,
/// `ld-musl-x86_64.so.1`.
fn library_path(maps: &str) -> Option<&str> {
    maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        let (_, name) = path.rsplit_once('/')?;
        let is_libc = ["libc.so", "libc-", "ld-musl-"]
            .into_iter()
            .any(|start| name.starts_with(start));
        is_libc.then_some(path)
    })
}

/// The version in `GNU C Library (…) stable release version 2.36.`
fn glibc_version(file: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b" release version ";
    let at = file
        .windows(BANNER.len())
        .position(|window| window == BANNER)?;
    let version = file[at + BANNER.len()..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b'.')
        .map(|byte| char::from(*byte))
        .collect::<String>();
    Some(version.trim_end_matches('.').to_owned()).filter(|version| !version.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_found_among_the_mapped_files() {
        let maps = "55e0-55e1 r--p 00000000 fe:00 1 /usr/bin/swtch\n\
                    7f00-7f01 r--p 00000000 fe:00 2                /usr/lib/libcap.so.2\n\
                    7f01-7f02 r--p 00000000 fe:00 3                /usr/lib/libc.so.6\n\
                    7ffd-7ffe rw-p 00000000 00:00 0                [stack]\n";
        assert_eq!(library_path(maps), Some("/usr/lib/libc.so.6"));
        assert_eq!(library_path("7ffd-7ffe rw-p 0 0 0 [stack]\n"), None);
    }

    #[test]
    fn its_version_is_in_its_banner() {
        let debian =
            b"\x00GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\nCopyright";
        assert_eq!(glibc_version(debian), Some("2.36".into()));
        assert_eq!(glibc_version(b"musl libc"), None);
    }
}
