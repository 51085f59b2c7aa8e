# shellcheck shell=bash
# Sourced by dist.sh: the Python wheel, which carries the program and the package (python/).
#
# maturin makes it. It asks cargo for the program with the flags of the other packages, and cargo finds it
# built. The tag is that of manylinux2014 (glibc 2.17, the oldest that Rust is for); the program is static and
# needs no C library at all. The wheel is not tagged for musl: DuckDB has no wheel there to depend on.

# shellcheck disable=SC2154 # env.sh
wheel_venv=$root_dir/target/dist-venv
wheel_requirements=$root_dir/scripts/dist/requirements.txt

# Makes an environment with what scripts/dist/requirements.txt pins.
install_wheel_tools() {
    python3 -c 'import ensurepip, venv' 2>/dev/null || install_quietly python3 python3-venv
    cmp -s "$wheel_requirements" "$wheel_venv/installed" && return
    say "installing: what scripts/dist/requirements.txt pins"
    rm -rf "$wheel_venv"
    python3 -m venv "$wheel_venv" >&2 &&
        "$wheel_venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$wheel_requirements" >&2 &&
        cp "$wheel_requirements" "$wheel_venv/installed"
}

# make_wheel MACHINE USR OUT: USR has manual pages and completions, which go into the environment's share/.
make_wheel() {
    local machine=$1 usr=$2 out=$3 data=python/swtch.data
    rm -rf "$data"
    mkdir -p "$data/data/share" || die "no room for $data"
    cp -r "$usr"/share/{man,bash-completion,zsh,fish} "$data/data/share/" || die "no room for $data"
    (cd python && statically "$machine" "$wheel_venv/bin/maturin" build --locked --target "$machine-unknown-linux-gnu" \
        --features static --compatibility manylinux2014 --auditwheel check --out "$out" >&2) ||
        die "maturin could not make the wheel for $machine (see above)"
    rm -rf "$data"
}
