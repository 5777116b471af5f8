"""`--server`, `--delay` and `--duration` on the command line: whole runs, and what contradicts what."""

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nightsight.model.report import Report
from nightsight.results.serving import SERVING

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
print("ready to serve", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
CLIENT = """
import json, sys, urllib.request
urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/").read()
json.dump({"request_throughput": 3.5, "base_url": "http://secret"}, open("results.json", "w"))
sys.exit(int(sys.argv[2]))
"""
SERVED = ("--server", "python server.py", "--ready", "8000", "--client", "python client.py")


@pytest.mark.parametrize("status", [0, 3])
def test_a_server_and_its_client_are_one_report(
    run: Any, fake_nsys: Callable[..., Path], tmp_path: Path, status: int
) -> None:
    fake_nsys()
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "client.py").write_text(CLIENT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = run(
        "profile",
        *("--server", f"{sys.executable} server.py {port}", "--ready", f"localhost:{port}", "--attach", "results.json"),
        *("--client", f"{sys.executable} client.py {port} {status}"),
        expect=int(status > 0),
    )
    (folder,) = (tmp_path / "reports" / "server").glob("2*")
    report = Report.from_json((folder / "report.json").read_bytes())
    (row,) = report.rows(SERVING).to_dict("records")
    assert (row["rate_per_s"], row["measured"]) == (3.5, "with the profiler")
    assert "profiling server while client loads it" in result.stderr
    findings = {finding.rule: finding for finding in report.findings}
    assert ("client_failed" in findings) is (status == 3)
    if status:
        assert "Error: the client client ended with exit status 3; the report covers" in result.stderr
    text = (folder / "report.json").read_text()
    assert str(port) not in json.dumps(json.loads(text)["findings"])
    assert "secret" not in text


def test_a_span_of_a_workload_or_script_needs_no_capture_range(
    run: Any, script: Callable[..., Path], fake_nsys: Callable[..., Path], tmp_path: Path
) -> None:
    fake_nsys()
    code = "import time; time.sleep(1.5); open('end', 'w')"
    run("profile", "--no-ncu", "--no-calibrate", "--delay", "0.2", "--duration", "0.3", script(code))
    assert (tmp_path / "end").exists()
    assert list((tmp_path / "reports" / "train").glob("2*/report.html"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--delay", "1", "--collector", "torch", "mlp"), "--delay has no effect with --collector torch."),
        (("--duration", "1", "--collector", "ncu", "mlp"), "--duration has no effect with --collector ncu."),
        ((*SERVED, "--collector", "torch"), "--server has no effect with --collector torch."),
        ((*SERVED, "--delay", "1"), "--delay has no effect with --server."),
        ((*SERVED, "--duration", "1"), "--duration has no effect with --server."),
        ((*SERVED, "--time-steps"), "--time-steps has no effect with --server."),
        ((*SERVED, "--workloads", "."), "--workloads has no effect with --server."),
        ((*SERVED, "--ncu-kernels", "3"), "--ncu-kernels has no effect with --server."),
        ((*SERVED, "--capture-range", "nvtx"), "--capture-range has no effect with --server."),
        (("--delay", "1", "--capture-range", "cudaProfilerApi", "mlp"), "--capture-range has no effect with --delay."),
        (("--duration", "1", "--capture-range", "nvtx", "mlp"), "--capture-range has no effect with --duration."),
        ((*SERVED, "mlp"), "--server is the program to profile. Don't name another one."),
        ((*SERVED, "--", "ls"), "--server is the program to profile. Don't name another one."),
        (SERVED[:4], "--server needs --client."),
        ((*SERVED[:2], *SERVED[4:]), "--server needs --ready."),
        (("--ready", "8000", "mlp"), "--ready needs --server."),
        (("--client", "ls", "mlp"), "--client needs --server."),
        (("--ready-timeout", "3", "mlp"), "--ready-timeout needs --server."),
        (
            (*SERVED[:2], "--ready", "70000", *SERVED[4:]),
            "'70000' cannot show that a server is ready: ports",
        ),
        ((*SERVED[:2], "--ready", "", *SERVED[4:]), "'' cannot show that a server is ready: it is empty."),
        (("--server", "", *SERVED[2:]), "the command is empty."),
        (("--server", "python 'x", *SERVED[2:]), "is not a command: No closing quotation."),
        (("--server", "no-such-program x", *SERVED[2:]), "no-such-program was not found"),
        ((*SERVED[:4], "--client", "no-such-client"), "no-such-client was not found"),
        (("--delay", "-1", "mlp"), "Invalid value for '--delay'"),
        (("--duration", "0", "mlp"), "Invalid value for '--duration'"),
        (("--duration", "nan", "mlp"), "nan is not a number."),
        ((*SERVED, "--ready-timeout", "0"), "Invalid value for '--ready-timeout'"),
    ],
)
def test_what_contradicts_or_lacks_something_is_refused(
    run: Any, script: Callable[..., Path], options: tuple[str, ...], reason: str
) -> None:
    script(name="server.py")
    script(name="client.py")
    assert reason in " ".join(run("profile", *options, expect=2).output.split())
