"""How pip builds the wheel from a clone: maturin does all of it (PEP 517).

What maturin says on a machine without Rust is that it would install one; this says what is needed.
"""

import shutil
import sys
from typing import Any

HELP = """\
Building swtch takes a few minutes and needs {missing}, which is not there. Either
  - install a finished wheel (`make dist` makes one), without compilers: pip install swtch-*.whl, or
  - run `make setup` in the clone, which installs what building needs, and try again, or
  - install nothing: PYTHONPATH=python in a clone does, with DuckDB installed (docs/PYTHON.md)."""


def require_compilers() -> None:
    """Ends with what to do if the program cannot be built here."""
    missing = [program for program in ("cargo", "clang", "cc") if shutil.which(program) is None]
    if missing:
        sys.exit(HELP.format(missing=" and ".join(missing)))


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Asked first of all hooks; maturin itself is named in pyproject.toml."""
    require_compilers()
    return []


get_requires_for_build_editable = get_requires_for_build_wheel


def __getattr__(name: str) -> Any:
    """All other hooks are maturin's."""
    import maturin

    return getattr(maturin, name)
