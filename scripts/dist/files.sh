# shellcheck shell=bash
# Sourced by dist.sh: the files of a package, and the packages that hold them as they are, .deb, .rpm and .tar.gz.

# The files of a package below a directory, as /usr has them. The second program is one that runs here.
fill_usr() {
    local program=$1 native=$2 usr=$3
    rm -rf "$usr"
    install -D -m 755 "$program" "$usr/bin/swtch"
    mkdir -p "$usr/share/man/man1" || die "no room for the manual pages"
    "$native" man-pages "$usr/share/man/man1" || die "no manual pages"
    gzip -9 -n "$usr"/share/man/man1/*.1
    install -D -m 644 -t "$usr/include" include/swtch_context.h || die "no room for the header"
    local completions=$usr/share/bash-completion/completions
    mkdir -p "$completions" "$usr/share/zsh/vendor-completions" "$usr/share/fish/vendor_completions.d"
    "$native" completions bash >"$completions/swtch" &&
        "$native" completions zsh >"$usr/share/zsh/vendor-completions/_swtch" &&
        "$native" completions fish >"$usr/share/fish/vendor_completions.d/swtch.fish" ||
        die "no completions"
    local documents=$usr/share/doc/swtch
    mkdir -p "$documents/docs"
    cp README.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md CHANGELOG.md LICENSE-* crates/swtch-plot/assets/LICENSE-DejaVu scripts/dist/copyright "$documents/" &&
        cp -r docs/*.md docs/agent "$documents/docs/" ||
        die "no room for the documents"
    chmod -R u=rwX,go=rX "$usr"
}

maintainer="The swtch authors <swtch-dev@users.noreply.github.com>"

control() {
    local version=$1 architecture=$2 usr=$3
    cat <<TEXT
Package: swtch
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -sk "$usr" | cut -f1)
Section: utils
Priority: optional
Suggests: python3
Homepage: https://github.com/swtch-dev/swtch
Description: where context switches come from, and what they cost
 swtch records every context switch with its cause, says what the switches
 cost on this machine, and shows each of them on a time line in the browser.
 Linux 5.15 or later with BTF records everything as root; without rights, own
 processes are recorded as far as the kernel allows.
TEXT
}

# The services, and the options of the agent's.
add_services() {
    local root=$1
    install -D -m 644 -t "$root/usr/lib/systemd/system" scripts/dist/swtch-{agent,flight}.service &&
        install -D -m 644 scripts/dist/swtch-agent.default "$root/etc/default/swtch-agent" ||
        die "no room for the services"
}

# What Debian wants of a package beside the files of the others: the texts of all licences in one file but for those that
# each system has, a change log in its own form, and what tells systemd of the services (scripts/dist/debian).
fill_debian() {
    local version=$1 root=$2 name
    local documents=$root/usr/share/doc/swtch
    for name in MIT BSD DejaVu; do
        printf '\n%s\n\n' "-- LICENSE-$name --"
        cat "$documents/LICENSE-$name" || return
    done >>"$documents/copyright"
    rm "$documents"/LICENSE-* && gzip -9 -n "$documents/CHANGELOG.md" || return
    printf 'swtch (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- %s  %s\n' \
        "$version" "$maintainer" "$(date -uRd "@$SOURCE_DATE_EPOCH")" | gzip -9 -n >"$documents/changelog.gz"
    install -D -m 644 scripts/dist/debian/lintian-overrides "$root/usr/share/lintian/overrides/swtch" &&
        install -D -m 755 -t "$root/DEBIAN" scripts/dist/debian/{postinst,prerm,postrm} &&
        echo /etc/default/swtch-agent >"$root/DEBIAN/conffiles"
}

make_deb() {
    local version=$1 architecture=$2 usr=$3 file=$4
    local root
    root=$(mktemp -d) || die "no room for a temporary directory"
    cp -a "$usr" "$root/usr"
    add_services "$root"
    fill_debian "$version" "$root" || die "no room for the files of the package"
    (cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums) || die "no sums of files"
    control "$version" "$architecture" "$root/usr" >"$root/DEBIAN/control"
    chmod -R u=rwX,go=rX "$root"
    SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH dpkg-deb --root-owner-group -Zxz --build "$root" "$file" >/dev/null || die "dpkg-deb could not build $file"
    rm -rf "$root"
}

# rpmbuild leaves the files as they are.
make_rpm() {
    local version=$1 machine=$2 usr=$3 file=$4
    local root given=() word
    root=$(mktemp -d) || die "no room for a temporary directory"
    mkdir "$root/files"
    cp -a "$usr" "$root/files/usr"
    mv "$root"/files/usr/share/zsh/{vendor-completions,site-functions}
    add_services "$root/files"
    for word in "_topdir $root" "_rpmdir $root" "given_version $version" "given_files $root/files" "_buildhost swtch" \
        "__os_install_post %{nil}" "debug_package %{nil}" "_build_id_links none" "_binary_payload w9.xzdio" \
        "use_source_date_epoch_as_buildtime 1" "clamp_mtime_to_source_date_epoch 1"; do
        given+=(--define "$word")
    done
    SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH rpmbuild -bb --quiet --target "$machine-linux" "${given[@]}" scripts/dist/swtch.spec >&2 &&
        mv "$root/$machine"/*.rpm "$file" || die "rpmbuild could not build $file"
    rm -rf "$root"
}

make_archive() {
    local name=$1 usr=$2 file=$3
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --transform="s,^\.,$name," -C "$usr" -c . | gzip -9 -n >"$file" || die "tar could not write $file"
}

