"""Who may write to a lake reaches nothing outside of it by the hands of others."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

import swtch
from swtch.fleet import generator
from swtch.lake import operations
from swtch.lake.manifest import Change, Manifest, commit, latest, name_of
from swtch.lake.store import FOLDERS, Directory, checked_name
from swtch.query import main

Verb = Callable[[Path], list[str]]

VERBS: dict[str, Verb] = {
    "compact": lambda root: ["compact", str(root), "--grace-s", "0"],
    "retain": lambda root: ["retain", str(root), "--before", "2026-01-06", "--grace-s", "0"],
    "verify": lambda root: ["verify", str(root), "--repair"],
}

# Names that lead elsewhere, or would: `{victim}` is a file outside of the lake.
NAMES = (
    "{victim}",
    "../victim/gold.parquet",
    "data/../../victim/gold.parquet",
    "data/./x.parquet",
    "data//x.parquet",
    "data/",
    "data",
    "",
    "/data/x.parquet",
    "manifest/latest",
    "data/x\0.parquet",
    "data/\ud800.parquet",
    "incoming/x/new",
    ["data/x.parquet"],
    None,
)

# Parquet holds texts that are UTF-8.
IN_A_LIST = tuple(name for name in NAMES if isinstance(name, str) and "\ud800" not in name)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two days, with two small files in each."""
    root = tmp_path_factory.mktemp("filled") / "lake"
    store = Directory(str(root))
    for switches in (1000, 2000):
        generator.fill(store, generator.Fleet(hosts=1, days=2, switches=switches))
    return root


