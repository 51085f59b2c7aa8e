#!/usr/bin/env bash
# Makes all experiments of the lab on this machine, and puts their answers into docs/LAB.md and their
# figures into docs/lab/. Between `<!-- NAME: begin -->` and `<!-- NAME: end -->` the page is replaced; all
# else is left as it is. Give names to make only those; "claims" is one. Takes about ten minutes.
set -eu -o pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

page=docs/LAB.md
answer=$(mktemp) || die "no room for a temporary file"
trap 'rm -f "$answer"' EXIT

# Puts the answer, as a block of text, between the marks of a name.
replace() {
    awk -v name="$1" -v answer="$answer" '
        $0 == "<!-- " name ": end -->" { inside = 0 }
        !inside { print }
        $0 == "<!-- " name ": begin -->" {
            inside = 1
            print "```text"
            while ((getline line < answer) > 0) print line
            print "```"
        }' "$page" >"$page.new"
    mv "$page.new" "$page"
}

find_cargo || die "no cargo: run \`make setup\`"
cargo build --release --locked -p swtch
swtch=target/release/swtch
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    # "claims" stands in the list, after the experiments.
    mapfile -t names < <("$swtch" lab | sed -n 's/^swtch lab \([a-z-]*\)  .*/\1/p')
fi
mkdir -p docs/lab
for name in "${names[@]}"; do
    echo "== $name"
    # Exit code 1: an answer is open, and the page says which.
    code=0
    if [ "$name" = claims ]; then
        "$swtch" lab claims --quick >"$answer" || code=$?
    else
        "$swtch" lab "$name" --plot "docs/lab/$name.svg" >"$answer" || code=$?
    fi
    [ "$code" -le 1 ] || die "swtch lab $name failed"
    replace "$name"
done
