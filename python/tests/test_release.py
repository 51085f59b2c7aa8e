"""scripts/release.sh, in a clone of the project whose packages are made by a stand-in."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import LIMIT_S, REPOSITORY

# What stands for scripts/dist.sh: packages take minutes of compiling.
STAND_IN = """#!/bin/sh
mkdir -p target/packages && cd target/packages && echo "$*" >swtch.deb && echo >swtch.debug
sha256sum ./*.deb >SHA256SUMS
"""

# For git, in place of what the user has: the tree may belong to another user.
CONFIG = Path(__file__).with_name("test_release.gitconfig")

Answer = subprocess.CompletedProcess[str]


def call(place: Path, *words: str) -> Answer:
    """Runs a program, as somebody whom git knows."""
    known = {"GIT_CONFIG_GLOBAL": str(CONFIG), "CARGO_TARGET_DIR": str(place / "target")}
    return subprocess.run(
        words,
        cwd=place,
        env={**os.environ, **known},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def git(place: Path, *words: str) -> str:
    """What git says."""
    answer = call(place, "git", *words)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with the script as it is in this tree, and entries in its change log."""
    if not (REPOSITORY / ".git").exists():
        pytest.skip("this tree is not one of git")
    place = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--shared", str(REPOSITORY), str(place))
    shutil.copy(REPOSITORY / "scripts/release.sh", place / "scripts/release.sh")
    (place / "scripts/dist.sh").write_text(STAND_IN)
    log = place / "CHANGELOG.md"
    log.write_text(
        "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A new thing.\n\n"
        "## [0.0.1] - 2020-01-01\n\n- An old thing.\n"
    )
    git(place, "commit", "--quiet", "--all", "--message", "What is to be released")
    return place


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key of ssh."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    path = tmp_path / "key"
    call(tmp_path, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
    return path


def release(place: Path, *words: str) -> Answer:
    """Runs the script."""
    return call(place, "scripts/release.sh", *words)


def state(place: Path) -> tuple[str, ...]:
    """What a release changes."""
    return git(place, "rev-parse", "HEAD"), git(place, "tag"), git(place, "status", "--porcelain")


def test_a_release_is_versioned_built_and_signed(clone: Path, key: Path) -> None:
    answer = release(clone, "7.8.9", "--key", str(key), "--", "--native")
    assert answer.returncode == 0, answer.stderr
    for folder in (".", "fiber"):
        ask = ("cargo", "metadata", "--no-deps", "--locked", "--offline", "--format-version=1")
        told = call(clone / folder, *ask)
        assert told.returncode == 0, told.stderr
        assert {one["version"] for one in json.loads(told.stdout)["packages"]} == {"7.8.9"}
    made = clone / "target/packages"
    assert (made / "swtch.deb").read_text() == "--native\n"
    summed = [line.split()[1] for line in (made / "SHA256SUMS").read_text().splitlines()]
    assert summed == ["./swtch.deb", "./NOTES.md", "./swtch.debug"], "each file once"
    assert call(made, "sha256sum", "--check", "SHA256SUMS").returncode == 0
    assert (made / "NOTES.md").read_text().strip() == "### Added\n\n- A new thing."
    log = (clone / "CHANGELOG.md").read_text()
    assert re.search(r"\[Unreleased\]\n\n## \[7\.8\.9\] - \d{4}-\d\d-\d\d\n\n### Added\n", log)

    signers = clone.parent / "signers"
    signers.write_text(f"tester {key.with_suffix('.pub').read_text()}")
    verify = f"ssh-keygen -Y verify -f {signers} -I tester -n file -s SHA256SUMS.sig <SHA256SUMS"
    assert call(made, "sh", "-c", verify).returncode == 0
    git(clone, "-c", f"gpg.ssh.allowedSignersFile={signers}", "verify-tag", "v7.8.9")
    assert git(clone, "rev-parse", "v7.8.9^{commit}") == git(clone, "rev-parse", "HEAD")
    assert "v7.8.9" not in git(clone, "ls-remote", "--tags", "origin"), "nothing is pushed"


def test_a_dry_run_shows_all_and_changes_nothing(clone: Path) -> None:
    before = state(clone)
    answer = release(clone, "7.8.9", "--dry-run")
    assert answer.returncode == 0, answer.stderr
    assert '+version = "7.8.9"' in answer.stdout and "- A new thing." in answer.stdout
    for step in ("scripts/dist.sh", "gpg .*SHA256SUMS", "git .* tag .*v7.8.9"):
        assert re.search(f"^would run: {step}", answer.stderr, re.M), step
    assert state(clone) == before and not (clone / "target/packages").exists()


def test_a_failed_build_leaves_no_tag(clone: Path, key: Path) -> None:
    (clone / "scripts/dist.sh").write_text("#!/bin/sh\nexit 1\n")
    git(clone, "commit", "--quiet", "--all", "--message", "Packages that cannot be built")
    before = state(clone)
    answer = release(clone, "7.8.9", "--key", str(key))
    assert answer.returncode == 2
    go_back(clone, answer)
    assert state(clone) == before


def test_a_version_that_cargo_refuses_can_be_taken_back(clone: Path, key: Path) -> None:
    before = state(clone)
    answer = release(clone, "07.8.9", "--key", str(key))
    assert answer.returncode == 2 and "cargo could not write the lock file" in answer.stderr
    go_back(clone, answer)
    assert state(clone) == before


def go_back(place: Path, answer: Answer) -> None:
    """Does what the script has said."""
    said = re.search("to go back: git (.*)$", answer.stderr, re.M)
    assert said is not None, answer.stderr
    git(place, *said[1].split())


def dirty(place: Path) -> None:
    (place / "new").touch()


def tagged(place: Path) -> None:
    git(place, "tag", "v7.8.9")


def nothing_new(place: Path) -> None:
    log = place / "CHANGELOG.md"
    log.write_text(log.read_text().replace("- A new thing.\n", ""))
    git(place, "commit", "--quiet", "--all", "--message", "Nothing new")


@pytest.mark.parametrize(
    ("spoil", "words", "said"),
    [
        (None, ["7.8.9"], "--key names the key that signs"),
        (None, ["7.8.9", "--key", "none"], "none is no file"),
        (None, ["7.8"], "name the version"),
        (None, ["0.0.1", "--dry-run"], "version 0.0.1 is older than"),
        (dirty, ["7.8.9", "--dry-run"], "changes that are not committed"),
        (tagged, ["7.8.9", "--dry-run"], "the tag v7.8.9 exists already"),
        (nothing_new, ["7.8.9", "--dry-run"], "no entries under [Unreleased]"),
    ],
)
def test_what_is_not_ready_is_refused(
    clone: Path, spoil: Callable[[Path], None] | None, words: list[str], said: str
) -> None:
    if spoil:
        spoil(clone)
    before = state(clone)
    answer = release(clone, *words)
    assert answer.returncode == 2 and said in answer.stderr, answer.stderr
    assert state(clone) == before
