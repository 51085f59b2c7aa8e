# shellcheck shell=bash
# Sourced by vm-test and dist.sh: packages of a release of Debian, for any architecture.
#
# Uses of the caller: work (a directory), skip (what to do when something cannot be had).

# Installs packages of this machine.
install_packages() {
    command -v apt-get >/dev/null ||
        skip "missing here: $* (Debian's names): install them by your package manager"
    say "installing: $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >&2 ||
        skip "could not install $* (see above)"
}

# Makes apt speak of one Debian release for one architecture, by package lists of its own.
apt_of_release() {
    local release=$1 architecture=$2 lists=$work/apt-$1-$2 mirror
    mkdir -p "$lists"/{lists/partial,cache/archives/partial,parts}
    # From where this machine gets its own packages.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null |
        grep debian | grep -v security | head -n 1)
    [ -n "$mirror" ] || skip "apt knows no Debian package source here: run apt-get update"
    echo "deb $mirror $release main" >"$lists/sources.list"
    apt_options=(-o "Dir::Etc::SourceList=$lists/sources.list" -o "Dir::Etc::SourceParts=$lists/parts"
        -o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=
        -o "Acquire::Languages=none" -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture")
    [ -e "$lists/fresh" ] && [ -n "$(find "$lists/fresh" -mmin -60)" ] && return
    apt-get "${apt_options[@]}" update -qq >&2 || skip "could not read the package lists of $release"
    touch "$lists/fresh"
}

# Downloads a package of the release that apt speaks of, unless that version is there already;
# prints its file.
download() {
    local package=$1 file
    mkdir -p "$work/packages"
    # Debian's files write the colon of a version as %3a, and so does apt.
    file=$(apt-cache "${apt_options[@]}" show "$package" 2>/dev/null |
        awk '/^Version:/ { gsub(":", "%3a", $2); version = $2 } /^Architecture:/ { arch = $2 }
             version && arch { print version "_" arch ".deb"; exit }')
    file=$work/packages/${package}_$file
    [ -s "$file" ] || (cd "$work/packages" && apt-get "${apt_options[@]}" download -qq "$package" >&2) ||
        skip "could not download $package"
    [ -s "$file" ] || skip "$package was downloaded under another name than $file"
    echo "$file"
}
