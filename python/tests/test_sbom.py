"""The bill of materials tells what is inside of the program from what only builds or tests it."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from typing import Any

import pytest
from conftest import LIMIT_S, REPOSITORY

LIBRARIES = ("libelf-dev", "zlib1g-dev", "libc6-dev")


def debian_has(*packages: str) -> bool:
    if shutil.which("dpkg-query") is None:
        return False
    ask = ["dpkg-query", "--show", *packages]
    return subprocess.run(ask, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    if not debian_has(*LIBRARIES):
        pytest.skip("packages are built on Debian, with libelf-dev, zlib1g-dev and libc6-dev")
    words = [str(REPOSITORY / "scripts/dist/sbom.py"), "x86_64", "aarch64"]
    answers = [
        subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=True).stdout
        for _ in range(2)
    ]
    assert answers[0] == answers[1], "the same source gives the same bytes"
    return json.loads(answers[0])


def test_every_locked_crate_is_listed_once(bill: dict[str, Any]) -> None:
    lock = (REPOSITORY / "Cargo.lock").read_text(encoding="utf-8")
    locked = re.findall(r'name = "(.*)"\nversion = "(.*)"\nsource = ', lock)
    listed = [one["purl"] for one in bill["components"] if one.get("purl", "").startswith("pkg:c")]
    assert sorted(listed) == sorted(f"pkg:cargo/{name}@{version}" for name, version in locked)


def test_what_is_inside_is_told_from_what_builds_or_tests(bill: dict[str, Any]) -> None:
    scopes = {one["name"]: one["scope"] for one in bill["components"]}
    for name in ("arrow-array", "libbpf-sys", "zstd-sys", "preact", "libelf-dev", "swtch-core"):
        assert scopes[name] == "required", name
    for name in ("serde_derive", "cc", "vite", "pytest", "swtch-test", "maturin"):
        assert scopes[name] == "excluded", name
    refs = [one["bom-ref"] for one in bill["components"]]
    assert len(refs) == len(set(refs))
    assert set(bill["dependencies"][0]["dependsOn"]) <= set(refs)


def test_no_name_is_taken_for_ours_that_is_not_registered(bill: dict[str, Any]) -> None:
    ours = [one for one in bill["components"] if one["name"].startswith("swtch")]
    assert ours and not any("purl" in one for one in ours)


def test_a_library_for_two_architectures_has_one_version() -> None:
    """dpkg-query answers once for each architecture of which the package is installed."""

    def answer(*words: str) -> str:
        if words[0] == "rustc":
            return "rustc 1.90.0 (1159e78c4 2025-09-14)"
        shape = words[2].removeprefix("--showformat=")
        return 2 * shape.replace("${Version}", "2.36-9").replace("\\n", "\n")

    system = runpy.run_path(str(REPOSITORY / "scripts/dist/sbom.py"))["system"]
    system.__globals__["answer"] = answer
    versions = {one["name"]: one["version"] for one in system()}
    assert [versions[name] for name in LIBRARIES] == ["2.36-9"] * 3
