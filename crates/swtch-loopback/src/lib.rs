//! The parts that every HTTP server of this project needs, because other users of the machine and other pages in a
//! browser can reach a port of it: few connections, each for a bounded time ([`connections`]), and requests that come
//! by the right name and with the right token.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod connections;

use axum::http::{HeaderMap, HeaderName};

pub use connections::TokenProof;

/// The values of a header. If it occurs twice, each must be right: other readers of the request may take
/// either. One that is no text is empty.
pub fn values_of(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter();
    values.map(|value| value.to_str().unwrap_or_default())
}

/// Compares in constant time, so that the duration does not tell how much was right.
pub fn is_same(given: &[u8], right: &[u8]) -> bool {
    let differences = given.iter().zip(right).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == right.len() && differences == 0
}
