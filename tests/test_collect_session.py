"""A part of a run: a span of time, or a server while a client loads it, with a fake nsys whose sessions are real.

The servers are programs with a socket; how each fails to be a good one is in its code.
"""

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.collect import process, session
from nightsight.collect.nsys import collect_nsys
from nightsight.collect.ready import Readiness, endpoint_problem, problem_of
from nightsight.collect.workloads import Load, Program, Request, Span
from nightsight.errors import CaptureError, ToolError, UsageError, WorkloadError
from nightsight.model.report import Capture

SERVER = """
import http.server, os, signal, sys, time
open("started", "w").close()
{before}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/end":
            os._exit(7)
        if self.path == "/quit":
            os._exit(0)
        self.send_response(200 if self.path == "/health" and time.time() > ready else 503)
        self.end_headers()
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with open("posted", "a") as log:
            print(self.path, body, file=log)
        self.send_response(200 if self.path.startswith("/start") else 500)
        self.end_headers()
ready = time.time() + {seconds}
server = http.server.HTTPServer(("127.0.0.1", {port}), Handler)
print("the server", "is up", flush=True)
server.serve_forever()
"""
LOAD = "import urllib.request, os; urllib.request.urlopen('http://127.0.0.1:{port}/health').read(); {more}"
Serve = Callable[..., Capture]


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    return Request(captures=tmp_path / "captures", logs=tmp_path / "logs", timeout_s=20)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
        return number


