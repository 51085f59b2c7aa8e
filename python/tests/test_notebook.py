"""The notebook runs from a recording to its pictures, as it is."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import nbformat
import pytest
from conftest import PRICES, REPOSITORY, why_not_ebpf
from nbclient import NotebookClient

NOTEBOOK = REPOSITORY / "python/notebooks/first-look.ipynb"

# Most bytes of the notebook with what it shows.
MOST_BYTES = 200_000


def pictures(notebook: nbformat.NotebookNode) -> list[bytes]:
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    found = [one.data["image/png"] for one in outputs if "image/png" in one.get("data", {})]
    return [base64.b64decode(one) for one in found]


def executed(place: Path) -> nbformat.NotebookNode:
    """The notebook, run anew; where the workplace is shows nowhere in it."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # Frames of the kernel's own threads need not be looked at.
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(place)}})
    return client.execute()


def test_the_notebook_runs(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := why_not_ebpf():
        pytest.skip(f"cannot record: {why}")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "python"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "data/swtch").mkdir(parents=True)
    shutil.copy(PRICES, tmp_path / "data/swtch/prices.json")
    notebook = executed(tmp_path)
    assert len(pictures(notebook)) == 4
    assert "200 jobs" in nbformat.writes(notebook)


def test_the_kept_outputs_are_small_and_whole() -> None:
    assert NOTEBOOK.stat().st_size < MOST_BYTES
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert len(pictures(notebook)) == 4
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.execution_count is not None
            assert all(one.output_type != "error" for one in cell.outputs)
