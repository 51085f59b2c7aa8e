#!/usr/bin/env bash
# Makes a release here: version, change log, packages, checksums, signatures, tag. It pushes nothing, and says at the
# end what to push.
#
#   scripts/release.sh 0.2.0 --key ~/.ssh/id_ed25519    signed by ssh
#   scripts/release.sh 0.2.0 --key KEYID                signed by gpg
#   scripts/release.sh 0.2.0 --dry-run                  in a clone that is thrown away: the changes and the notes are
#                                                       shown; what would build, sign and tag is printed, not run
#
# The tree must be clean, and CHANGELOG.md must have entries under [Unreleased], which become the notes. What is built
# is scripts/dist.sh; options for it come last, after --: scripts/release.sh 0.2.0 --key KEY -- --image --test
set -u -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

version=
key=
dry_run=no
while [ $# -gt 0 ]; do
    case $1 in
    --key)
        key=${2:-}
        [ -n "$key" ] || die "--key names a key: the file of an ssh key, or the id of a gpg key"
        shift
        ;;
    --dry-run) dry_run=yes ;;
    --help | -h)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
        exit
        ;;
    --)
        shift
        break
        ;;
    -*) die "unknown option: $1; see --help" ;;
    *) version=$1 ;;
    esac
    shift
done

# Runs a command, or prints it.
run() {
    if [ "$dry_run" = yes ]; then
        say "would run: $*"
    else
        "$@"
    fi
}

before=$(git rev-parse HEAD)
current=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

check() {
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "name the version, as in: scripts/release.sh 0.2.0 --key KEY (found: '$version')"
    version_at_least "$version" "$current" || die "version $version is older than $current, which Cargo.toml has"
    [ -z "$(git status --porcelain)" ] || die "the tree has changes that are not committed: commit or remove them first (git status)"
    ! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null || die "the tag v$version exists already: take another version"
    [ -n "$(notes_of Unreleased | grep '^- ')" ] || die "CHANGELOG.md has no entries under [Unreleased]: say there what is new"
    [ "$dry_run" = yes ] || [ -n "$key" ] || die "--key names the key that signs: the file of an ssh key, or the id of a gpg key"
    [ -z "$key" ] || [ -f "$key" ] || gpg --batch --list-secret-keys "$key" >/dev/null 2>&1 ||
        die "$key is no file (seen from $root_dir), and gpg has no secret key of that id"
}

# What CHANGELOG.md says of a version, without its head.
notes_of() {
    awk -v head="## [$1]" 'index($0, "## [") == 1 { inside = index($0, head) == 1; next } inside' CHANGELOG.md
}

# Writes the version wherever the tree says it, and closes the section of the change log.
set_version() {
    local old=${current//./\\.} places=(Cargo.toml fiber/Cargo.toml fiber/swtch-fiber/Cargo.toml)
    sed -i "s/version = \"$old\"/version = \"$version\"/" "${places[@]}"
    sed -i -E "s/\bswtch([-_:])$old/swtch\1$version/g" Containerfile docs/INSTALL.md docs/CONTAINERS.md docs/agent/*.yaml
    sed -i "/^Nothing has been released yet/,+1d; s/^## \[Unreleased\]/&\n\n## [$version] - $(date -u +%F)/" CHANGELOG.md
    local manifest
    for manifest in Cargo.toml fiber/Cargo.toml; do
        cargo update --quiet --offline --workspace --manifest-path "$manifest" || die "cargo could not write the lock file of $manifest (see above)"
    done
}

# Adds the files that scripts/dist.sh made but did not sum, symbols and images: all that is published is signed.
sum_the_rest() (
    cd "$packages" || exit
    for file in ./*; do
        if [ -f "$file" ] && [ "$file" != ./SHA256SUMS ]; then
            sum=$(sha256sum "$file") && { grep -qxF "$sum" SHA256SUMS || echo "$sum" >>SHA256SUMS; } || exit
        fi
    done
)

# Signs a file: FILE.sig by ssh (ssh-keygen -Y verify -n file), FILE.asc by gpg.
sign() {
    if [ -f "$key" ]; then
        run ssh-keygen -Y sign -q -f "$key" -n file "$1"
    else
        run gpg --batch --yes --local-user "$key" --armor --detach-sign "$1"
    fi
}

sign_tag() {
    local format=openpgp
    [ ! -f "$key" ] || format=ssh
    run git -c gpg.format="$format" -c user.signingKey="$key" tag --sign --message "swtch $version" "v$version"
}

check
if [ "$dry_run" = yes ]; then
    place=$(mktemp -d) || die "no room for a temporary directory"
    trap 'rm -rf "$place"' EXIT
    git clone --quiet "$root_dir" "$place/swtch" && cd "$place/swtch" || die "git could not clone the project"
    key=${key:-KEY}
fi
packages=$(target_dir)/packages
[ "$dry_run" = yes ] || trap 'say "there is no tag; to go back: git reset --hard $before"' EXIT
set_version
stale=$(git grep -il "nothing has been released yet" -- '*.md')
[ -z "$stale" ] || say "note: these pages still say that nothing has been released: $(paste -sd ' ' <<<"$stale")"
git commit --quiet --all --message "Release $version" || die "git could not commit the version"
git --no-pager show --format=%s --stat -p --no-color HEAD
run scripts/dist.sh "$@" || die "the packages could not be built (see above)"
if [ "$dry_run" = yes ]; then
    say "the notes:"
    notes_of "$version"
else
    notes_of "$version" >"$packages/NOTES.md" || die "no room for the notes"
fi
run sum_the_rest || die "no room for the checksums"
sign "$packages/SHA256SUMS" || die "$key could not sign the checksums (see above)"
sign_tag || die "$key could not sign the tag (see above)"
[ "$dry_run" = yes ] || trap - EXIT
say "nothing has been pushed. To publish: git push origin HEAD v$version
and: gh release create v$version --verify-tag --notes-file $packages/NOTES.md $packages/*"
