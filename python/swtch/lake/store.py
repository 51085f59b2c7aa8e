"""Where a lake is kept: a directory, or an S3-compatible store.

Four operations change a lake, and each is whole or has not happened: `put` a file, `write` a small
file, `create` a small file only if there is none of that name, and `delete`. What a lake promises
when its writer is killed follows from their order (`manifest.py`).

A store answers "503 Slow Down" under load. botocore asks again with growing pauses; when it gives
up, the error names the file and what was tried.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
import time
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import Error, require
from ..tables import literal
from ..text import escaped

# How often one request is made before an error is told, pauses of up to some seconds between.
ATTEMPTS = 5

# The folders of a lake, in which all its files are.
FOLDERS = ("data", "contention", "manifest", "incoming", "quarantine")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe in the place of a file is not waited for.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LakeError(Error):
    """Something is wrong with the lake, or with where it is kept."""


@dataclass(frozen=True)
class Stored:
    """A file of a store: its name in the lake, bytes, and age in seconds."""

    name: str
    size: int
    age_s: float


def checked_name(name: object, *folders: str) -> str:
    """The name, if it is that of a file below one of these folders of a lake; `Error` if not.

    Who may write to a lake may write any name into its lists. None leads out of it.
    """
    parts = name.split("/") if isinstance(name, str) else [""]
    is_one = parts[0] in folders and len(parts) > 1 and not {"", ".", ".."} & set(parts)
    if not isinstance(name, str) or not is_one or "\0" in name or not _has_bytes(name):
        raise LakeError(
            f"{escaped(str(name))} is no file of a lake: it is not below {' or '.join(folders)}",
            "the lake is damaged, or somebody has put a name into it that leads elsewhere",
        )
    return name


def _has_bytes(name: str) -> bool:
    """Whether a text can be the name of a file: halves of surrogate pairs cannot."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


