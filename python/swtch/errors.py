"""The one class of errors that this package raises for what a caller can do something about."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Error(Exception):
    """A trace cannot be opened, a question cannot be answered, or a recording failed.

    `str(error)` is one message: what went wrong and, on a line of its own, what to do about it
    where something helps. `advice` is that second part alone, or `None`.
    """

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message if advice is None else f"{message}\n{advice}")
        self.advice = advice


def require(module: str, package: str | None = None) -> Any:
    """A module that only some answers need; `Error` with what installs it where it is not."""
    package = package or module
    try:
        return import_module(module)
    except ImportError as why:
        raise Error(f"{module} is not installed", f"pip install {package}") from why
