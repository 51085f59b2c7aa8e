"""Questions to a fleet, ready to run over a lake.

    from swtch import fleet, lake

    with lake.open("/srv/lake", since="2026-11-20") as opened:
        fleet.ask(opened, "cgroups").df()

Each question is a file in `swtch/fleet/sql/`, written once for every engine: its first lines say
what a row is, what its columns mean, and what it assumes. `swtch lake fleet` runs them too.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Literal

from ..errors import Error
from ..lake import Lake
from ..result import Result

__all__ = ["QUESTIONS", "ask", "text_of"]

Question = Literal["cgroups", "hosts", "neighbours", "kinds", "rollout", "band"]

# Question -> what it asks, and its values with what they are when not given.
QUESTIONS: dict[Question, tuple[str, dict[str, Any]]] = {
    "cgroups": ("which cgroups of which hosts pay most for switches", {}),
    "hosts": ("which hosts pay most for switches", {}),
    "neighbours": ("which cgroups had the CPU while which others waited for it", {}),
    "kinds": ("which kernel or instance type has dearer switches", {}),
    "rollout": ("what got worse from one release to another", {"before": None, "after": None}),
    "band": ("on which hosts and days the p99 of run-queue waits left its band", {}),
}


def ask(opened: Lake, question: Question, **values: Any) -> Result:
    """The answer to one of `QUESTIONS`."""
    if question not in QUESTIONS:
        raise Error(f"no question is called {question!r}", f"there are: {', '.join(QUESTIONS)}")
    wanted = {**QUESTIONS[question][1], **values}
    missing = [f"{name}=" for name, value in wanted.items() if value is None]
    if missing or len(wanted) > len(QUESTIONS[question][1]):
        takes = ", ".join(QUESTIONS[question][1]) or "no values"
        raise Error(f"the question {question} takes {takes}")
    return opened.sql(text_of(question), wanted or None)


def text_of(question: str) -> str:
    """The SQL of a question."""
    return (files("swtch.fleet") / "sql" / f"{question}.sql").read_text(encoding="utf-8")
