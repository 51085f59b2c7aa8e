# shellcheck shell=bash
# Sourced by dist.sh: the files of a package, and the packages that hold them as they are, .deb and .tar.gz.

# The files of a package below a directory, as /usr has them. The second program is one that runs here.
fill_usr() {
    local program=$1 native=$2 usr=$3
    rm -rf "$usr"
    install -D -m 755 "$program" "$usr/bin/swtch"
    mkdir -p "$usr/share/man/man1" || die "no room for the manual pages"
    "$native" man-pages "$usr/share/man/man1" || die "no manual pages"
    gzip -9 -n "$usr"/share/man/man1/*.1
    local completions=$usr/share/bash-completion/completions
    mkdir -p "$completions" "$usr/share/zsh/vendor-completions" "$usr/share/fish/vendor_completions.d"
    "$native" completions bash >"$completions/swtch" &&
        "$native" completions zsh >"$usr/share/zsh/vendor-completions/_swtch" &&
        "$native" completions fish >"$usr/share/fish/vendor_completions.d/swtch.fish" ||
        die "no completions"
    local documents=$usr/share/doc/swtch
    mkdir -p "$documents/docs"
    cp README.md CHANGELOG.md LICENSE-* crates/swtch-plot/assets/LICENSE-DejaVu scripts/dist/copyright "$documents/" &&
        cp docs/*.md "$documents/docs/" ||
        die "no room for the documents"
    chmod -R u=rwX,go=rX "$usr"
}

control() {
    local version=$1 architecture=$2 usr=$3
    cat <<TEXT
Package: swtch
Version: $version
Architecture: $architecture
Maintainer: the authors of swtch <https://github.com/swtch-dev/swtch>
Installed-Size: $(du -sk "$usr" | cut -f1)
Section: devel
Priority: optional
Homepage: https://github.com/swtch-dev/swtch
Description: where context switches come from, and what they cost
 swtch records every context switch with its cause, says what the switches cost on this machine, and
 shows each of them on a time line in the browser. Linux 5.15 or later with BTF records everything as
 root; without rights, own processes are recorded as far as the kernel allows.
TEXT
}

make_deb() {
    local version=$1 architecture=$2 usr=$3 file=$4
    local root
    root=$(mktemp -d) || die "no room for a temporary directory"
    cp -a "$usr" "$root/usr"
    install -D -m 644 scripts/dist/swtch-flight.service "$root/usr/lib/systemd/system/swtch-flight.service"
    install -D -m 644 scripts/dist/swtch-agent.service "$root/usr/lib/systemd/system/swtch-agent.service"
    mkdir -p "$root/DEBIAN"
    control "$version" "$architecture" "$usr" >"$root/DEBIAN/control"
    chmod 755 "$root"
    SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH dpkg-deb --root-owner-group -Zxz --build "$root" "$file" >/dev/null || die "dpkg-deb could not build $file"
    rm -rf "$root"
}

make_archive() {
    local name=$1 usr=$2 file=$3
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --transform="s,^\.,$name," -C "$usr" -c . | gzip -9 -n >"$file" || die "tar could not write $file"
}

