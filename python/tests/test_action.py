"""The GitHub Action: its steps are run as action.yml has them, in a folder of their own."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import tarfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from conftest import LIMIT_S, REPOSITORY, why_not_ebpf

yaml: Any = pytest.importorskip("yaml", reason="python/requirements-engines.txt brings PyYAML")
ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))

# What GitHub gives a step to write to.
FILES = ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_PATH")


class Job:
    """A job that uses the action, with what its steps have told."""

    def __init__(self, place: Path, program: str, **inputs: str) -> None:
        defaults = {name: told["default"] for name, told in ACTION["inputs"].items()}
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        assert given.keys() <= defaults.keys()
        self.inputs = {"package": str(package(place, program)), **given}
        self.inputs = {**defaults, **self.inputs}
        self.place = place
        self.files = {name: place / name for name in FILES}
        for file in self.files.values():
            file.touch()

    def fill_in(self, text: str) -> str:
        """What GitHub makes of the expressions that the steps have."""
        return re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda m: self.inputs[m[1]], text)

    def run(self) -> list[subprocess.CompletedProcess[str]]:
        """Runs the steps up to the first that fails."""
        ended = []
        for step in ACTION["runs"]["steps"]:
            if "if" in step:
                condition = "${{ inputs.base-command != '' }}"
                assert step["if"] == condition, "the test knows one condition"
                if not self.inputs["base-command"]:
                    continue
            surroundings = {
                **os.environ,
                "PATH": f"{self.files['GITHUB_PATH'].read_text().strip()}:{os.environ['PATH']}",
                "GITHUB_ACTION_PATH": str(REPOSITORY),
                "RUNNER_TEMP": str(self.place),
                **{name: str(path) for name, path in self.files.items()},
                **{name: self.fill_in(text) for name, text in step.get("env", {}).items()},
            }
            ended.append(
                subprocess.run(
                    ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                    cwd=self.place,
                    env=surroundings,
                    capture_output=True,
                    text=True,
                    timeout=LIMIT_S,
                    check=False,
                )
            )
            if ended[-1].returncode != 0:
                break
        return ended

    def output(self, name: str) -> str:
        """An output of the action, found by what action.yml says its value is."""
        value = ACTION["outputs"][name]["value"]
        key = re.fullmatch(r"\$\{\{ steps\.compare\.outputs\.([a-z]+) \}\}", value)
        assert key is not None
        lines = self.files["GITHUB_OUTPUT"].read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)[key[1]]


def package(place: Path, program: str) -> Path:
    """An archive like that of `make dist`, which calls the program under test."""
    place.mkdir(parents=True, exist_ok=True)
    start = place / "start"
    start.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    start.chmod(0o755)
    archive = place / "swtch.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(start, "swtch-0.0.0-x86_64/bin/swtch")
    return archive


def sleeps(times: int) -> str:
    """A program with this many switches for sleeping."""
    code = f"import time\nfor _ in range({times}): time.sleep(0.0005)"
    return f"python3 -c '{code}'"


@pytest.fixture(scope="module")
def longer(program: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, list[Any]]:
    """A job of which the head switches twice as often as the base."""
    if refusal := why_not_ebpf():
        pytest.skip(f"cannot record: {refusal}")
    place = tmp_path_factory.mktemp("it's [a] job")
    job = Job(place, program, base_command=sleeps(100), head_command=sleeps(200), runs="3")
    return job, job.run()


def test_a_regression_fails_the_job_and_is_told_everywhere(longer: tuple[Job, list[Any]]) -> None:
    job, ended = longer
    assert [step.returncode for step in ended] == [0, 0, 1], ended[-1].stdout + ended[-1].stderr
    said = ended[-1].stdout
    assert "::error title=Context switches::switches: sleep is surely worse" in said
    comment = (job.place / job.output("comment")).read_text()
    assert comment.startswith("<!-- swtch diff -->\n### Context switches: ")
    assert re.search(r"worse +switches: sleep +100 +200 +100\.0", comment), comment
    assert comment in job.files["GITHUB_STEP_SUMMARY"].read_text()
    suite = ET.parse(job.place / job.output("junit")).getroot()
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert "switches: sleep" in failed
    assert str(len(failed)) == suite.get("failures") == job.output("regressions")
    assert (job.place / job.output("page")).read_text().startswith("<!")


def test_traces_are_compared_and_a_change_passes_without_a_limit(
    longer: tuple[Job, list[Any]], program: str, tmp_path: Path
) -> None:
    (tmp_path / "old").symlink_to(longer[0].place / "swtch-results")
    job = Job(tmp_path, program, before="old/base-*", after="old/head-*", fail_over="none")
    ended = job.run()
    assert [step.returncode for step in ended] == [0, 0], ended[-1].stdout + ended[-1].stderr
    assert job.output("regressions") == "0"
    assert "switches: sleep" in (job.place / job.output("comment")).read_text()


def test_a_name_that_speaks_to_github_is_only_shown(program: str, tmp_path: Path) -> None:
    """Ends of fences and of XML, and commands to GitHub, as a part of what is compared."""
    if refusal := why_not_ebpf():
        pytest.skip(f"cannot record: {refusal}")
    command = ": '```<a>\n::error::evil'; sleep 0.01"
    job = Job(tmp_path, program, base_command=command, head_command=command, runs="2")
    ended = job.run()
    assert [step.returncode for step in ended] == [0, 0, 0], ended[-1].stdout + ended[-1].stderr
    ET.parse(job.place / job.output("junit"))
    comment = (job.place / job.output("comment")).read_text()
    fence = comment.splitlines()[3].removesuffix("text")
    assert "```<a>" in comment and comment.count(fence) == 2
    stop = re.search("^::stop-commands::(.*)$", ended[-1].stdout, re.M)
    assert stop is not None and f"\n::{stop[1]}::\n" in ended[-1].stdout


def test_traces_of_a_former_job_are_not_compared(program: str, tmp_path: Path) -> None:
    if refusal := why_not_ebpf():
        pytest.skip(f"cannot record: {refusal}")
    former = tmp_path / "swtch-results/base-9.swtch"
    former.mkdir(parents=True)
    ended = Job(tmp_path, program, base_command="true", head_command="true", runs="2").run()
    assert ended[-1].returncode == 0, ended[-1].stdout + ended[-1].stderr
    assert not former.exists()


def test_a_trace_named_like_an_option_is_a_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever sends a change may name its files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "--fail-over=900%").mkdir()
    monkeypatch.setenv("INPUT_BEFORE", "*")
    action = runpy.run_path(str(REPOSITORY / "scripts/action.py"))
    assert action["traces"]("BEFORE", "base") == ["./--fail-over=900%"]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"package": "none.deb"}, "the package none.deb does not exist"),
        ({"package": "GITHUB_OUTPUT"}, "neither a .tar.gz nor a .deb"),
        ({"base_command": "true"}, "base-command and head-command belong together"),
        ({"base_command": "true", "head_command": "true", "runs": "x"}, "no number of runs"),
        ({"base_command": "exit 3", "head_command": "true"}, "run 1 of base-command ended with 3"),
        ({"before": "a*", "after": "b*"}, "there are no traces a*: name some"),
        ({"results": ""}, "there are no traces ./base-*.swtch"),
        ({"results": "a\nregressions=0"}, "has characters that a line cannot have"),
        ({"results": "swtch.tar.gz"}, "File exists: 'swtch.tar.gz'"),
        ({"before": "swtch.tar.gz", "after": "swtch.tar.gz"}, "swtch diff has no answer"),
    ],
)
def test_a_refusal_is_an_error_of_the_job(
    inputs: dict[str, str], said: str, program: str, tmp_path: Path
) -> None:
    if inputs.get("base_command") == "exit 3" and (refusal := why_not_ebpf()):
        pytest.skip(f"cannot record: {refusal}")
    last = Job(tmp_path, program, **inputs).run()[-1]
    assert last.returncode == 2
    assert re.search(f"^::error title=swtch::.*{re.escape(said)}", last.stdout, re.M), last.stdout
