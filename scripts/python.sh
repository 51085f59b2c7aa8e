#!/usr/bin/env bash
# The Python package (python/): checked and tested.
#
#   scripts/python.sh check    style and formatting, those of the benchmarks (bench/) and of scripts/ too, and types
#   scripts/python.sh schemas  docs/schemas/ written anew
#   scripts/python.sh test     its tests; prints "test result:" lines as cargo does (arguments go on to pytest)
#   scripts/python.sh duckdb   tests of answers with the oldest and the newest DuckDB that pyproject.toml admits
#
# What python/requirements-test.txt pins is installed into an environment in the user's cache, which all clones with
# these pins share. On a machine without Python, or where that cannot be had, this says so and ends with 3.
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

min_python=3.10
passed_over=3
suite="the Python package"
cache=${XDG_CACHE_HOME:-${HOME:-$root_dir/target}/.cache}/swtch
# The environment that is used; `prepare` and `prepare_engines` choose it.
venv=
requirements=$root_dir/python/requirements-test.txt
engines=$root_dir/python/requirements-engines.txt
duckdb_ends=(1.4.1 2.0.1)

python_version() { python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# Debian packages the modules that make an environment, and pip for it, apart from Python.
python_can_make_a_venv() { python3 -c 'import ensurepip, venv' 2>/dev/null; }

why_not_python() {
    local version
    version=$(python_version)
    if [ -z "$version" ] || ! version_at_least "$version" "$min_python"; then
        echo "it needs Python >= $min_python (found: ${version:-none})"
    elif ! python_can_make_a_venv; then
        echo "Python lacks venv or pip (package python3-venv)"
    fi
}

need_python() {
    [ -z "$(why_not_python)" ] || install_quietly python3 python3-venv
    local why
    why=$(why_not_python)
    [ -z "$why" ] && return
    say "passed over: $suite: $why"
    return "$passed_over"
}

# make_environment FILE…: makes `venv` an environment with what these files pin. One that is there is whole, and never
# changed: its name is made of the pins and of Python, and the mark in it is made last. Nothing is compiled.
make_environment() {
    local hash place file files=()
    hash=$({ python3 -VV && command -v python3 && cat "$@"; } | sha256sum | cut -c 1-16) || return
    place=$cache/python-$hash
    for file in "$@"; do files+=(-r "$file"); done
    mkdir -p "$cache" || return
    (
        flock 9 || exit
        [ -e "$place/whole" ] && exit
        say "python: installing what $(basename -a "$@" | paste -sd ' ') pin into $place"
        rm -rf "$place"
        python3 -m venv "$place" >&2 &&
            "$place/bin/pip" install --quiet --disable-pip-version-check \
                --only-binary :all: --no-binary pyspark "${files[@]}" >&2 &&
            touch "$place/whole"
    ) 9>"$place.lock" || return
    venv=$place
}

# Spark, a server for S3, and other engines. Apart from the rest, because they are large (pyspark 450 MB, chdb 530) and
# the other tests need none of them: without them, or without Java, tests that do say so and are passed over.
prepare_engines() {
    command -v java >/dev/null || install_quietly default-jre-headless
    make_environment "$requirements" "$engines" ||
        say "passed over: the lake on Spark, S3 and other engines: its packages could not be installed (see above)"
}

# Packages that cannot be had, as without a network, are a reason to pass over, as a missing Python is.
prepare() {
    need_python || return
    make_environment "$requirements" && return
    say "passed over: $suite: its packages could not be installed (see above)"
    return "$passed_over"
}

check() {
    prepare || return
    local status=0
    "$venv/bin/ruff" check --quiet --no-cache python bench scripts >&2 || status=1
    "$venv/bin/ruff" format --quiet --no-cache --check --diff python bench scripts >&2 || status=1
    (cd python && "$venv/bin/mypy" --cache-dir "$cache/mypy" --no-error-summary >&2) || status=1
    return "$status"
}

# A line as cargo prints it: what test.sh sums.
result() { echo "test result: $1. $2 passed; $3 failed; $4 skipped; $suite"; }

# The tests run this program, and make up a trace with this example.
build_program() {
    [ -n "${SWTCH_BUILT:-}" ] && return
    cargo build -p swtch --bins --examples --locked
}

# run_pytest ARGUMENTS…: the result line is printed by python/tests/conftest.py; a run that dies before has failed.
run_pytest() {
    local log status=0
    log=$(mktemp) || return
    (cd python && PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" -m pytest -q "$@") | tee "$log" || status=1
    if ! grep -q '^test result: ' "$log"; then
        result FAILED 0 1 0
        status=1
    fi
    rm -f "$log"
    return "$status"
}

run_tests() {
    if ! prepare; then
        local why
        why=$(why_not_python)
        echo "test $suite ... skipped: ${why:-what python/requirements-test.txt pins could not be installed}"
        result ok 0 0 1
        return "$passed_over"
    fi
    prepare_engines
    # A program that is named already (SWTCH) is not built.
    if [ -z "${SWTCH:-}" ]; then
        if ! build_program; then
            say "python: the program does not build"
            result FAILED 0 1 0
            return 1
        fi
        local built
        built=$(target_dir)/debug
        export SWTCH="$built/swtch" SWTCH_MAKE_TRACE="$built/examples/make_trace"
    fi
    run_pytest "$@"
}

# Each end lies before the pinned one in the path of Python.
run_duckdb() {
    prepare || return
    local end place status=0
    [ $# -gt 0 ] || set -- tests/test_{results,figures,several,timeline,views,bill,query,fleet,lake}.py
    for end in "${duckdb_ends[@]}"; do
        place=$cache/duckdb-$end-python$(python_version)
        if [ ! -e "$place" ]; then
            rm -rf "$place.part"
            "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
                --target "$place.part" "duckdb==$end" >&2 && mv "$place.part" "$place" || return
        fi
        say "python: with duckdb $end"
        PYTHONPATH=$place run_tests "$@" || status=1
    done
    return "$status"
}

command=${1:-test}
[ $# -gt 0 ] && shift
case $command in
check) check ;;
schemas) prepare && "$venv/bin/python" python/schemas.py ;;
test) run_tests "$@" ;;
duckdb) run_duckdb "$@" ;;
*) die "scripts/python.sh check, schemas, test or duckdb" ;;
esac
