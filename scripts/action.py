#!/usr/bin/env python3
"""The steps of action.yml: install swtch, record both sides in turns, compare them.

The inputs are in the environment (INPUT_…), as are the files by which a step speaks to GitHub
(GITHUB_STEP_SUMMARY, GITHUB_OUTPUT, GITHUB_PATH). Python's own library is all that it needs. What
surely changed is for `swtch diff` to say: its answer is shown as it is.

Names of threads come from the program that was recorded. So they are shown in fences, cleaned for
XML, and escaped where GitHub would take a line for a command.
"""

from __future__ import annotations

import glob
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

# A comment may have 65,536 characters.
LONGEST_ANSWER = 60_000

# Characters that XML 1.0 has no way to write.
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Refusal(Exception):
    """Why a step cannot do its work, and what to do."""


def asked(name: str) -> str:
    """An input of the action."""
    return os.environ.get(f"INPUT_{name}", "").strip()


def tell(variable: str, text: str) -> None:
    """Adds a line to one of the files that GitHub reads after a step."""
    if path := os.environ.get(variable):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text + "\n")


def annotate(title: str, text: str) -> None:
    """Marks the job with an error that is shown beside the pull request."""
    for character, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, code)
    print(f"::error title={title}::{text}", flush=True)


def as_root(*words: str) -> list[str]:
    """A command as root. sudo would look for programs in its own PATH."""
    path = os.environ["PATH"]
    return [*words] if os.geteuid() == 0 else ["sudo", "-E", "env", f"PATH={path}", *words]


def as_caller(*words: str) -> list[str]:
    """A command below `as_root` as who called: a pull request's program is not run as root."""
    if os.geteuid() == 0:
        return [*words]
    ids = f"--reuid={os.geteuid()}", f"--regid={os.getegid()}", "--init-groups"
    return ["setpriv", *ids, *words]


def install() -> int:
    """Puts swtch into PATH: from a package, or built, unless it is there."""
    package = asked("PACKAGE")
    if package and not Path(package).is_file():
        raise Refusal(f"the package {package} does not exist: name a file that an earlier step got")
    if package.endswith(".deb"):
        path = str(Path(package).resolve())
        subprocess.run(as_root("apt-get", "install", "--yes", path), check=True)
    elif package.endswith(".tar.gz"):
        place = Path(os.environ["RUNNER_TEMP"]).resolve() / "swtch"
        place.mkdir(exist_ok=True)
        unpack = ["tar", "-xzf", package, "--strip-components=1", "-C", str(place)]
        subprocess.run(unpack, check=True)
        tell("GITHUB_PATH", str(place / "bin"))
        os.environ["PATH"] = f"{place / 'bin'}:{os.environ['PATH']}"
    elif package:
        raise Refusal(f"{package} is neither a .tar.gz nor a .deb of swtch")
    elif not shutil.which("swtch"):
        subprocess.run(["make", "-C", os.environ["GITHUB_ACTION_PATH"], "install"], check=True)
    return subprocess.run(["swtch", "--version"], check=False).returncode


def results_place() -> Path:
    """The directory for traces and results. Outputs are lines, and its name is a part of some."""
    results = Path(asked("RESULTS"))
    if not str(results).isprintable():
        raise Refusal(f"results: {str(results)!r} has characters that a line cannot have")
    results.mkdir(parents=True, exist_ok=True)
    return results


def record() -> int:
    """Records runs of both sides, in turns: a machine drifts."""
    commands = {"base": asked("BASE"), "head": asked("HEAD")}
    if not all(commands.values()):
        raise Refusal("base-command and head-command belong together: one of them is missing")
    if not asked("RUNS").isdecimal() or int(asked("RUNS")) < 1:
        raise Refusal(f"runs: {asked('RUNS')!r} is no number of runs; 5 is a good one")
    results = results_place()
    # A machine that is used again may have more runs of a former job.
    for former in [*results.glob("base-*.swtch"), *results.glob("head-*.swtch")]:
        shutil.rmtree(former)
    for run in range(1, int(asked("RUNS")) + 1):
        for side, command in commands.items():
            trace = str(results / f"{side}-{run}.swtch")
            words = ["swtch", "record", "-o", trace, "--", *as_caller("sh", "-c", command)]
            ended = subprocess.run(as_root(*words), check=False).returncode
            if ended != 0:
                raise Refusal(
                    f"run {run} of {side}-command ended with {ended}: {command}; what it said"
                    " stands above, and `sudo swtch doctor` says whether recording works here"
                )
    return 0


