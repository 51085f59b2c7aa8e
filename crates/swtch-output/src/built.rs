//! Says how this program was built: its version, and whether it is the light build of `make demo`, which is compiled in
//! half the time and costs more of the CPU while it works.

/// True if this is the light build (`[profile.light]`): not optimised as a release is, and without the assertions of a
/// build for tests.
pub const IS_LIGHT: bool =
    !cfg!(debug_assertions) && !matches!(env!("SWTCH_OPT_LEVEL").as_bytes(), b"3");

/// The end of [`VERSION`] of the light build.
const LIGHT: &str = " (light build)";

/// The version; a trace and a price list keep it.
pub const VERSION: &str = if IS_LIGHT {
    concat!(env!("CARGO_PKG_VERSION"), " (light build)")
} else {
    env!("CARGO_PKG_VERSION")
};

/// The words on answers by the light build: what to know, and what to do.
pub const LIGHT_IN_WORDS: &str = "by the light build of swtch, whose own work costs more than that of the optimised \
     one (make install)";

/// Returns true if the light build has this version.
pub fn is_light(version: &str) -> bool {
    version.ends_with(LIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_says_whether_its_build_is_light() {
        assert_eq!(is_light(VERSION), IS_LIGHT);
        assert!(is_light("0.1.0 (light build)") && !is_light("0.1.0"));
    }
}
