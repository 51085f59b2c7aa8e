//! Names of functions as their source has them.
//!
//! A name is taken for a mangled one only where it says so itself, by what it begins with. To a C++
//! demangler anything else is a type: `f` would be `float`, `d` `double`, `w` `wchar_t` and `St` `std`.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// The beginnings of mangled names.
const MANGLED: [&str; 3] = [
    // C++ (`<mangled-name>` of the Itanium C++ ABI, section 5.1.2), and Rust's old form: `_ZN…17h` and 16 hex digits.
    "_Z",  // The same, as some assemblers write it.
    "__Z", // Rust's new form (RFC 2603).
    "_R",
];

/// The longest name that is made, in bytes. A mangled name can refer to its own parts, so that each 34 bytes of it
/// make ten times as much text: another user's program can have names that would never end.
const LONGEST: usize = 4096;

/// The name of a function in its source; the name itself if it is not mangled, or its source would be
/// longer than [`LONGEST`].
pub fn demangled(name: Cow<'_, str>) -> Cow<'_, str> {
    if !MANGLED.iter().any(|start| name.starts_with(start)) {
        return name;
    }
    // Rust's first: its old form is also a C++ name, whose last part is a hash.
    let rust = rustc_demangle::try_demangle(&name).ok();
    let mut text = BoundedText(String::new());
    let written = match rust {
        Some(rust) => write!(text, "{rust:#}"),
        None => cpp_demangle::Symbol::new(&*name).map_or(Err(fmt::Error), |symbol| {
            symbol.structured_demangle(&mut text, &cpp_demangle::DemangleOptions::default())
        }),
    };
    written.map_or(name, |()| Cow::Owned(text.0))
}

/// Text of [`LONGEST`] bytes at most: what would make it longer is an error, at which demanglers end.
struct BoundedText(String);

impl Write for BoundedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.0.len() + more.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> String {
        demangled(name.into()).into_owned()
    }

    #[test]
    fn names_of_c_stay_as_they_are() {
        for plain in [
            "f",
            "g",
            "d",
            "n",
            "w",
            "j",
            "St",
            "Sa",
            "PKc",
            "main",
            "ZN3foo3barEi",
            "_GLOBAL__I_d",
            "_Read",
            "_Zebra",
            "__Zebra",
            "_R",
            "_Z",
            "",
        ] {
            assert_eq!(name(plain), plain);
        }
    }

    #[test]
    fn mangled_names_are_those_of_the_source() {
        let mangled = [
            ("_ZN3run3jobEi", "run::job(int)"),
            ("__ZN3run3jobEi", "run::job(int)"),
            ("_Z1dv", "d()"),
            ("_ZN3foo3bar17h05af221e174051e9E", "foo::bar"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
        ];
        for (mangled, expected) in mangled {
            assert_eq!(name(mangled), expected);
        }
    }

    /// Each level names the one before it ten times. Unbounded, this takes hundreds of gigabytes.
    #[test]
    fn a_name_that_would_be_longer_than_any_memory_stays_mangled() {
        let levels = (0..12).map(|level: u8| {
            // Substitutions are counted in base 36: the level's own argument is the last that was made.
            let argument = match level {
                0 => "S_".to_owned(),
                _ => {
                    let number = u32::from(2 * level - 1);
                    let digit = char::from_digit(number, 36).unwrap();
                    format!("S{}_", digit.to_ascii_uppercase())
                }
            };
            let name = char::from(b'B' + level);
            format!("1{name}I{}E", argument.repeat(10))
        });
        let bomb = format!("_Z1f1A{}", levels.collect::<String>());
        assert_eq!(name(&bomb), bomb);
        // The first levels alone are a good name.
        let short = &bomb[..bomb.find("1D").unwrap()];
        assert!(name(short).starts_with("f(A, B<A, A,"), "{}", name(short));
    }
}
