"""A lake in an S3-compatible store: moto's server, on loopback, which can be told to answer 503."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from fleet_checks import ask_all, assert_known, counts, verify

import swtch
from swtch import lake
from swtch.fleet import generator
from swtch.lake import operations
from swtch.lake.store import ATTEMPTS, store_at
from swtch.query import main

FLEET = generator.Fleet(hosts=4, days=1, switches=1000)


class Storage:
    """A server for S3. Of the coming requests, `slow_down` many are answered with 503."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self.slow_down = 0
        self.requests = 0
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, environ: dict[str, Any], begin: Callable[..., Any]) -> Iterable[bytes]:
        self.requests += 1
        if self.slow_down > 0:
            self.slow_down -= 1
            begin("503 Slow Down", [("Content-Type", "application/xml")])
            if environ["REQUEST_METHOD"] == "HEAD":
                return []
            return [b"<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"]
        return self._app(environ, begin)

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    """A server with a bucket, which the environment names as every user's does."""
    for package in ("s3fs", "moto"):
        reason = f"{package} is not installed (python/requirements-engines.txt)"
        pytest.importorskip(package, reason=reason)
    with pytest.MonkeyPatch.context() as patch:
        server = Storage()
        patch.setenv("AWS_ENDPOINT_URL", server.url)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import boto3

        boto3.client("s3").create_bucket(Bucket="fleet")
        yield server
        server.close()


@pytest.fixture(scope="module")
def filled(storage: Storage) -> str:
    """A lake in the bucket that tests only read."""
    location = "s3://fleet/it's a lake"
    generator.fill(store_at(location), FLEET)
    return location


def test_questions_are_answered_from_a_bucket(filled: str) -> None:
    with lake.open(filled) as opened:
        assert_known(ask_all(opened), FLEET)


def test_a_lake_in_a_bucket_is_kept(storage: Storage) -> None:
    location = "s3://fleet/kept"
    store = store_at(location)
    made = generator.Fleet(hosts=1, days=2, switches=1000)
    generator.fill(store, made)
    generator.fill(store, generator.Fleet(hosts=1, days=2, switches=2000))
    before = counts(location)
    assert operations.compact(store, lambda _: None, grace_s=0) == 4
    assert counts(location) == before
    assert operations.retain(store, made.date(1), lambda _: None, grace_s=0) == 2
    assert counts(location) == {name: n for name, n in before.items() if made.date(1) in name}
    assert len(list(store.names("data"))) == 1
    assert verify(store).damaged == {}


def test_a_file_is_created_by_one_of_two_writers(storage: Storage) -> None:
    one, other = store_at("s3://fleet/two"), store_at("s3://fleet/two")
    assert one.create("manifest/v1.json", b"one")
    assert not other.create("manifest/v1.json", b"other")
    # The answer was lost on its way, and the request is made again.
    assert one.create("manifest/v1.json", b"one")


def test_503_is_tried_again(filled: str, storage: Storage) -> None:
    storage.slow_down = 2
    with lake.open(filled) as opened:
        rows = opened.sql("SELECT count(*) AS n FROM switches").rows()
    assert rows == [{"n": 4000}]
    assert storage.slow_down == 0


def test_503_without_end_is_told(
    filled: str, storage: Storage, capsys: pytest.CaptureFixture[str]
) -> None:
    storage.slow_down = 10**9
    before = storage.requests
    try:
        assert main(["fleet", "hosts", filled]) == 2
        assert storage.requests - before == ATTEMPTS
    finally:
        storage.slow_down = 0
    told = capsys.readouterr().err
    assert "error: cannot read s3://fleet/it's a lake/manifest/latest: " in told
    assert re.search(rf"Service Unavailable.*\(up to {ATTEMPTS} attempts\)", told)
    assert "try again when the store answers" in told


def test_a_bucket_that_is_not_there_is_told(storage: Storage) -> None:
    with pytest.raises(swtch.Error, match=r"cannot list s3://nowhere/.*bucket does not exist"):
        lake.open("s3://nowhere/lake")