def traces(name: str, recorded: str) -> list[str]:
    """The traces of a side: those that the input names, or what `record` has made."""
    patterns = asked(name).split() or [f"{glob.escape(str(results_place()))}/{recorded}-*.swtch"]
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern))]  # noqa: PTH207
    # A file of a pull request is no option, whatever its name.
    found = [f"./{path}" if path.startswith("-") else path for path in found]
    if not found:
        raise Refusal(
            f"there are no traces {' '.join(patterns)}: name some in before and after, or give"
            " base-command and head-command"
        )
    return found


def diff(*options: str) -> tuple[int, str]:
    """What `swtch diff` says of both sides, and what it ended with: 1 if something is worse."""
    limit = [] if asked("FAIL_OVER") == "none" else ["--fail-over", asked("FAIL_OVER")]
    words = ["swtch", "diff", *asked("OPTIONS").split(), *limit, *options]
    words += [*traces("BEFORE", "base"), "--", *traces("AFTER", "head")]
    answer = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    if answer.returncode not in (0, 1):
        raise Refusal("swtch diff has no answer: what it said stands above")
    return answer.returncode, answer.stdout.decode(errors="replace")


def markdown(answer: str, regressions: int) -> str:
    """The answer for a summary or a comment. The first line tells it from other comments."""
    if len(answer) > LONGEST_ANSWER:
        answer = answer[:LONGEST_ANSWER] + "\n[…] (cut: it is too long for a comment)\n"
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", answer)), default=0))
    figures = "figure is" if regressions == 1 else "figures are"
    found = f"{regressions} {figures} surely worse" if regressions else "nothing is surely worse"
    limit = asked("FAIL_OVER")
    if limit != "none":
        found += f" by more than {limit}"
    return f"<!-- swtch diff -->\n### Context switches: {found}\n\n{fence}text\n{answer}{fence}\n"


def junit(rows: list[dict[str, Any]]) -> ET.ElementTree:
    """A test for each figure: it fails where the figure is worse by more than the limit."""
    suite = ET.Element("testsuite", name="swtch diff", tests=str(len(rows)), errors="0")
    failed = skipped = 0
    for row in rows:
        case = ET.SubElement(suite, "testcase", classname="context switches")
        case.set("name", NOT_XML.sub("\ufffd", row["figure"]))
        if row["is_regression"] == "yes":
            change = "{change_pct:+} % ({low_pct:+} % to {high_pct:+} %)".format_map(row)
            why = f"{change}: from {row['before']} to {row['after']} {row['unit']}"
            ET.SubElement(case, "failure", message=why)
            failed += 1
        elif row["not_judged_because"]:
            ET.SubElement(case, "skipped", message=row["not_judged_because"])
            skipped += 1
    suite.set("failures", str(failed))
    suite.set("skipped", str(skipped))
    return ET.ElementTree(suite)


def compare() -> int:
    """Compares both sides, and says so wherever somebody may look."""
    results = results_place()
    page, comment, tests = results / "diff.html", results / "diff.md", results / "junit.xml"
    status, answer = diff("-o", str(page))
    told = json.loads(diff("--format", "json")[1])

    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}\n{answer}\n::{token}::", flush=True)
    text = markdown(answer, len(told["regressions"]))
    comment.write_text(text, encoding="utf-8")
    junit(told["rows"]).write(tests, encoding="utf-8", xml_declaration=True)
    tell("GITHUB_STEP_SUMMARY", text)
    for figure in told["regressions"]:
        annotate("Context switches", f"{figure} is surely worse by more than {asked('FAIL_OVER')}")
    tell("GITHUB_OUTPUT", f"regressions={len(told['regressions'])}")
    for name, path in (("comment", comment), ("junit", tests), ("page", page)):
        tell("GITHUB_OUTPUT", f"{name}={path}")
    return status


def main() -> int:
    """Runs the step that is named."""
    steps = {"install": install, "record": record, "compare": compare}
    if len(sys.argv) != 2 or sys.argv[1] not in steps:
        print(f"usage: {sys.argv[0]} {'|'.join(steps)}", file=sys.stderr)
        return 2
    try:
        return steps[sys.argv[1]]()
    except (Refusal, OSError) as refusal:
        annotate("swtch", str(refusal))
    except subprocess.CalledProcessError as failure:
        annotate("swtch", f"{' '.join(failure.cmd)} ended with {failure.returncode}, see above")
    return 2


if __name__ == "__main__":
    sys.exit(main())
