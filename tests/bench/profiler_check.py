#!/usr/bin/env python3
"""Puts the profiler's figures beside the probe's and the samples', for each stage count, as JSON lines.

  tests/bench/profiler_check.py STALLS FOLDER

STALLS is what gemmd_bench stall-check wrote for one shape and kernel; FOLDER has ncuS.csv for each S stages:

  ncu --csv --clock-control none --launch-skip 5 --launch-count 5 --kernel-name regex:GemmTma --metrics METRICS
      gemmd_bench shapes --shapes F --rows NAME --kernel K --stages S --split-k 1 --rounds 1 --out /dev/null

with METRICS the keys of FIELDS and SAMPLES below, joined by commas. Shapes and kernel must be those of STALLS.
"""

import csv
import json
import pathlib
import statistics
import sys

FIELDS = {  # a metric -> its field here, and what its unit is multiplied with
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("ncu_tensor_active", 0.01),
    "gpu__time_duration.sum": ("ncu_us", 0.001),
}
SAMPLES = ("smsp__pcsamp_warps_issue_stalled_long_scoreboard", "smsp__pcsamp_sample_count")
UNITS = {"gpu__time_duration.sum": {"ns": 1, "us": 1000, "ms": 1e6}}


def metrics(path):
    """Metric -> the median over the launches of one file."""
    lines = path.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    values = {}
    for row in csv.DictReader(lines[first:]):
        name, text = row["Metric Name"], row["Metric Value"].replace(",", "")
        if name in FIELDS or name in SAMPLES:
            scale = UNITS.get(name, {}).get(row["Metric Unit"], 1)
            values.setdefault(name, []).append(float(text) * scale)
    return {name: statistics.median(of) for name, of in values.items()}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    for text in pathlib.Path(sys.argv[1]).read_text().splitlines():
        line = json.loads(text)
        found = metrics(pathlib.Path(sys.argv[2]) / f"ncu{line['stages']}.csv")
        for name, (field, factor) in FIELDS.items():
            line[field] = round(found[name] * factor, 4)
        line["ncu_long_scoreboard"] = round(found[SAMPLES[0]] / found[SAMPLES[1]], 4)
        print(json.dumps(line))


if __name__ == "__main__":
    main()
