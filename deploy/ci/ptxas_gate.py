#!/usr/bin/env python3
"""Refuses kernels that spill registers, use a stack frame, or whose wgmma the assembler serialises.

  deploy/ci/ptxas_gate.py [BUILD_DIR]   judge what the build kept (deploy/cmake/ptxas_log.sh) of each
                                        kernel (default: build/release; it must be built)
  deploy/ci/ptxas_gate.py --log FILE    judge what `nvcc -Xptxas -v` printed earlier
  deploy/ci/ptxas_gate.py --self-test   prove that each rule can fail
"""

import json
import os
import pathlib
import re
import shlex
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"

FUNCTION = re.compile(r"Function properties for (\S+)")
COSTS = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
# wgmma made synchronous, registers moved around it, and the like.
WARNING = re.compile(r"\(C75(?:0[89]|1[0-5])\).*")


def judge(log):
    """Returns (number of kernels seen, list of problems)."""
    problems, seen, function = [], 0, "?"
    for line in log.splitlines():
        if match := FUNCTION.search(line):
            function = match.group(1)
        if match := COSTS.search(line):
            seen += 1
            if any(int(count) for count in match.groups()):
                problems.append(f"{function}: {match.group()}")
        if match := WARNING.search(line):
            problems.append(match.group())
    return seen, problems


def kept_log(entry):
    """What ptxas said when the object of this compile command was made."""
    words = shlex.split(entry["command"])
    log = pathlib.Path(entry["directory"], words[words.index("-o") + 1] + ".ptxas")
    if not log.exists() or log.stat().st_mtime < pathlib.Path(entry["file"]).stat().st_mtime:
        sys.exit(f"{log} is missing or older than its source: build first")
    return log.read_text()


def check_build(build_dir):
    database = build_dir / "compile_commands.json"
    if not database.exists():
        sys.exit(f"{database} is missing: configure the build first")
    entries = [e for e in json.loads(database.read_text())
               if e["file"].endswith(".cu") and pathlib.Path(e["file"]).is_relative_to(KERNELS)]
    if not entries:
        print("ptxas gate: skipped, this build has no CUDA")
        return
    seen, problems = 0, []
    for entry in entries:
        kernels, found = judge(kept_log(entry))
        if kernels == 0:
            sys.exit(f"{entry['file']}: ptxas named no kernel; was it asked to (-Xptxas=-v)?")
        seen += kernels
        problems += found
    report(seen, problems)


def report(seen, problems):
    if problems:
        sys.exit("ptxas gate:\n" + "\n".join(problems))
    if seen == 0:
        sys.exit("ptxas gate: no kernel was seen; is this the output of nvcc -Xptxas -v?")
    print(f"ptxas gate: {seen} kernels, no spill, no stack frame, no serialised wgmma")


def self_test():
    name = "ptxas info    : Function properties for f\n    "
    clean = name + "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    bad = [
        name + "8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n",
        name + "0 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads\n",
        name + "0 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads\n",
        clean + "ptxas info    : (C7510) Potential Performance Loss: wgmma is serialized in f\n",
    ]
    assert judge(clean) == (1, [])
    for log in bad:
        assert len(judge(log)[1]) == 1, log
    with tempfile.TemporaryDirectory() as folder:
        source, log = pathlib.Path(folder, "a.cu"), pathlib.Path(folder, "a.o.ptxas")
        source.touch()
        entry = {"directory": folder, "file": str(source), "command": "nvcc -c a.cu -o a.o"}
        for age_seconds in (None, 1):
            if age_seconds is not None:
                log.touch()
                os.utime(log, (0, source.stat().st_mtime - age_seconds))
            try:
                kept_log(entry)
            except SystemExit:
                continue
            raise AssertionError(f"a log of age {age_seconds} was read")
        log.write_text(clean)
        os.utime(log)
        assert kept_log(entry) == clean
    print(f"ptxas gate: {len(bad)} breaches and a missing or old log are caught, a clean log passes")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        self_test()
    elif len(arguments) == 2 and arguments[0] == "--log":
        report(*judge(pathlib.Path(arguments[1]).read_text()))
    elif len(arguments) <= 1:
        check_build(pathlib.Path(arguments[0]) if arguments else ROOT / "build" / "release")
    else:
        sys.exit(__doc__)


main()
