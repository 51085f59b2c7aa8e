#!/usr/bin/env python3
"""The bill of materials of a release, as CycloneDX 1.6: what is inside, and what it was made with.

scripts/dist/sbom.py MACHINE…    for x86_64, aarch64 or both; to stdout

The scope of a component says what it has to do with swtch: `required` is inside of the program,
`optional` the wheel asks for when it is installed, `excluded` only builds or tests. All comes from
files that pin it: Cargo.lock, web/package-lock.json, python/requirements-*.txt; of the C libraries
that are linked in, from the packages of this machine. The same source gives the same bytes: the
time is SOURCE_DATE_EPOCH. Own crates have no purl, since the names are not registered for us.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# Debian's packages of what is linked statically, beside what crates bring (libbpf, zstd).
LINKED = ("libc6-dev", "libelf-dev", "zlib1g-dev")

Component = dict[str, Any]


def answer(*words: str) -> str:
    """What a program prints."""
    return subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout


def text_of(path: str) -> str:
    """A file of the tree."""
    return (ROOT / path).read_text(encoding="utf-8")


def component(kind: str, name: str, version: str, scope: str, **more: Any) -> Component:
    """A component, whose purl is also the name by which others refer to it."""
    purl = f"pkg:{kind}/{name.replace('@', '%40')}@{version}"
    names = {"bom-ref": purl, "name": name, "version": version, "purl": purl}
    return {"type": "library", **names, "scope": scope, **more}


def licence(expression: str | None) -> dict[str, Any]:
    """The licence as SPDX writes it: older crates have a slash for OR."""
    spelled = expression and re.sub(r" ?/ ?", " OR ", expression)
    return {"licenses": [{"expression": spelled}]} if spelled else {}


def linked_crates(metadata: dict[str, Any]) -> set[str]:
    """Ids of the crates inside of the program: what it needs but to build, without macros."""
    macros = {
        package["id"]
        for package in metadata["packages"]
        if any("proc-macro" in target["kind"] for target in package["targets"])
    }
    needs = {
        node["id"]: {
            needed["pkg"]
            for needed in node["deps"]
            if any(use["kind"] is None for use in needed["dep_kinds"])
        }
        for node in metadata["resolve"]["nodes"]
    }
    found: set[str] = set()
    waiting = [package["id"] for package in metadata["packages"] if package["name"] == "swtch"]
    while waiting:
        crate = waiting.pop()
        if crate not in found and crate not in macros:
            found.add(crate)
            waiting += needs[crate]
    return found


def crates(machines: list[str]) -> Iterator[Component]:
    """All crates of Cargo.lock."""
    entry = r'name = "(.*)"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"'
    found = re.findall(entry, text_of("Cargo.lock"))
    sums = {(name, version): digest for name, version, digest in found}
    ask = ("cargo", "metadata", "--locked", "--format-version=1", "--features=swtch/static")
    linked: set[str] = set()
    for machine in machines:
        target = f"--filter-platform={machine}-unknown-linux-gnu"
        linked |= linked_crates(json.loads(answer(*ask, target)))
    for package in json.loads(answer(*ask))["packages"]:
        name, version = package["name"], package["version"]
        if name == "swtch":
            continue
        scope = "required" if package["id"] in linked else "excluded"
        made = component("cargo", name, version, scope, **licence(package["license"]))
        if package["source"] is None:
            del made["purl"]
            made["bom-ref"] = f"own:{name}"
        else:
            made["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
        yield made


def page() -> Iterator[Component]:
    """What the viewer's page is made of."""
    for path, package in json.loads(text_of("web/package-lock.json"))["packages"].items():
        if not path:
            continue
        name = path.rpartition("node_modules/")[2]
        scope = "excluded" if package.get("dev") else "required"
        digest = base64.b64decode(package["integrity"].removeprefix("sha512-")).hex()
        hashes = [{"alg": "SHA-512", "content": digest}]
        more = licence(package.get("license"))
        yield component("npm", name, package["version"], scope, hashes=hashes, **more)


def python() -> Iterator[Component]:
    """What the wheel asks for, and what tests and builds of it are pinned to."""
    (wanted,) = re.findall(r'^dependencies = \["(.*)"\]$', text_of("python/pyproject.toml"), re.M)
    name = re.split("[<>=]", wanted, maxsplit=1)[0]
    asked = {"type": "library", "bom-ref": f"wheel:{name}", "name": name, "scope": "optional"}
    yield {**asked, "description": f"The wheel asks for {wanted}"}
    files = ("python/requirements-test.txt", "python/requirements-engines.txt")
    for file in (*files, "scripts/dist/requirements.txt"):
        pins = re.findall(r"^([A-Za-z0-9_.-]+)(?:\[.*\])?==([^ ;\n]+)", text_of(file), re.M)
        for name, version in pins:
            yield component("pypi", name, version, "excluded")


def system() -> Iterator[Component]:
    """What is linked in of the machine that builds: C libraries, and Rust's own."""
    (release,) = re.findall(r"^rustc ([^ ]+)", answer("rustc", "--version"))
    yield component("generic", "rust-std", release, "required", **licence("MIT OR Apache-2.0"))
    for name in LINKED:
        # A package of several architectures has the same version for all.
        versions = answer("dpkg-query", "--show", "--showformat=${Version}\\n", name)
        yield component("deb/debian", name, versions.split()[0], "required")


def bill(machines: list[str]) -> dict[str, Any]:
    """The whole bill."""
    (version,) = re.findall(r'^version = "(.*)"$', text_of("Cargo.toml"), re.M)
    swtch = {"type": "application", "bom-ref": "swtch", "name": "swtch", "version": version}
    found = [*crates(machines), *page(), *python(), *system()]
    # A package that several places need is listed once, as what it is most to swtch.
    strongest = sorted(found, key=lambda one: one["scope"] == "required")
    listed = sorted({one["bom-ref"]: one for one in strongest}.items())
    inside = [ref for ref, one in listed if one["scope"] == "required"]
    components = [one for _, one in listed]
    told = json.dumps([swtch, components])
    moment = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), timezone.utc)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, told)}",
        "version": 1,
        "metadata": {"timestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": swtch},
        "components": components,
        "dependencies": [{"ref": "swtch", "dependsOn": inside}],
    }


if __name__ == "__main__":
    if not sys.argv[1:] or set(sys.argv[1:]) - {"x86_64", "aarch64"}:
        sys.exit(f"usage: {sys.argv[0]} x86_64|aarch64…")
    print(json.dumps(bill(sys.argv[1:]), indent=1, sort_keys=True))
