#!/usr/bin/env python3
"""What scraping costs a server under load: products a second with and without, as one JSON line.

  tests/bench/scrape_load.py [--server A] [--metrics M] [--load PROGRAM] ...

The server runs already, and serves nobody else. PROGRAM is gemmd_latency: --callers of it send products of
--extent one after another. Windows with scrapes every --interval seconds and windows without take turns, in the
order off on on off; products are counted by the server. Compared are the two windows of each pair, since speed
drifts. Both read /metrics once at their edges. Exit status 1 where the load ends early.

What the scraper and the callers take of the host is no cost of the server's: give the server cores of its own
(taskset), as it has where Prometheus is elsewhere.
"""

import argparse
import http.client
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARM_UP_S = 2
COUNT = re.compile(r"^gemmd_request_duration_seconds_count (\S+)$", re.MULTILINE)


def scrape(metrics):
    connection = http.client.HTTPConnection(metrics, timeout=10)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"scrape_load.py: /metrics answers {answer.status}")
        return answer.read()
    finally:
        connection.close()


def edge(metrics):
    """(when, products that have ended by then)."""
    before = time.monotonic()
    count = float(COUNT.search(scrape(metrics).decode())[1])
    return (before + time.monotonic()) / 2, count


def window(options, scraping, scrapes):
    """Products a second. Appends (seconds, bytes) of each scrape."""
    start, first = edge(options.metrics)
    turn = 1
    while (now := time.monotonic()) < start + options.window:
        if scraping and now >= start + turn * options.interval:
            size = len(scrape(options.metrics))
            scrapes.append((time.monotonic() - now, size))
            turn = int((time.monotonic() - start) / options.interval) + 1
        due = start + turn * options.interval if scraping else start + options.window
        time.sleep(max(0, min(due, start + options.window) - time.monotonic()))
    end, last = edge(options.metrics)
    return (last - first) / (end - start)


def measure(options, alive):
    scrapes, pairs = [], []
    time.sleep(WARM_UP_S)
    for pair in range(options.pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        speed = {scraping: window(options, scraping, scrapes) for scraping in order}
        alive()
        pairs.append((speed[False], speed[True]))
    ratios = [on / off for off, on in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {"bench": "scrape-load", "dtype": options.dtype, "m": options.extent, "n": options.extent,
            "k": options.extent, "callers": options.callers, "windows": 2 * len(pairs), "window_s": options.window,
            "interval_s": options.interval, "scrapes": len(scrapes),
            "scrape_ms": round(statistics.median(seconds for seconds, _ in scrapes) * 1e3, 2),
            "scrape_bytes": round(statistics.median(size for _, size in scrapes)),
            "off_per_second": round(statistics.median(off for off, _ in pairs), 1),
            "on_per_second": round(statistics.median(on for _, on in pairs), 1),
            "ratio": round(middle, 4), "ratio_p25": round(low, 4), "ratio_p75": round(high, 4),
            "gpu": options.gpu, "commit": options.commit, "date": time.strftime("%Y-%m-%d", time.gmtime())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="127.0.0.1:50051")
    parser.add_argument("--metrics", default="127.0.0.1:9464")
    parser.add_argument("--load", default=str(ROOT / "build/release/bin/gemmd_latency"), metavar="PROGRAM")
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--extent", type=int, default=128)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--pairs", type=int, default=20, help="of windows; 2 at least")
    parser.add_argument("--window", type=float, default=2, help="seconds")
    parser.add_argument("--interval", type=float, default=0.1, help="seconds from scrape to scrape")
    parser.add_argument("--gpu", default="none", help="written into the line, as --commit")
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    if options.pairs < 2 or not 0 < options.interval < options.window:
        parser.error("--pairs is 2 at least, and --interval above 0 and below --window")
    command = [options.load, "--server", options.server, "--extent", str(options.extent), "--dtype", options.dtype,
               "--calls", str(10**9)]
    callers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(options.callers)]

    def alive():
        if any(caller.poll() is not None for caller in callers):
            sys.exit("scrape_load.py: a caller has ended; what it said is above")

    try:
        print(json.dumps(measure(options, alive), separators=(",", ":")))
    finally:
        for caller in callers:
            caller.kill()
            caller.wait()


if __name__ == "__main__":
    main()
