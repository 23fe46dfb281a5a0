"""A gemmd under load, exporters, and the Prometheus that scrapes them: for the dashboards' test and pictures.

Needs nothing but Python's own library.
"""

import contextlib
import http.server
import json
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

DEADLINE_S = 25
SCRAPE_MS = 500
POLL_S = 0.1


def wait_for(what, ready, limit_s=DEADLINE_S):
    """Polls `ready` until it returns something true, which is returned."""
    deadline = time.monotonic() + limit_s
    while not (result := ready()):
        if time.monotonic() > deadline:
            sys.exit(f"waited {limit_s} s in vain until {what}")
        time.sleep(POLL_S)
    return result


def get(address, path, **fields):
    """GET; the body, also of a refusal. None where nobody answers."""
    url = f"http://{address}{path}" + ("?" + urllib.parse.urlencode(fields) if fields else "")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.read().decode()
    except OSError:
        return None


@contextlib.contextmanager
def running(command, log, grace_s=0):
    """A process that ends with the block, and has `grace_s` to do so by itself.

    Yields what exits where it has ended earlier, and says why.
    """
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def alive():
        if process.poll() is not None:
            sys.exit(f"{command[0]} ended ({process.returncode}):\n" + pathlib.Path(log).read_text()[-2000:])
        return True

    try:
        yield alive
        alive()
    finally:
        process.send_signal(signal.SIGTERM if grace_s else signal.SIGKILL)
        try:
            process.wait(grace_s or None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def serving(text_of):
    """An exporter of what `text_of` returns; yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = text_of().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # a scrape that took too long
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def gemmd(binaries, folder, *flags, start_s=DEADLINE_S):
    """Yields the addresses of gRPC and of metrics."""
    ports = folder / "ports"
    command = [binaries / "gemmd", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--port-file", ports,
               "--tuning-file", folder / "tuning.json", *flags]
    with running(command, folder / "gemmd.log") as alive:
        wait_for("gemmd serves", lambda: alive() and ports.exists(), start_s)
        yield [line.split()[1] for line in ports.read_text().splitlines()]


class Prometheus:
    def __init__(self, address, alive=lambda: True):
        self.address, self.alive = address, alive

    def ask(self, path, **fields):
        self.alive()
        answer = get(self.address, "/api/v1/" + path, **fields)
        return json.loads(answer) if answer else {"status": "error", "error": "no answer"}

    def series(self):
        """Metric -> the labels of each of its series."""
        found = {}
        for one in self.ask("series", **{"match[]": '{__name__!=""}'})["data"]:
            found.setdefault(one.pop("__name__"), []).append(one)
        return found


@contextlib.contextmanager
def prometheus(targets, rules, folder, program="prometheus", scrape_ms=SCRAPE_MS):
    """Its data is in `folder`/data, and stays there."""
    for number, path in enumerate(rules):  # a rule is to be evaluated while the test looks
        text = re.sub(r"(?m)^(\s+(?:- )?)interval:.*$", r"\1interval: 1s", path.read_text())
        (folder / f"rules{number}.yml").write_text(text)
    (folder / "prometheus.yml").write_text(json.dumps({  # JSON is YAML
        "global": {"scrape_interval": f"{scrape_ms}ms", "scrape_timeout": f"{scrape_ms}ms",
                   "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules*.yml")],
        "scrape_configs": [{"job_name": "gemmd", "static_configs": [{"targets": list(targets)}]}]}))
    log = folder / "prometheus.log"
    with running([program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                  "--storage.tsdb.retention.time=100y", "--web.listen-address=127.0.0.1:0"],
                 log, grace_s=DEADLINE_S) as alive:
        address = wait_for("Prometheus listens", lambda: alive() and re.search(
            r"Listening on.*address=(127\.0\.0\.1:\d+)", log.read_text())).group(1)
        wait_for("Prometheus is ready", lambda: alive() and "Ready" in (get(address, "/-/ready") or ""))
        yield Prometheus(address, alive)


def npy_header(descr, rows, columns):
    """Of a matrix in NumPy's format; its elements follow, row by row."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {columns})}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


@contextlib.contextmanager
def repeating(calls, wanted=lambda number: True):
    """Makes each of the calls, commands, again and again while `wanted` says so of its number.

    Many may fail, as they are meant to. Yields the set of the numbers of those that have succeeded.
    """
    stop, children, succeeded = threading.Event(), set(), set()

    def repeat(number, call):
        while not stop.is_set():
            if not wanted(number):
                stop.wait(POLL_S)
                continue
            child = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
            children.add(child)
            if child.wait() == 0:
                succeeded.add(number)
            children.discard(child)

    threads = [threading.Thread(target=repeat, args=one) for one in enumerate(calls)]
    for thread in threads:
        thread.start()
    try:
        yield succeeded
    finally:
        stop.set()
        for child in list(children):
            child.terminate()
        for thread in threads:
            thread.join()
