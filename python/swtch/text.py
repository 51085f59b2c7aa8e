"""Names of others made safe to show, and tables of aligned columns.

A process may choose any name, and its name ends up in somebody's terminal or notebook. Characters
that move the cursor, turn the direction of reading or cannot be seen are shown by their number, as
the program does (`crates/swtch-output/src/text.rs`; a test compares the two lists).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# Ranges of characters, both ends included: the list of `is_hostile` in the program's `text.rs`.
HOSTILE_RANGES: tuple[tuple[int, int], ...] = (
    # Control characters: C0, DEL and C1.
    (0x00, 0x1F),
    (0x7F, 0x9F),
    # Direction of reading.
    (0x61C, 0x61C),
    (0x200E, 0x200F),
    (0x202A, 0x202E),
    (0x2066, 0x206F),
    # Characters without width, or blank without being a space.
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180E),
    (0x200B, 0x200D),
    (0x2060, 0x2065),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF9, 0xFFFB),
    (0xE0000, 0xE0FFF),
    # Line and paragraph ends.
    (0x2028, 0x2029),
    # Halves of surrogate pairs: Python keeps bytes of a path that are no UTF-8 as these.
    (0xD800, 0xDFFF),
)

# Wider cells move the rest of their own line only: a name may have a million characters.
WIDEST_COLUMN = 400


_HOSTILE = re.compile(f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in HOSTILE_RANGES)}]")


def is_hostile(character: str) -> bool:
    """Whether a character must not be shown as it is."""
    return _HOSTILE.fullmatch(character) is not None


def escaped(text: str) -> str:
    """The text with every hostile character shown by its number: `\\x1b`, `\\u{202e}`."""
    if text.isascii() and text.isprintable():
        return text
    return _HOSTILE.sub(_by_number, text)


def _by_number(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        # A byte of a path that is no UTF-8 (PEP 383).
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def json_escaped(json_text: str) -> str:
    """JSON text with every hostile character but the line break as JSON's own escape.

    Only strings can hold one, so the value stays the same.
    """
    return _HOSTILE.sub(_json_escape, json_text)


def _json_escape(found: re.Match[str]) -> str:
    if found[0] == "\n":
        return "\n"
    units = found[0].encode("utf-16-be", "surrogatepass")
    pairs = (units[place : place + 2] for place in range(0, len(units), 2))
    return "".join(f"\\u{int.from_bytes(pair, 'big'):04x}" for pair in pairs)


def width(text: str) -> int:
    """Columns that a text takes on a terminal: wide characters take two, marks on others none."""
    if text.isascii():
        return len(text)
    return sum(_width_of(c) for c in text)


def _width_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Aligned columns: the head, a rule, the rows. `right` says which columns hold numbers."""
    widths = [_column_width(head[n], [row[n] for row in rows]) for n in range(len(head))]
    rule = "──".join("─" * wide for wide in widths)
    lines = [_line(head, widths, right), rule]
    lines.extend(_line(row, widths, right) for row in rows)
    return "\n".join(lines)


def _column_width(head: str, cells: Sequence[str]) -> int:
    return min(max(map(width, [head, *cells])), WIDEST_COLUMN)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, wide, is_right in zip(cells, widths, right, strict=True):
        blanks = " " * max(0, wide - width(cell))
        padded.append(blanks + cell if is_right else cell + blanks)
    return "  ".join(padded).rstrip()