class Directory:
    """A lake in a directory of a file system with atomic `rename` and `link`.

    Others may write there, too: each host that adds its traces. So nothing is changed or deleted by
    a path. The lake's directory is opened once, its folders from there, one by one, and no link is
    followed: whoever puts one in the place of a folder gets an error. Only engines, which read, are
    given paths (`url`).
    """

    def __init__(self, root: str) -> None:
        self.location = root
        self._root = Path(os.path.abspath(root))  # noqa: PTH100, resolve() would follow links
        self._descriptor: int | None = None

    def url(self, name: str) -> str:
        """What an engine opens."""
        return str(self._root / checked_name(name, *FOLDERS))

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; `None` if there is none."""
        try:
            with self._opened(name) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as why:
            raise self._error("read", name, why) from why

    @contextlib.contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """The file on this machine, to be read.

        It is given as an open descriptor, so that nobody can put a link in its place between the
        check and the engine that reads it.
        """
        try:
            file = self._opened(name)
        except OSError as why:
            raise self._error("read", name, why) from why
        with file:
            yield Path(f"/proc/self/fd/{file.fileno()}")

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory for files on their way into the lake, on its file system.

        It is given as an open descriptor, so that nobody can put another in its place.
        """
        name = f"swtch-{uuid.uuid4().hex}"
        with contextlib.ExitStack() as held:
            try:
                incoming = held.enter_context(self._folder(["incoming"], make=True))
                os.mkdir(name, 0o700, dir_fd=incoming)
                own = os.open(name, _FOLDER, dir_fd=incoming)
                held.callback(os.close, own)
                if os.fstat(own).st_uid != os.geteuid():
                    raise OSError(errno.EPERM, "somebody has put another folder there", name)
            except OSError as why:
                raise self._error("write", f"incoming/{name}", why) from why
            try:
                yield Path(f"/proc/self/fd/{own}")
            finally:
                with contextlib.suppress(OSError):
                    for left in os.listdir(own):  # noqa: PTH208, a descriptor has no path
                        os.unlink(left, dir_fd=own)
                    os.rmdir(name, dir_fd=incoming)

    def put(self, source: Path, name: str) -> None:
        """Moves a file of `scratch` into the lake; on disk for good when this returns."""
        *folders, file = checked_name(name, *FOLDERS).split("/")
        try:
            _sync(source)
            with self._folder(folders, make=True) as folder:
                os.replace(source, file, dst_dir_fd=folder)
                os.fsync(folder)
        except OSError as why:
            raise self._error("write", name, why) from why

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file, in place of one of that name."""
        with self.scratch() as place:
            try:
                (place / "new").write_bytes(data)
            except OSError as why:
                raise self._error("write", name, why) from why
            self.put(place / "new", name)

    def create(self, name: str, data: bytes) -> bool:
        """Writes a small file unless there is one of that name; whether it did."""
        *folders, file = checked_name(name, *FOLDERS).split("/")
        try:
            with self.scratch() as place, self._folder(folders, make=True) as folder:
                (place / "new").write_bytes(data)
                _sync(place / "new")
                os.link(place / "new", file, dst_dir_fd=folder)
                os.fsync(folder)
        except FileExistsError:
            return False
        except OSError as why:
            raise self._error("create", name, why) from why
        return True

    def delete(self, name: str) -> None:
        """Deletes a file; one that is gone already is no error."""
        *folders, file = checked_name(name, *FOLDERS).split("/")
        try:
            with contextlib.suppress(FileNotFoundError), self._folder(folders) as folder:
                os.unlink(file, dir_fd=folder)
        except OSError as why:
            raise self._error("delete", name, why) from why

    def size(self, name: str) -> int | None:
        """Bytes of a file; `None` if there is none."""
        try:
            with self._opened(name) as file:
                return os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            return None
        except OSError as why:
            raise self._error("read", name, why) from why

    def names(self, folder: str) -> Iterator[Stored]:
        """All files below a folder, links left out."""
        now = time.time()
        try:
            with self._folder(folder.split("/")) as top:
                walk = os.fwalk(".", dir_fd=top, onerror=_unless_gone)
                for place, _, files, descriptor in walk:
                    for file in files:
                        with contextlib.suppress(FileNotFoundError):
                            facts = os.stat(file, dir_fd=descriptor, follow_symlinks=False)
                            if stat.S_ISREG(facts.st_mode):
                                name = f"{folder}{place[1:]}/{file}"
                                yield Stored(name, facts.st_size, now - facts.st_mtime)
        except FileNotFoundError:
            return
        except OSError as why:
            raise self._error("list", folder, why) from why

    def _lake(self, make: bool = False) -> int:
        """The descriptor of the lake's directory, the same one wherever its path leads later."""
        if self._descriptor is None:
            if make:
                # Traces are not for everybody; who shares a lake makes its folder beforehand.
                self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._root, _FOLDER & ~os.O_NOFOLLOW)
            weakref.finalize(self, os.close, self._descriptor)
        return self._descriptor

    @contextlib.contextmanager
    def _folder(self, parts: Sequence[str], make: bool = False) -> Iterator[int]:
        """The descriptor of a folder; `make` makes what is missing of it."""
        place = os.dup(self._lake(make))
        try:
            for part in parts:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=place)
                        # What lies below is there for good only if this is.
                        os.fsync(place)
                below = os.open(part, _FOLDER, dir_fd=place)
                os.close(place)
                place = below
            yield place
        finally:
            os.close(place)

    def _opened(self, name: str) -> BinaryIO:
        """A regular file, opened to be read. A pipe in its place would block."""
        *folders, file = checked_name(name, *FOLDERS).split("/")
        with self._folder(folders) as folder:
            descriptor = os.open(file, _FILE, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is no regular file", name)
        return os.fdopen(descriptor, "rb")

    def _error(self, what: str, name: str, why: OSError) -> Error:
        is_link = why.errno in (errno.ELOOP, errno.ENOTDIR)
        return LakeError(
            f"cannot {what} {escaped(name)} of the lake {escaped(self.location)}: {why}",
            "no link is followed in a lake: its folders and files lie in it" if is_link else None,
        )


def _unless_gone(why: OSError) -> None:
    """What cannot be listed is an error, unless somebody has removed it meanwhile."""
    if not isinstance(why, FileNotFoundError):
        raise why


def _sync(path: Path) -> None:
    """Waits until a file is on disk."""
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
        require("s3fs")
        fsspec = require("fsspec")
        retries: dict[str, Any] = {"retries": {"total_max_attempts": ATTEMPTS, "mode": "standard"}}
        self.filesystem: Any = fsspec.filesystem(
            "s3", config_kwargs=retries, use_listings_cache=False, skip_instance_cache=True
        )
        # botocore's retries are the only ones: two loops around each other would take minutes.
        self.filesystem.retries = 1

    def url(self, name: str) -> str:
        """What an engine opens: a key below that of the lake."""
        return f"{self.location}/{checked_name(name, *FOLDERS)}"

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; `None` if there is none."""
        try:
            with self._errors("read", name, (FileNotFoundError,)):
                return self.filesystem.cat_file(self.url(name))
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """A copy on this machine. Only for files that never change."""
        if name not in self._copies:
            copy = Path(self._place.name, uuid.uuid4().hex)
            with self._errors("read", name):
                self.filesystem.get_file(self.url(name), str(copy))
            self._copies[name] = copy
        yield self._copies[name]

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
            # The answer to an earlier attempt may have been lost on its way: what is the same is
            # taken for ours.
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
        except Exception as why:  # botocore, aiohttp and s3fs have no common class.
            if isinstance(why, (LakeError, *answer)):
                raise
            address = escaped(f"{self.location}/{name}")
            raise LakeError(
                f"cannot {what} {address}: {type(why).__name__}: {why} (up to {ATTEMPTS} attempts)",
                "what was committed before is whole: try again when the store answers; "
                "AWS_ENDPOINT_URL names a store that is not Amazon's",
            ) from why


Store = Directory | Bucket


def store_at(location: str | os.PathLike[str]) -> Store:
    """The store that a path or an `s3://` address names."""
    text = os.fspath(location)
    return Bucket(text) if text.startswith("s3://") else Directory(text)


def quoted(path: Path) -> str:
    """A file as the engine is given it."""
    return literal(without_wildcards(str(path)))


def with_names(said: str, sources: Mapping[str, str]) -> str:
    """What an engine says of files, by their names in the lake instead of how it was given them."""
    for name, source in sources.items():
        said = said.replace(source, literal(name))
    return said


def without_wildcards(path: str) -> str:
    """A path whose `*`, `?` and `[` stand for themselves: the engine takes paths as patterns."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)
