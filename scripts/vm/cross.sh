# shellcheck shell=bash
# Sourced by vm-test and dist.sh: builds for arm64 on an x86-64 machine. The compiler is a package of this
# machine. The libraries that swtch is linked with are arm64 packages; they are unpacked below the
# target directory and not installed, since two architectures on one machine need the same version
# of every library that they share, and a machine often has not got that.
#
# Uses of the caller: work, skip; and debian.sh.

cross_target=aarch64-unknown-linux-gnu
cross_gcc=aarch64-linux-gnu
# Installed with the compiler, of the release that it links for: the C library and its loader.
cross_libc=/usr/$cross_gcc/lib

# Makes this machine able to build for arm64, and exports what cargo must know for that.
prepare_cross_build() {
    command -v $cross_gcc-gcc >/dev/null || install_packages "gcc-$cross_gcc" libc6-dev-arm64-cross
    install_cross_std
    unpack_cross_libraries
    local headers=$cross_root/usr/include library_path
    library_path=$(IFS=:; echo "${cross_library_dirs[*]}")
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$cross_gcc-gcc
    # Libraries that the libraries themselves need are looked for there.
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C link-arg=-Wl,-rpath-link,$library_path"
    export CC_aarch64_unknown_linux_gnu=$cross_gcc-gcc AR_aarch64_unknown_linux_gnu=$cross_gcc-ar
    export CFLAGS_aarch64_unknown_linux_gnu="-isystem $headers -isystem $headers/$cross_gcc"
    export LIBBPF_SYS_LIBRARY_PATH_aarch64_unknown_linux_gnu=$library_path
}

# The standard library of Rust for arm64.
install_cross_std() {
    local libdir
    libdir=$(rustc --print target-libdir --target $cross_target) || die "rustc knows no $cross_target"
    [ -d "$libdir" ] && return
    command -v rustup >/dev/null ||
        skip "this Rust has no standard library for arm64 and there is no rustup to install it: give rustc one for $cross_target"
    say "installing: Rust's standard library for arm64"
    rustup target add $cross_target >&2 || skip "could not install Rust's standard library for arm64 (see above)"
}

# Unpacks libelf and zlib with their headers, and busybox for the machine.
unpack_cross_libraries() {
    local codename package file packages
    cross_root=$work/arm64/libraries
    mkdir -p "$cross_root"
    cross_library_dirs=("$cross_root/usr/lib/$cross_gcc" "$cross_root/lib/$cross_gcc")
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    command -v apt-get >/dev/null && [ -n "$codename" ] ||
        skip "libelf and zlib for arm64 come from Debian's packages, and there is no apt-get here"
    apt_of_release "$codename" arm64
    # Named libelf1t64 from Debian 13 on, where libelf needs libzstd, too.
    mapfile -t packages < <(apt-cache "${apt_options[@]}" pkgnames libelf1 | grep -x 'libelf1\(t64\)\?')
    for package in busybox-static libelf-dev zlib1g-dev zlib1g libzstd1 "${packages[@]}"; do
        file=$(download "$package") || exit
        dpkg-deb -x "$file" "$cross_root" || die "cannot unpack $file"
    done
    cross_busybox=$(find "$cross_root/bin" "$cross_root/usr/bin" -name busybox 2>/dev/null | head -n 1)
    [ -n "$cross_busybox" ] || die "busybox-static has no busybox"
}

# The libraries that a program and its libraries ask for, with the loader, one file a line.
cross_libraries_of() {
    local -A found=()
    local queue=("$@") program name dir
    while [ ${#queue[@]} -gt 0 ]; do
        program=${queue[0]}
        queue=("${queue[@]:1}")
        for name in $($cross_gcc-readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p') ld-linux-aarch64.so.1; do
            [ -z "${found[$name]:-}" ] || continue
            for dir in "${cross_library_dirs[@]}" "$cross_libc"; do
                [ -e "$dir/$name" ] && break
            done
            [ -e "$dir/$name" ] || die "$program needs $name, and it is in none of ${cross_library_dirs[*]} $cross_libc"
            found[$name]=$dir/$name
            queue+=("$dir/$name")
        done
    done
    printf '%s\n' "${found[@]}"
}
