#!/usr/bin/env bash
# Links as $SWTCH_LINKER does, in its place (scripts/dist.sh). The program `swtch`, which is linked without symbols, is
# linked once more with them, and they go to the file $SWTCH_SYMBOLS under the program's build id, by which debuggers know
# them. The program itself stays as it is: names that thin LTO makes up differ between two builds of one source.
set -e
"$SWTCH_LINKER" "$@"

words=() out='' before=''
for word in "$@"; do
    [ "$word" = -Wl,--strip-all ] || words+=("$word")
    [ "$before" != -o ] || out=$word
    before=$word
done
[[ $out == */swtch-* ]] && [ ${#words[@]} -lt $# ] || exit 0
objcopy=objcopy
[[ $SWTCH_LINKER != *-gcc ]] || objcopy=${SWTCH_LINKER%gcc}objcopy # aarch64-linux-gnu-gcc
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for word in "${!words[@]}"; do
    [ "${words[word]}" != "$out" ] || words[word]=$place/program
done
"$SWTCH_LINKER" "${words[@]}"
"$objcopy" --dump-section .note.gnu.build-id="$place/id" "$out" "$place/copy"
"$objcopy" --only-keep-debug --compress-debug-sections "$place/program" "$place/symbols"
"$objcopy" --update-section .note.gnu.build-id="$place/id" "$place/symbols" "$SWTCH_SYMBOLS"
