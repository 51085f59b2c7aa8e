"""The agent sends its metrics to a collector.

Decoded by OpenTelemetry's own messages, they are those of a scrape.
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")

LIMIT_S = 30

# A point: the name of its metric, and its labels.
Series = tuple[str, tuple[tuple[str, str], ...]]


class Collector(ThreadingHTTPServer):
    """A server that answers each request with the next of these, and then with the last one."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Taker)
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.paths: list[tuple[str, str]] = []


class Taker(BaseHTTPRequestHandler):
    """Keeps what is sent to a collector."""

    server: Collector

    def do_POST(self) -> None:
        """Takes an export."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answers = self.server.answers
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        self.server.paths.append((self.path, self.headers["Content-Type"]))
        self.server.bodies.append(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        if status == 307:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@contextmanager
def collector(*answers: tuple[int, bytes]) -> Iterator[Collector]:
    with Collector(*answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def agent(program: str, to_port: int) -> Iterator[int]:
    """An agent that sends every second; yields the port where it is scraped."""
    port = free_port()
    words = ["agent", "--listen", f"127.0.0.1:{port}", "--otlp", f"http://127.0.0.1:{to_port}"]
    with subprocess.Popen([program, *words, "--otlp-every", "1s"]) as process:
        try:
            wait_until(lambda: scrape(port) != "")
            yield port
        finally:
            process.terminate()
            assert process.wait(LIMIT_S) == 0


def scrape(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def exports(port: int, result: str) -> int:
    start = f'swtch_otlp_exports_total{{result="{result}"}} '
    lines = [line for line in scrape(port).splitlines() if line.startswith(start)]
    return int(lines[0].removeprefix(start))


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.1)


def points(body: bytes) -> dict[Series, float]:
    """The points of an export; of a histogram, its count."""
    request = service.ExportMetricsServiceRequest.FromString(body)
    (of_resource,) = request.resource_metrics
    resource = {one.key: one.value.string_value for one in of_resource.resource.attributes}
    assert resource["service.name"] == "swtch-agent"
    assert resource["host.name"] == socket.gethostname()
    (of_scope,) = of_resource.scope_metrics
    found = {}
    for metric in of_scope.metrics:
        kind = metric.WhichOneof("data")
        data = getattr(metric, kind)
        assert kind == "gauge" or data.aggregation_temporality == 2
        assert kind != "sum" or data.is_monotonic
        for point in data.data_points:
            labels = tuple(sorted((one.key, one.value.string_value) for one in point.attributes))
            if kind == "histogram":
                assert sum(point.bucket_counts) == point.count
                assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
                found[metric.name + "_count", labels] = float(point.count)
            else:
                value = getattr(point, point.WhichOneof("value"))
                found[metric.name + ("_total" if kind == "sum" else ""), labels] = float(value)
    return found


def scraped(text: str) -> dict[Series, float]:
    """The same of a scrape."""
    found = {}
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        name, _, labels = series.partition("{")
        if not line.startswith("#") and not name.endswith(("_bucket", "_sum")):
            pairs = [one.split('="') for one in labels.removesuffix('"}').split('",') if one]
            found[name, tuple(sorted((key, text) for key, text in pairs))] = float(value)
    return found


def test_a_collector_gets_the_metrics_of_a_scrape(program: str) -> None:
    refused = service.ExportMetricsServiceResponse()
    refused.partial_success.rejected_data_points = 3
    busy = (503, b"")
    with (
        collector(busy, (200, refused.SerializeToString()), (200, b"")) as server,
        agent(program, server.server_port) as port,
    ):
        wait_until(lambda: exports(port, "ok") >= 3)
        assert exports(port, "failed") == 0
        before = scraped(scrape(port))
        count = len(server.bodies)
        wait_until(lambda: len(server.bodies) >= count + 2)
        sent = points(server.bodies[-1])
        wait_until(
            lambda: exports(port, "ok") > before["swtch_otlp_exports_total", (("result", "ok"),)]
        )
        after = scraped(scrape(port))
        # The same again, since it is what the first answer did not take.
        assert server.bodies[0] == server.bodies[1]
    assert set(server.paths) == {("/v1/metrics", "application/x-protobuf")}
    assert after["swtch_otlp_rejected_points_total", ()] == 3
    names = {name for name, _ in sent}
    assert names <= {name for name, _ in after}
    assert len(names) > 10
    counters = [series for series in sent if series[0].endswith(("_total", "_count"))]
    for series in counters:
        assert before.get(series, 0.0) - 1e-9 <= sent[series] <= after[series] + 1e-9, series


def test_a_redirect_is_a_failure_and_is_not_followed(program: str) -> None:
    with collector((307, b"")) as server, agent(program, server.server_port) as port:
        wait_until(lambda: exports(port, "failed") >= 2)
        assert exports(port, "ok") == 0
    assert {path for path, _ in server.paths} == {"/v1/metrics"}


def test_without_a_collector_scrapes_go_on(program: str) -> None:
    """One that refuses connections, and one that takes them and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port_of_collector in (free_port(), silent.getsockname()[1]):
            with agent(program, port_of_collector) as port:
                for _ in range(20):
                    began = time.monotonic()
                    assert "swtch_host_context_switches_total" in scrape(port)
                    assert time.monotonic() - began < 1
                    time.sleep(0.1)
                wait_until(lambda: exports(port, "failed") >= 1)


def test_an_address_that_no_collector_has_is_refused(program: str) -> None:
    for url, why in (("https://a", "https is not spoken"), ("localhost", "begins with http://")):
        ended = subprocess.run(
            [program, "agent", "--otlp", url],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert ended.returncode == 2
        assert why in ended.stderr
