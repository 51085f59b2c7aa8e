"""The one class of errors that this package raises for what a caller can do something about."""

from __future__ import annotations


class Error(Exception):
    """A trace cannot be opened, a question cannot be answered, or a recording failed.

    `str(error)` is one message: what went wrong and, on a line of its own, what to do about it
    where something helps. `advice` is that second part alone, or `None`.
    """

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message if advice is None else f"{message}\n{advice}")
        self.advice = advice