@pytest.fixture
def root(filled: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(filled, tmp_path / "lake"))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that is not the lake's, in a folder that has a lake's folders, all of them old."""
    outside = tmp_path / "victim"
    gold = outside / "gold.parquet"
    for place in (outside, *(outside / "date=2026-01-05/host=h" for _ in "1"), outside / "tmp1"):
        place.mkdir(parents=True, exist_ok=True)
        for file in ("gold.parquet", "x-01234567.parquet", "new", "v00000001.json"):
            (place / file).write_bytes(b"gold")
            os.utime(place / file, (1, 1))
    assert gold.exists()
    return gold


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def run(verb: str, root: Path) -> int:
    return main([*VERBS[verb](root)])


def damage(root: Path) -> None:
    """Cuts one data file, so that `verify --repair` has something to take out."""
    file = next(root.glob("data/*/*/*.parquet"))
    file.write_bytes(file.read_bytes()[:-10])


@pytest.mark.parametrize("name", NAMES, ids=repr)
@pytest.mark.parametrize("verb", VERBS)
def test_a_dropped_file_is_one_of_the_lake(
    verb: str, name: Any, root: Path, victim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(root)
    store = Directory(str(root))
    newest = latest(store)
    facts = json.loads(newest.to_json())
    file = name.format(victim=victim) if isinstance(name, str) else name
    facts["dropped"] = [{"file": file, "since_s": 0}]
    facts["version"] = newest.version + 1
    (root / name_of(newest.version + 1)).write_text(json.dumps(facts))
    before = contents(root.parent)
    assert run(verb, root) == 2
    assert contents(root.parent) == before
    assert "is no file of a lake" in capsys.readouterr().err


@pytest.mark.parametrize("name", IN_A_LIST, ids=repr)
@pytest.mark.parametrize("verb", VERBS)
def test_a_listed_segment_lies_in_the_lake(
    verb: str, name: str, root: Path, victim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Directory(str(root))
    now = operations.Segments(store, latest(store))
    rows = operations._segment_rows(now, "date = '2026-01-05' ORDER BY file LIMIT 1", [])
    file = name.format(victim=victim)
    changed = [{**row, "file": file} for row in rows]
    commit(store, lambda _: Change(changed, {row["segment"] for row in rows}, set(), set()))
    before = contents(victim.parent)
    assert run(verb, root) == 2
    assert contents(victim.parent) == before
    assert "is no file of a lake" in capsys.readouterr().err
    assert latest(store).version > 0


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_link_in_the_place_of_a_folder_is_not_followed(
    verb: str, folder: str, root: Path, victim: Path
) -> None:
    damage(root)
    if (root / folder).exists():
        (root / folder).rename(root / f"moved {folder}")
    (root / folder).symlink_to(victim.parent)
    before = contents(victim.parent)
    # A folder that is not needed may be a link without anybody's harm.
    run(verb, root)
    assert contents(victim.parent) == before


@pytest.mark.parametrize("moment", ["_folder", "names"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_link_that_comes_meanwhile_is_not_followed(
    verb: str, moment: str, root: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before every step in turn, `data` is exchanged for a link to a folder with the same names."""
    damage(root)
    gone = sorted(file.relative_to(root / "data") for file in root.glob("data/*/*/*.parquet"))
    for file in gone:
        (victim.parent / file).parent.mkdir(parents=True, exist_ok=True)
        (victim.parent / file).write_bytes(b"gold")
        os.utime(victim.parent / file, (1, 1))
    before = contents(victim.parent)
    original = getattr(Directory, moment)
    calls = 0
    swapped_at = 0

    def exchanging(self: Directory, *words: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == swapped_at:
            (root / "data").rename(root / "moved")
            (root / "data").symlink_to(victim.parent)
        return original(self, *words, **more)

    monkeypatch.setattr(Directory, moment, exchanging)
    run(verb, root)
    last = calls
    assert last > 0
    for step in range(1, last + 1):
        if (root / "data").is_symlink():
            (root / "data").unlink()
            (root / "moved").rename(root / "data")
        calls, swapped_at = 0, step
        run(verb, root)
        assert contents(victim.parent) == before
        assert (victim.parent / "gold.parquet").exists()


def test_a_file_that_is_exchanged_while_it_is_merged_is_not_read(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root merges files, and another exchanges them for links to one that only root may read."""
    secret = tmp_path / "secret.parquet"
    secret.write_bytes(b"what only root may read")
    original = operations._write_merged

    def exchanging(sources: Mapping[str, str], *words: Any) -> dict[str, int]:
        for name in sources:
            (root / name).unlink()
            (root / name).symlink_to(secret)
        return original(sources, *words)

    monkeypatch.setattr(operations, "_write_merged", exchanging)
    assert run("compact", root) == 0
    merged = list(root.glob("data/*/*/merged-*.parquet"))
    assert len(merged) == 2
    for file in merged:
        assert duckdb.read_parquet(str(file)).fetchall()


def test_a_lake_that_is_exchanged_meanwhile_is_still_the_same(root: Path, victim: Path) -> None:
    store = Directory(str(root))
    before = {one.name for one in store.names("data")}
    root.rename(root.parent / "moved")
    (root.parent / "other").mkdir()
    victim.parent.rename(root.parent / "other/data")
    root.symlink_to(root.parent / "other")
    assert {one.name for one in store.names("data")} == before != set()
    store.delete("data/gold.parquet")
    assert (root / "data/gold.parquet").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_folder_that_is_no_lake_is_left_alone(
    verb: str, victim: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody's own folder with a folder `data` in it, and a slip of the fingers."""
    home = victim.parent.parent / "home"
    home.mkdir()
    victim.parent.rename(home / "data")
    before = contents(home)
    assert run(verb, home) == 2
    assert "there is no lake at" in capsys.readouterr().err
    assert contents(home) == before


def test_files_of_others_in_a_lake_are_left(root: Path) -> None:
    old = time.time() - 2 * operations.LEFTOVER_S
    theirs = [root / "data/notes.txt", root / "manifest/readme", root / "data/x-01234567.parquet"]
    own = [root / "data/date=2026-01-05/host=h/x-01234567.parquet", root / "incoming/a/new"]
    for file in (*theirs, *own):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
        os.utime(file, (old, old))
    operations.tidy(Directory(str(root)), 0)
    assert [file.exists() for file in theirs] == [True] * len(theirs)
    assert [file.exists() for file in own] == [False] * len(own)


def test_a_pipe_in_the_place_of_a_file_does_not_block(root: Path) -> None:
    (root / "manifest/latest").unlink()
    os.mkfifo(root / "manifest/latest")
    with pytest.raises(swtch.Error, match="it is no regular file"):
        latest(Directory(str(root)))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "5",
        '{"schema": "swtch.lake/1", "version": 1e999, "lists": [], "dropped": []}',
        '{"schema": "swtch.lake/1", "version": 1, "lists": 5, "dropped": []}',
        '{"schema": "swtch.lake/1", "version": 1, "lists": [5], "dropped": []}',
    ],
)
def test_a_damaged_version_is_named(text: str) -> None:
    with pytest.raises(swtch.Error, match="is no manifest of a lake"):
        Manifest.of_json(text.encode(), "v1")


def test_keys_of_a_bucket_stay_below_that_of_the_lake() -> None:
    """A bucket has no links, so the name is all that has to be looked at."""
    for name in NAMES:
        with pytest.raises(swtch.Error, match="is no file of a lake"):
            checked_name(name, "data")
    assert checked_name("data/date=2026-01-05/host=..x/a.parquet", "data")


def test_a_new_lake_is_its_makers_alone(root: Path) -> None:
    """A folder that was there keeps its rights, as who shares a lake wants it."""
    assert root.stat().st_mode & 0o777 == 0o700
    root.chmod(0o750)
    generator.fill(Directory(str(root)), generator.Fleet(hosts=1, days=1, switches=1000))
    assert root.stat().st_mode & 0o777 == 0o750
