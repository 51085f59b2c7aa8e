"""Where a lake is kept: a directory, or an S3-compatible store.

Four operations change a lake, and each is whole or has not happened: `put` a file, `write` a small
file, `create` a small file only if there is none of that name, and `delete`. What a lake promises
when its writer is killed follows from their order (`manifest.py`).

A store answers "503 Slow Down" under load. botocore asks again with growing pauses; when it gives
up, the error names the file and what was tried.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import Error
from ..text import escaped

# How often one request is made before an error is told, pauses of up to some seconds between.
ATTEMPTS = 5


@dataclass(frozen=True)
class Stored:
    """A file of a store: its name in the lake, bytes, and age in seconds."""

    name: str
    size: int
    age_s: float


class Directory:
    """A lake in a directory of a file system with atomic `rename` and `link`."""

    def __init__(self, root: str) -> None:
        self.location = root
        self._root = Path(os.path.abspath(root))  # noqa: PTH100, resolve() would follow links

    def url(self, name: str) -> str:
        """What an engine opens."""
        return str(self._root / name)

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; `None` if there is none."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as why:
            raise self._error("read", name, why) from why

    def local(self, name: str) -> Path:
        """The file on this machine, to be read."""
        return self._root / name

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory for files on their way into the lake, on its file system."""
        place = self._root / "incoming"
        try:
            place.mkdir(parents=True, exist_ok=True)
            own = Path(tempfile.mkdtemp(dir=place))
        except OSError as why:
            raise self._error("write", "incoming", why) from why
        try:
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def put(self, source: Path, name: str) -> None:
        """Moves a file of `scratch` into the lake; on disk for good when this returns."""
        target = self._root / name
        try:
            _sync(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)
            _sync(target.parent)
        except OSError as why:
            raise self._error("write", name, why) from why

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file, in place of one of that name."""
        with self.scratch() as place:
            (place / "new").write_bytes(data)
            self.put(place / "new", name)

    def create(self, name: str, data: bytes) -> bool:
        """Writes a small file unless there is one of that name; whether it did."""
        target = self._root / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with self.scratch() as place:
                (place / "new").write_bytes(data)
                _sync(place / "new")
                os.link(place / "new", target)
                _sync(target.parent)
        except FileExistsError:
            return False
        except OSError as why:
            raise self._error("create", name, why) from why
        return True

    def delete(self, name: str) -> None:
        """Deletes a file; one that is gone already is no error."""
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as why:
            raise self._error("delete", name, why) from why

    def size(self, name: str) -> int | None:
        """Bytes of a file; `None` if there is none."""
        try:
            return (self._root / name).stat().st_size
        except FileNotFoundError:
            return None
        except OSError as why:
            raise self._error("read", name, why) from why

    def names(self, folder: str) -> Iterator[Stored]:
        """All files below a folder."""
        now = time.time()
        for place, _, files in os.walk(self._root / folder):
            for file in files:
                path = Path(place, file)
                with contextlib.suppress(FileNotFoundError):
                    facts = path.stat()
                    name = path.relative_to(self._root).as_posix()
                    yield Stored(name, facts.st_size, now - facts.st_mtime)

    def _error(self, what: str, name: str, why: OSError) -> Error:
        return Error(f"cannot {what} {escaped(name)} of the lake {escaped(self.location)}: {why}")


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a directory, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Bucket:
    """A lake in an S3-compatible store, by fsspec and s3fs.

    Credentials, region and the address of the store come from where every tool for S3 takes them:
    `AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `~/.aws/config` and so on.
    """

    def __init__(self, root: str) -> None:
        self.location = root.rstrip("/")
        self._copies: dict[str, Path] = {}
        self._place = tempfile.TemporaryDirectory(prefix="swtch-lake-")
        try:
            import fsspec
            import s3fs  # noqa: F401, fsspec loads it by name
        except ImportError as why:
            raise Error(f"{root}: s3fs is not installed", "pip install 'swtch[s3]'") from why
        retries: dict[str, Any] = {"retries": {"total_max_attempts": ATTEMPTS, "mode": "standard"}}
        self.filesystem: Any = fsspec.filesystem(
            "s3", config_kwargs=retries, use_listings_cache=False, skip_instance_cache=True
        )
        # botocore's retries are the only ones: two loops around each other would take minutes.
        self.filesystem.retries = 1

    def url(self, name: str) -> str:
        """What an engine opens."""
        return f"{self.location}/{name}"

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; `None` if there is none."""
        try:
            with self._errors("read", name, (FileNotFoundError,)):
                return self.filesystem.cat_file(self.url(name))
        except FileNotFoundError:
            return None

    def local(self, name: str) -> Path:
        """A copy on this machine. Only for files that never change."""
        if name not in self._copies:
            copy = Path(self._place.name, uuid.uuid4().hex)
            with self._errors("read", name):
                self.filesystem.get_file(self.url(name), str(copy))
            self._copies[name] = copy
        return self._copies[name]

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory for files on their way into the lake."""
        with tempfile.TemporaryDirectory(prefix="swtch-lake-") as place:
            yield Path(place)

    def put(self, source: Path, name: str) -> None:
        """Uploads a file. The store shows an object once it is whole."""
        with self._errors("write", name):
            self.filesystem.put_file(str(source), self.url(name))

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file, in place of one of that name."""
        with self._errors("write", name):
            self.filesystem.pipe_file(self.url(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Writes a small file unless there is one of that name (`If-None-Match`)."""
        try:
            with self._errors("create", name, (FileExistsError,)):
                self.filesystem.pipe_file(self.url(name), data, mode="create")
        except FileExistsError:
            # The answer to an earlier attempt may have been lost on its way: it is ours then.
            return self.read(name) == data
        return True

    def delete(self, name: str) -> None:
        """Deletes a file; one that is gone already is no error."""
        # The store answers the same whether there was one.
        with self._errors("delete", name):
            self.filesystem.rm_file(self.url(name))

    def size(self, name: str) -> int | None:
        """Bytes of a file; `None` if there is none."""
        try:
            with self._errors("read", name, (FileNotFoundError,)):
                return int(self.filesystem.info(self.url(name))["size"])
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> Iterator[Stored]:
        """All files below a folder."""
        root = self.location.removeprefix("s3://")
        with self._errors("list", folder):
            found = self.filesystem.find(f"{self.location}/{folder}", detail=True)
        now = time.time()
        for key, facts in found.items():
            age = now - facts["LastModified"].timestamp()
            yield Stored(key.removeprefix(f"{root}/"), int(facts["size"]), age)

    @contextlib.contextmanager
    def _errors(
        self, what: str, name: str, answer: tuple[type[OSError], ...] = ()
    ) -> Iterator[None]:
        """Makes what fsspec and botocore raise an `Error`, but for what is an answer."""
        try:
            yield
        except answer:
            raise
        except Exception as why:  # botocore, aiohttp and s3fs have no common class.
            raise Error(
                f"cannot {what} {escaped(self.url(name))}: {type(why).__name__}: {why} "
                f"(up to {ATTEMPTS} attempts)",
                "what was committed before is whole: try again when the store answers; "
                "AWS_ENDPOINT_URL names a store that is not Amazon's",
            ) from why


Store = Directory | Bucket


def store_at(location: str | os.PathLike[str]) -> Store:
    """The store that a path or an `s3://` address names."""
    text = os.fspath(location)
    return Bucket(text) if text.startswith("s3://") else Directory(text)


def without_wildcards(path: str) -> str:
    """A path whose `*`, `?` and `[` stand for themselves: the engine takes paths as patterns."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)
