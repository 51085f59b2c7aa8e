"""`pip install ./python` on a machine without compilers."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

import build_backend


def test_who_lacks_a_compiler_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cargo = tmp_path / "cargo"
    cargo.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        build_backend.get_requires_for_build_wheel()
    said = str(ended.value)
    assert "needs clang and cc," in said
    assert "make setup" in said and "pip install swtch-*.whl" in said
    for name in ("clang", "cc"):
        (tmp_path / name).touch(mode=0o755)
    assert build_backend.get_requires_for_build_wheel() == []
