#!/usr/bin/env python3
"""Starts a gemmd with varied load and a Prometheus, and keeps the data from which pictures.py draws.

  deploy/grafana/record.py --bin BIN --out FOLDER [--seconds N] [--prometheus PROGRAM] [FLAG...]

BIN has gemmd and gemmctl; further FLAGs are gemmd's. FOLDER must not be there; it gets data/ for pictures.py
--data, and the logs. The load rises and falls, has long and short sums, few rows and many, several types, one kernel
at every stage count, callers that give up and a full queue; with the CPU backend it is the same, smaller. Needs
nothing but Python's own library.
"""

import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import monitored

SCRAPE_MS = 1000
START_S = 120  # of a gemmd, which proves each kernel first
SEED = 1
SHRINK_ON_CPU = 8
# Type -> NumPy's name, bytes, and highest bytes with which an element is between 1/4 and 2, or so below zero.
TYPES = {"bf16": ("|V2", 2, (0x3f, 0xbf)), "f16": ("<f2", 2, (0x38, 0xb8)), "f32": ("<f4", 4, (0x3f, 0xbf))}
PRODUCTS = (  # type, m, n, k
    ("bf16", 4096, 4096, 4096), ("bf16", 2048, 2048, 2048), ("bf16", 512, 512, 512),
    ("bf16", 128, 128, 65536), ("bf16", 4096, 4096, 64), ("bf16", 1, 4096, 4096), ("bf16", 16, 4096, 4096),
    ("bf16", 64, 8192, 4096), ("f16", 1024, 1024, 1024), ("f32", 1024, 1024, 1024), ("f32", 2048, 2048, 256),
)
STAGED = ("bf16", 2048, 2048, 4096)  # at every stage count of its kernel
GIVE_UP = ("--timeout", "0.05")  # before the product is there
CALLERS = 2  # of each product
# Until that part of the time, that part of the callers.
LOAD = ((0.2, 0.25), (0.45, 0.5), (0.75, 1.0), (0.9, 0.5), (1.0, 0.2))
TUNE_AT = 0.25  # of the time
TUNE_S = 5
FLAGS = ("--max-message", "512MiB", "--lanes", "2", "--max-queue", "4")  # so that they fill


def elements(dtype, count, chance):
    _, size, highest = TYPES[dtype]
    data = bytearray(count * size)
    for place in range(size - 1):
        data[place::size] = chance.randbytes(count)
    data[size - 1::size] = chance.randbytes(count).translate(bytes(highest[i % 2] for i in range(256)))
    return data


class Matrices:
    """Files of random elements, one for each type and size."""

    def __init__(self, folder):
        self.folder, self.chance = folder, random.Random(SEED)

    def path(self, dtype, rows, columns):
        path = self.folder / f"{dtype}-{rows}x{columns}.npy"
        if not path.exists():
            path.write_bytes(monitored.npy_header(TYPES[dtype][0], rows, columns) +
                             elements(dtype, rows * columns, self.chance))
        return path


def asked(gemmctl, *verb):
    """What gemmctl answers, as JSON."""
    done = subprocess.run([*gemmctl, "--json", *verb], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"gemmctl {' '.join(map(str, verb))}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def calls_of(gemmctl, folder):
    """The commands that make the load, in an order in which any first part of them is varied."""
    shrink = 1 if asked(gemmctl, "info")["backend"] == "cuda" else SHRINK_ON_CPU
    matrices, number = Matrices(folder), 0

    def matmul(product, *flags, timeout=()):
        nonlocal number
        dtype, *extents = product
        m, n, k = (max(extent // shrink, 1) for extent in extents)
        number += 1
        return [*gemmctl, *timeout, "matmul", matrices.path(dtype, m, k), matrices.path(dtype, k, n),
                "--dtype", dtype, "-o", folder / f"d{number}.npy", *flags]

    dtype, *extents = STAGED
    kernel = asked(gemmctl, "plan", *(str(extent // shrink) for extent in extents), "--dtype", dtype)["plan"]["kernel"]
    stages = next((one["max_stages"] for one in asked(gemmctl, "kernels")["kernels"] if one["name"] == kernel), 0)
    others = [[*gemmctl, "check", "--count", "20", "--seed", str(SEED)],
              matmul(PRODUCTS[0], timeout=GIVE_UP)]
    others += [matmul(STAGED, "--kernel", kernel, "--stages", str(count)) for count in range(1, stages + 1)]
    calls = [matmul(product) for _ in range(CALLERS) for product in PRODUCTS] + others
    random.Random(SEED).shuffle(calls)
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=180)
    parser.add_argument("--prometheus", default="prometheus", metavar="PROGRAM")
    arguments, flags = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends
    arguments.bin = arguments.bin.resolve()
    if arguments.out.exists():
        sys.exit(f"{arguments.out} is there already")
    arguments.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name, \
            monitored.gemmd(arguments.bin, arguments.out, *FLAGS, *flags, start_s=START_S) as (grpc, metrics):
        gemmctl = [arguments.bin / "gemmctl", "--server", grpc]
        calls = calls_of(gemmctl, pathlib.Path(name))
        with monitored.prometheus((metrics,), (), arguments.out, arguments.prometheus, SCRAPE_MS) as server:
            monitored.wait_for("gemmd is scraped", lambda: server.ask(
                "query", query="gemmd_health")["data"]["result"])
            start = time.monotonic()

            def passed():
                return (time.monotonic() - start) / arguments.seconds

            def wanted(number):
                return number < next((part for until, part in LOAD if passed() < until), 0) * len(calls)

            print(f"{len(calls)} callers for {arguments.seconds} s, seed {SEED}")
            with monitored.repeating(calls, wanted) as succeeded:
                monitored.wait_for("it is time to tune", lambda: server.alive() and passed() >= TUNE_AT,
                                   arguments.seconds)
                subprocess.run([*gemmctl, "tune", "--served", "--budget", f"{TUNE_S}s"], check=False,
                               stdout=subprocess.DEVNULL)
                monitored.wait_for("the time has passed", lambda: server.alive() and passed() >= 1,
                                   arguments.seconds)
            done = asked(gemmctl, "stats")["requests"]
    print(f"{arguments.out}/data: {', '.join(f'{count} {what}' for what, count in done.items())}")
    for number, call in enumerate(calls):
        if number not in succeeded and GIVE_UP[1] not in call:
            print(f"never succeeded: {' '.join(map(str, call[3:]))}")
    if not succeeded:
        sys.exit("no call succeeded")


if __name__ == "__main__":
    main()