@pytest.fixture
def serve(
    request_: Request, fake_nsys: Callable[..., Path], port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Serve:
    """Profile a server while a client loads it."""
    monkeypatch.chdir(tmp_path)

    def profile(
        more: str = "",
        *,
        before: str = "",
        seconds: float = 0.3,
        ready: str = "",
        within_s: float = 10,
        nsys: str = "ok",
        start_profile: str = "",
    ) -> Capture:
        fake_nsys(nsys)
        (tmp_path / "server.py").write_text(SERVER.format(before=before, seconds=seconds, port=port))
        (tmp_path / "client.py").write_text(LOAD.format(more=more, port=port))
        server = Program("app", "command", (sys.executable, str(tmp_path / "server.py")))
        client = Program("load", "command", (sys.executable, str(tmp_path / "client.py")))
        sign = ready or f"http://127.0.0.1:{port}/health"
        return collect_nsys(server, replace(request_, part=Load(client, sign, within_s, start_profile)))

    return profile


@pytest.fixture
def answering() -> Iterator[int]:
    """A server of another program; the port that it listens on."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = int(self.path[1:])
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/302")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def rules(capture: Capture) -> list[str]:
    return [finding.rule for finding in capture.findings]


# -- a server ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["", "PORT", "localhost:PORT", "server is up"])
def test_a_server_is_recorded_while_a_client_loads_it_and_ended(
    serve: Serve, request_: Request, port: int, sign: str, tmp_path: Path
) -> None:
    # whatever says that it is ready: what the client asks for must be there
    seconds = 0.3 if not sign else 0
    more = "print('loaded'); open('loaded', 'w').write('x')"
    capture = serve(more, seconds=seconds, ready=sign.replace("PORT", str(port)))
    assert (capture.failure, capture.findings) == ("", ())
    assert [path.name for path in capture.files] == ["app.nsys-rep", "app.sqlite"]
    assert (tmp_path / "loaded").exists()
    assert (request_.logs / "client.log").read_text() == "loaded\n"
    log = (request_.logs / "profile.log").read_text()
    assert log.index("the server is up") < log.index("Generated:")
    assert not Readiness(str(port)).now()


def test_the_profiler_of_a_server_runs_while_the_client_does(serve: Serve, port: int, tmp_path: Path) -> None:
    capture = serve("open('posted', 'a').write('load\\n')", start_profile=f"http://127.0.0.1:{port}/start_profile")
    lines = (tmp_path / "posted").read_text().splitlines()
    assert lines == [
        '/start_profile {"activities": ["CUDA_PROFILER"]}',
        "load",
        '/stop_profile {"activities": ["CUDA_PROFILER"]}',
    ]
    (warning,) = (finding for finding in capture.findings if finding.rule == "server_profiler")
    assert warning.detail == "stop_profile: the server answered with status 500."
    assert "--profiler-config.profiler cuda" in warning.remedy
    assert not capture.failure


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://localhost:8000/start_profile", ""),
        ("localhost:8000/start_profile", "it is not a URL"),
        ("http://localhost:8000/start_profile?x=1", "it does not end in /start_profile"),
        ("http://:0/start_profile", "it is not a URL"),
    ],
)
def test_a_url_that_starts_a_profiler(url: str, problem: str) -> None:
    assert endpoint_problem(url) == problem


def test_a_client_that_fails_leaves_a_capture_that_says_so(serve: Serve) -> None:
    capture = serve("print('the cause'); os._exit(3)")
    assert capture.failure == "the client load ended with exit status 3"
    assert rules(capture) == ["client_failed"]
    assert capture.files[1].stat().st_size


def test_a_server_that_dies_under_the_load_leaves_a_capture_that_says_so(
    serve: Serve, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_GRACE_S", 0.3)
    # the client would wait for ever
    more = f"""
import contextlib, time
with contextlib.suppress(OSError): urllib.request.urlopen('http://127.0.0.1:{port}/end')
time.sleep(60)"""
    capture = serve(more)
    assert capture.failure == "the server app ended with exit status 7 while the client was loading it"
    assert rules(capture) == ["server_ended"]


def test_a_client_may_end_the_server(serve: Serve, port: int) -> None:
    more = f"""
import contextlib, time
with contextlib.suppress(OSError): urllib.request.urlopen('http://127.0.0.1:{port}/quit')
time.sleep(1)"""
    capture = serve(more)
    assert (capture.failure, capture.findings) == ("", ())


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            {"before": "print('no GPU'); sys.exit(4)"},
            "the server app ended with exit status 4 before it was ready; nothing was captured",
            "no GPU",
        ),
        (
            {"before": "sys.exit(0)"},
            "the server app ended with exit status 0 before it was ready; nothing was captured",
            "profile.log",
        ),
        ({"seconds": 60, "within_s": 1}, "the server app was not ready after 1 s (--ready http://", "--ready-timeout"),
        (
            {"ready": "never said", "within_s": 1},
            "the server app was not ready after 1 s (--ready never said)",
            "is up",
        ),
    ],
)
def test_a_server_that_never_gets_ready_is_one_clear_line(
    serve: Serve, options: dict[str, object], message: str, hint: str, port: int
) -> None:
    with pytest.raises(WorkloadError) as raised:
        serve(**options)
    assert raised.value.message.startswith(message)
    assert hint in raised.value.hint
    assert not Readiness(str(port)).now()


@pytest.mark.usefixtures("no_namespaces")
def test_a_server_that_does_not_end_is_killed_and_the_capture_kept(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    monkeypatch.setattr(process, "_REACT_S", 0.3)
    monkeypatch.setattr(process, "_TERMINATE_S", 0.3)
    stubborn = "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)"
    capture = serve(before=stubborn)
    assert capture.failure == ""
    assert rules(capture) == ["server_killed"]
    assert capture.files[1].stat().st_size
    assert not Readiness(str(port)).now()


def test_an_nsys_that_cannot_begin_is_named(serve: Serve, port: int) -> None:
    with pytest.raises(
        ToolError, match="nsys could not start recording: nsys start ended with exit status 1"
    ) as raised:
        serve(nsys="no start")
    assert "There are no active sessions." in raised.value.hint
    assert not Readiness(str(port)).now()


def test_an_nsys_that_cannot_stop_saves_at_the_end_and_the_report_says_so(serve: Serve) -> None:
    assert rules(serve(nsys="no stop")) == ["not_stopped"]


def test_the_time_limit_holds_for_the_client_too(
    serve: Serve, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_REACT_S", 0.3)
    object.__setattr__(request_, "timeout_s", 3.0)
    capture = serve("import time; time.sleep(60)")
    assert capture.failure.startswith("the client load was stopped after")
    assert rules(capture) == ["client_failed"]


def test_an_interrupt_while_the_client_runs_keeps_what_was_captured(
    serve: Serve, interrupt: Callable[..., None], port: int, tmp_path: Path
) -> None:
    interrupt(tmp_path / "loading")
    capture = serve("open('loading', 'w'); import time; time.sleep(60)")
    assert capture.failure.startswith("app was interrupted after")
    assert rules(capture) == ["partial_capture"]
    assert not Readiness(str(port)).now()


def test_a_server_that_runs_already_is_not_taken_for_ours(serve: Serve, answering: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"something already answers at localhost:{answering}"):
        serve(ready=f"localhost:{answering}")
    assert not (tmp_path / "started").exists()


# -- whether it is ready ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "is_ready"), [("200", True), ("204", True), ("503", False), ("404", False), ("302", False)]
)
def test_a_url_answers_with_2xx(answering: int, path: str, is_ready: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # nobody is asked but the server
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert Readiness(f"http://127.0.0.1:{answering}/{path}").now() is is_ready


def test_nobody_listens(port: int) -> None:
    for sign in (
        str(port),
        f"127.0.0.1:{port}",
        f"http://127.0.0.1:{port}/",
        "http://no.such.host.invalid/",
        "http://[",
    ):
        assert not Readiness(sign).now()


@given(st.text(min_size=1, max_size=6), st.text(max_size=20), st.data())
def test_a_text_is_found_however_the_output_comes(sign: str, output: str, data: st.DataObject) -> None:
    ready = Readiness(sign)
    if not ready._is_text:
        return
    cuts = sorted(data.draw(st.lists(st.integers(0, len(output)), max_size=5)))
    for begin, end in zip([0, *cuts], [*cuts, len(output)], strict=True):
        ready.hear(output[begin:end])
    assert ready.now() == (sign in output)


@pytest.mark.parametrize(
    "sign",
    ["", "  ", "0", "65536", "host:70000", "http://", "http://:80", "http://host:0/", "http://host:x", "http://a b"],
)
def test_what_cannot_be_waited_for(sign: str) -> None:
    assert problem_of(sign)


@pytest.mark.parametrize(
    "sign", ["1", "65535", "host:80", ":80", "http://host", "HTTPS://host:8443/v1?x=1", "Uvicorn running", "127.0.0.1"]
)
def test_what_can(sign: str) -> None:
    assert problem_of(sign) == ""


# -- a span of time ---------------------------------------------------------------------------------------------------

GOES_ON = """
import pathlib, sys, time
began = time.monotonic()
while time.monotonic() - began < {seconds}:
    time.sleep(0.05)
pathlib.Path("result").touch()
sys.exit({status})
"""


@pytest.fixture
def span(
    request_: Request, fake_nsys: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Capture]:
    """Profile a span of a program."""
    monkeypatch.chdir(tmp_path)

    def profile(part: Span, *, seconds: float, status: int = 0, nsys: str = "ok", limit_s: float = 20) -> Capture:
        fake_nsys(nsys)
        (tmp_path / "program.py").write_text(GOES_ON.format(seconds=seconds, status=status))
        program = Program("tiny", "script", (sys.executable, str(tmp_path / "program.py")))
        return collect_nsys(program, replace(request_, part=part, timeout_s=limit_s))

    return profile


@pytest.mark.parametrize("part", [Span(0.4, 0.4), Span(0, 0.4), Span(0.4), Span(0.4, 60)])
def test_after_the_span_the_program_goes_on_to_its_end(
    span: Callable[..., Capture], request_: Request, part: Span, tmp_path: Path
) -> None:
    capture = span(part, seconds=2.5)
    assert (capture.failure, capture.findings) == ("", ())
    assert (tmp_path / "result").exists()
    assert (request_.logs / "start.log").exists()
    assert (request_.logs / "stop.log").exists() is (part.duration_s == 0.4)


def test_a_program_that_ends_before_the_span(span: Callable[..., Capture]) -> None:
    with pytest.raises(CaptureError, match=r"tiny ended after \S+ s, before the delay of 30 s") as raised:
        span(Span(30), seconds=0)
    assert raised.value.hint == "Use a shorter --delay."


def test_a_program_that_fails_before_the_span(span: Callable[..., Capture]) -> None:
    with pytest.raises(WorkloadError, match="tiny ended with exit status 5; nothing was captured"):
        span(Span(30), seconds=0, status=5)


def test_a_program_that_fails_after_the_span_leaves_a_whole_capture(span: Callable[..., Capture]) -> None:
    capture = span(Span(0, 0.3), seconds=4, status=5)
    assert capture.failure == "tiny ended with exit status 5"
    assert rules(capture) == ["failed_later"]


def test_a_program_that_fails_within_the_span(span: Callable[..., Capture]) -> None:
    assert rules(span(Span(0.3, 60), seconds=1.5, status=5)) == ["partial_capture"]


def test_a_program_that_never_ends_is_stopped_at_the_time_limit_and_its_span_is_whole(
    span: Callable[..., Capture],
) -> None:
    capture = span(Span(0, 0.3), seconds=60, limit_s=3)
    assert (capture.failure, capture.findings) == ("", ())


def test_a_span_that_the_time_limit_cuts_is_a_part(span: Callable[..., Capture]) -> None:
    assert rules(span(Span(0.3, 60), seconds=60, limit_s=2)) == ["partial_capture"]


def test_a_stop_that_fails_is_not_tried_again_until_the_end(span: Callable[..., Capture]) -> None:
    capture = span(Span(0, 0.2), seconds=2, nsys="no stop")
    assert capture.files[1].stat().st_size


def test_commands_to_a_session_that_has_gone(request_: Request, tmp_path: Path) -> None:
    gone = session.Session(tmp_path / "nsys", request_, ("unshare", "--user"), is_later=True, name="x")
    assert gone.stop_command(2**22 + 1) == ()
    gone.has_begun = True
    assert gone.stop_command(2**22 + 1) == ()
