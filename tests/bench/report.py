#!/usr/bin/env python3
"""Writes the tables of the documents from the committed result files.

A document holds a pair of lines

    <!-- table: NAME [ARGUMENT] -->
    <!-- end -->

and what stands between them is made here from tests/bench/results/*.jsonl. With --check nothing is
written and a stale table is an error (exit 1), so that no figure in a document can differ from its
measurement.
"""

import argparse
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "bench" / "results"
DOCUMENTS = ["README.md", "kernels/README.md", "server/README.md", "docs/observability.md", "docs/laboratory.md"]
BLOCK = re.compile(r"(<!-- table: ([^>]*?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def load(bench, name="*"):
    """All result lines of one bench, in file order; of the file NAME.jsonl alone where named."""
    lines = []
    for path in sorted(RESULTS.glob(name + ".jsonl")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if line["bench"] == bench:
                lines.append(line)
    if not lines:
        raise SystemExit(f"report.py: no results for bench {bench!r} in {RESULTS}")
    return lines


def load_lab(experiment):
    """The object that `gemmd_lab --json EXPERIMENT` printed."""
    return json.loads((RESULTS / f"lab-{experiment}.json").read_text())


def table(header, rows):
    """A Markdown table; cells are strings."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def measured_on(lines):
    """One sentence on where the figures come from."""
    places = sorted({f"{line['gpu']}, {line['date']}, at {line['commit']}" for line in lines})
    return f"\nMeasured on {'; '.join(places)}.\n"


def stage_sweep(argument):
    """TFLOP/s by K (rows) and stage count (columns): argument "FILE KERNEL".

    A file holds one run. Figures of two runs do not compare: the card's clock follows its power.
    """
    name, kernel = argument.split()
    lines = [line for line in load("stage-sweep", name) if line["kernel"] == kernel]
    stages = sorted({line["stages"] for line in lines})
    by_key = {(line["k"], line["stages"]): line for line in lines}
    rows = []
    for k in sorted({line["k"] for line in lines}):
        cells = [by_key[k, s] for s in stages]
        best = min(cell["us"] for cell in cells)
        rows.append([str(k)] + [f"{cell['tflops']:.0f}" for cell in cells]
                    + [f"{by_key[k, 1]['us'] / best:.2f}"])
    residency = ["blocks per SM"] + [str(by_key[min(k for k, _ in by_key), s]["resident_blocks"])
                                     for s in stages] + [""]
    header = ["K"] + [f"S = {s}" for s in stages] + ["S = 1 over best"]
    return table(header, [residency, *rows]) + measured_on(lines)


def selection(_):
    """How near the picks for random shapes come to the fastest plan, by what picked them."""
    lines = load("selection")
    rows = []
    for source, name in (("model", "the model alone"), ("measured", "after tuning")):
        ratios = sorted(line["best_us"] / line["picked_us"] for line in lines
                        if line["source"] == source)
        mean = geometric_mean(ratios)
        share = [f"{sum(ratio >= least for ratio in ratios) / len(ratios):.1%}"
                 for least in (0.88, 0.96)]
        rows.append([name, str(len(ratios)), f"{mean:.4f}", *share, f"{ratios[0]:.3f}"])
    header = ["picked by", "shapes", "fastest / picked, geometric mean", "at least 0.88",
              "at least 0.96", "worst"]
    return table(header, rows) + measured_on(lines)


def calibration(_):
    """Nanoseconds of a step of a load-only ring by its stages, and what comes of them."""
    points = [line for line in load("calibration") if "stages" in line]
    found = {line["family"]: line for line in load("calibration-result")}
    most = max(line["stages"] for line in points)
    rows = []
    for family, line in found.items():
        steps = {p["stages"]: f"{p['step_ns']:.0f}" for p in points if p["family"] == family}
        rows.append([family] + [steps.get(s, "") for s in range(1, most + 1)]
                    + [f"{line['latency_clocks']:.0f}", f"{line['bytes_per_clock']:.1f}",
                       f"{line['flops_per_clock']:.0f}"])
    header = ["kind"] + [f"S = {s}" for s in range(1, most + 1)] + ["latency, clocks", "bytes/clock",
                                                                   "FLOP/clock"]
    return table(header, rows) + measured_on(list(found.values()))


def probe_cost(_):
    """The stall probe on against off over the shapes whose kernel has one: the mean, and what pays most."""
    lines = [line for line in load("probe-cost") if line["stages"] > 0]
    mean = geometric_mean([line["ratio"] for line in lines])
    rows = [[f"geometric mean of {len(lines)}", "", "", "", "", "", "", "", f"{mean:.4f}"]]
    for line in sorted(lines, key=lambda line: -line["ratio"])[:10]:
        rows.append([line["shape"], line["dtype"], line["layout"], extents(line), line["kernel"],
                     str(line["stages"]), f"{line['off_us']:.2f}", f"{line['on_us']:.2f}", f"{line['ratio']:.4f}"])
    return table(["shape", "dtype", "layout", "M N K", "kernel", "S", "off us", "on us", "on / off"],
                 rows) + measured_on(lines)


def stall_check(_):
    """One product at each stage count: the probe's waits, where samples lie, and the profiler's figures."""
    lines = load("stall-check")

    def percent(value):
        return f"{100 * value:.0f}"

    rows = [[str(line["stages"]), f"{line['us']:.0f}", percent(line["wait_full"]), percent(line["wait_empty"]),
             percent(line["samples_at_full"]), percent(line["samples_at_math"]), percent(line["ncu_long_scoreboard"]),
             percent(line["ncu_tensor_active"])] for line in lines]
    header = ["S", "us", "wait full, % of main loop", "wait empty, %", "samples at the full wait, %",
              "samples at tensor math, %", "Nsight: long scoreboard, % of samples", "Nsight: tensor pipe active, %"]
    return (table(header, rows) + f"\n{lines[0]['m']} x {lines[0]['n']} x {lines[0]['k']}, {lines[0]['dtype']}, "
            f"{lines[0]['kernel']}." + measured_on(lines))


def scrape_load(_):
    """Products a second without scrapes and with one every 100 ms."""
    rows = [[f"{line['m']}^3 {line['dtype']}, {line['callers']} callers", f"{line['off_per_second']:.0f}",
             f"{line['on_per_second']:.0f}", f"{line['ratio']:.3f}", f"{line['ratio_p25']:.3f} to {line['ratio_p75']:.3f}",
             f"{line['scrape_ms']:.1f}"] for line in load("scrape-load")]
    return table(["load", "products/s", "while scraped", "ratio", "middle half of pairs", "ms a scrape"],
                 rows) + measured_on(load("scrape-load"))


def sampling_cost(_):
    """A launch among many in a row: without samples, at the default rate and at the fullest."""
    lines = load("pc-sampling-cost")
    rows = [[f"geometric mean of {len(lines)}", "", "", "", "",
             *(f"{geometric_mean([line[key] for line in lines]):.3f}" for key in ("default_ratio", "full_ratio"))]]
    for line in lines:
        rows.append([line["shape"], line["kernel"], *(f"{line[key]:.2f}" for key in ("off_us", "default_us", "full_us")),
                     f"{line['default_ratio']:.3f}", f"{line['full_ratio']:.3f}"])
    percent = f"{lines[0]['default_percent']:g} %"
    return table(["shape", "kernel", "off us", f"{percent} us", "100 % us", f"{percent} / off", "100 % / off"],
                 rows) + measured_on(lines)


MECHANISMS = {"cp_async": "cp.async", "tma": "TMA"}


def lab_model(_):
    """The worked example by arithmetic, and what was measured, by the scale at which it was."""
    document = load_lab("model")
    measured = document["rows"]["measured"]
    rows = []
    for outlook in document["rows"]["outlook"]:
        at = [next((rung for rung in ladder["rungs"] if rung["stages"] == outlook["stages"]), None)
              for ladder in measured]
        rows.append([str(outlook["stages"]), f"{outlook['uncovered_clocks']:.0f}", f"{outlook['clocks_per_tile']:.0f}",
                     *(f"{rung['measured_clocks'] / ladder['scale']:.0f}" if rung else ""
                       for rung, ladder in zip(at, measured)),
                     f"{outlook['smem_bytes'] >> 10} KiB", str(outlook["resident_blocks"]),
                     f"{outlook['sm_clocks_per_tile']:.0f}"])
    said = "; ".join(f"{MECHANISMS[ladder['mechanism']]}: L = {ladder['load_clocks']:.0f}, "
                     f"C = {ladder['compute_clocks']:.0f}, shown divided by {ladder['scale']}" for ladder in measured)
    return table(["S", "uncovered", "clocks a tile", *(f"measured, {MECHANISMS[one['mechanism']]}" for one in measured),
                  "shared memory", "blocks an SM", "clocks a tile of an SM"], rows) + f"\n{said}." + measured_on([document])


def lab_ladder(_):
    """One tile at every stage count, C as long as L: clocks a tile."""
    document = load_lab("ladder")
    rows = []
    for ladder in document["rows"]:
        rows.append([MECHANISMS[ladder["mechanism"]], "", f"L + C = {ladder['sum_clocks']:.0f}",
                     f"max(L, C) = {ladder['larger_clocks']:.0f}", "", ""])
        for rung in ladder["rungs"]:
            rows.append(["", str(rung["stages"]), f"{rung['predicted_clocks']:.0f}", f"{rung['measured_clocks']:.0f}",
                         f"{rung['ready_clocks']:.0f}", f"{rung['hidden_share']:.0%}"])
    return table(["copies", "S", "predicted", "measured", "in waits", "of the load, hidden"], rows) + measured_on([document])


def lab_residency(mechanism):
    """Tiles a microsecond by K, of the whole device: two stages and four, of one and of two blocks an SM."""
    document = load_lab("residency")
    points = [point for point in document["rows"] if point["mechanism"] == mechanism]
    columns = sorted({(point["stages"], point["resident_blocks"]) for point in points})
    rows = []
    for k_tiles in sorted({point["k_tiles"] for point in points}):
        at = {(point["stages"], point["resident_blocks"]): point for point in points if point["k_tiles"] == k_tiles}
        rows.append([str(k_tiles), *(f"{at[column]['tiles_per_second'] * 1e-6:.0f}" for column in columns),
                     *(f"{at[column]['ready_clocks']:.0f}" for column in columns),
                     *(f"{at[column]['clocks_per_tile']:.0f} ({at[column]['predicted_clocks_per_tile']:.0f})"
                       for column in columns if column[1] == 1)])
    names = [f"S = {stages}, {blocks} block{'s' if blocks > 1 else ''}" for stages, blocks in columns]
    return table(["K tiles", *(f"{name}: tiles/us" for name in names), *(f"{name}: in waits" for name in names),
                  *(f"{name}: clocks a tile (predicted)" for name, column in zip(names, columns) if column[1] == 1)],
                 rows) + measured_on([document])


def lab_hazard(_):
    """Iterations with a wrong sum, and wrong sums among all, by the delay of the last warp."""
    document = load_lab("hazard")
    lines = document["rows"]
    delays = sorted({line["delay_cycles"] for line in lines})
    rows = []
    for hazard, mechanism in dict.fromkeys((line["hazard"], line["mechanism"]) for line in lines):
        of = {line["delay_cycles"]: line for line in lines if (line["hazard"], line["mechanism"]) == (hazard, mechanism)}
        rows.append([f"`{hazard}`", MECHANISMS[mechanism], str(sum(line["correct_failures"] for line in of.values())),
                     *(f"{of[delay]['broken_failures']} ({of[delay]['broken_wrong_sums'] / of[delay]['sums']:.2%})"
                       for delay in delays)])
    return table(["left out", "copies", "whole ring: wrong", *(f"delay {delay}" for delay in delays)], rows) + measured_on(
        [document])


def latency(_):
    """Parts of a small unary call, median and 99th percentile."""
    lines = load("latency")
    parts = ["decode", "plan", "stage", "h2d", "kernel", "d2h", "unstage", "total", "overhead",
             "round_trip"]
    rows = [[f"{line['dtype']} {line['m']}^3, {line['backend']}"]
            + [f"{line[part + '_p50_us']:.0f} / {line[part + '_p99_us']:.0f}" for part in parts]
            for line in lines]
    return table(["call"] + parts, rows) + measured_on(lines)


def batches(_):
    """Batches of products beside cuBLASLt, checked."""
    return kernel_table([line for line in load("kernel") if line.get("batch", 1) > 1])


def single_products():
    return [line for line in load("kernel") if line.get("batch", 1) == 1]


def shapes(dtype):
    """Products beside cuBLASLt, checked; of one dtype when named."""
    return kernel_table([line for line in single_products() if dtype in ("", line["dtype"])])


def kernel_table(lines):
    if not lines:
        raise SystemExit(f"report.py: no such products in {RESULTS}")
    newest = {(line["shape"], line["dtype"]): line for line in lines}
    rows = []
    for line in newest.values():
        if not line["ok"]:
            raise SystemExit(f"report.py: {line['shape']} {line['dtype']} was computed wrong")
        padded = line.get("ratio_padded_first")
        peer = f"{line['peer_first_us']:.1f}" + ("" if line.get("peer_ok", True) else " (wrong)")
        rows.append([line["shape"], line["dtype"], line["layout"],
                     extents(line), line["kernel"], str(line["stages"]), how(line),
                     f"{line['median_us']:.1f}", f"{line['tflops']:.0f}", peer,
                     f"{line['ratio_first']:.2f}", f"{line['ratio_best']:.2f}",
                     "" if padded is None else f"{padded:.2f}"])
    header = ["shape", "dtype", "layout", "M N K", "kernel", "S", "parts", "us", "TFLOP/s", "peer us",
              "first / ours", "best / ours", "padded first / ours"]
    return table(header, rows) + measured_on(list(newest.values()))


def extents(line):
    batch = line.get("batch", 1)
    return f"{line['m']} {line['n']} {line['k']}" + (f", {batch} times" if batch > 1 else "")


def how(line):
    """The parts of a plan; "pairs" of blocks share panels."""
    words = [] if line["split_k"] == 1 else [str(line["split_k"])]
    return " ".join(words + ["pair"] * line["pair"])


def shape_classes(_):
    """Geometric mean and worst of the ratios of "shapes", by class."""
    lines = list({(line["shape"], line["dtype"]): line for line in single_products()}.values())
    half = [line for line in lines if line["dtype"] in ("bf16", "fp16")]
    odd = [line for line in half if "ratio_padded_first" in line]
    few = [line for line in half if line["m"] <= 128]
    classes = [
        ("bf16 and fp16, aligned rows", "ratio_first", [line for line in half if line not in odd]),
        ("bf16 and fp16, odd rows, peer on the caller's", "ratio_first", odd),
        ("bf16 and fp16, odd rows, peer on padded ones", "ratio_padded_first", odd),
        ("bf16 and fp16, M of 128 and less", "ratio_first", few),
        ("fp32", "ratio_first", [line for line in lines if line["dtype"] == "fp32"]),
    ]
    rows = []
    for name, key, group in classes:
        worst = min(group, key=lambda line: line[key])
        mean = geometric_mean([line[key] for line in group])
        rows.append([name, str(len(group)), f"{mean:.3f}", f"{worst[key]:.2f}", worst["shape"]])
    return table(["class", "shapes", "geometric mean", "worst", "which"], rows) + measured_on(lines)


def plan_gains(name):
    """The fastest plan of each way of working, for each shape of the run in FILE."""
    lines = load("plans", name)
    whole = lambda line: line["kernel"].startswith("tma_wgmma") and line["split_k"] == 1
    ways = {
        "whole tiles": lambda line: whole(line) and not line["pair"],
        "pairs": lambda line: whole(line) and line["pair"],
        "ping-pong": lambda line: line["kernel"].startswith("tma_pingpong"),
        "parts": lambda line: line["split_k"] > 1 and not line["pair"],
        "parts, pairs": lambda line: line["split_k"] > 1 and line["pair"],
        "gemv": lambda line: line["kernel"] == "gemv",
    }
    rows = []
    for shape in dict.fromkeys(line["shape"] for line in lines):
        group = [line for line in lines if line["shape"] == shape]
        first = group[0]
        row = [shape, f"{first['m']} {first['n']} {first['k']}"]
        for way in ways.values():
            times = [line["us"] for line in group if way(line)]
            row.append(f"{min(times):.1f}" if times else "")
        picked = min(group, key=lambda line: line["rank"])
        row += [f"{picked['us']:.1f}", f"{min(line['us'] for line in group) / picked['us']:.3f}"]
        rows.append(row)
    header = ["shape", "M N K", *ways, "picked", "fastest / picked"]
    return table(header, rows) + measured_on(lines)


def sum_spread(_):
    """Parts before and after the sum's blocks were spread, in one run: argument none.

    The file holds the plans of two commits in turns; the fastest of each plan's times counts.
    """
    lines = [line for line in load("plans", "h200-sum") if line["split_k"] > 1]
    before, after = dict.fromkeys(line["commit"] for line in lines)
    times = {}
    for line in lines:
        extents_key = (line["m"], line["n"], line["k"])
        plan = (line["kernel"], line["stages"], line["split_k"], line["pair"])
        of_plan = times.setdefault(extents_key, {}).setdefault(plan, {})
        of_plan[line["commit"]] = min(line["us"], of_plan.get(line["commit"], math.inf))
    rows = []
    for (m, n, k), plans in times.items():
        both = [plan for plan in plans.values() if len(plan) == 2]
        ratios = [plan[after] / plan[before] for plan in both]
        best = [min(plan[commit] for plan in both) for commit in (before, after)]
        rows.append([f"{m} {n} {k}", str(len(both)), f"{best[0]:.2f}", f"{best[1]:.2f}",
                     f"{geometric_mean(ratios):.3f}", f"{min(ratios):.2f}"])
    header = ["M N K", "plans", "fastest before, us", "after", "after / before, geometric mean",
              "least"]
    return table(header, rows) + measured_on(lines)


def fixed_stages(_):
    """A stage count that the compiler knew against one that came with the launch."""
    lines = load("fixed-stages")
    rows = [[line["shape"], line["kernel"], str(line["stages"]), f"{line['launch_ratio']:.4f}",
             f"{line['fixed_ratio']:.4f}", f"{line['fixed_ratio'] / line['launch_ratio']:.4f}"]
            for line in lines]
    return table(["shape", "kernel", "S", "peer / launch argument", "peer / constant",
                  "gain of the constant"], rows) + measured_on(lines)


TABLES = {"shapes": shapes, "batches": batches, "calibration": calibration, "stage-sweep": stage_sweep, "selection": selection,
          "probe-cost": probe_cost, "stall-check": stall_check, "scrape-load": scrape_load,
          "latency": latency, "shape-classes": shape_classes, "plan-gains": plan_gains,
          "fixed-stages": fixed_stages, "sum-spread": sum_spread, "sampling-cost": sampling_cost,
          "lab-model": lab_model, "lab-ladder": lab_ladder, "lab-residency": lab_residency, "lab-hazard": lab_hazard}


def render(text):
    """`text` with every table made anew."""

    def replace(match):
        name, _, argument = match[2].partition(" ")
        return match[1] + TABLES[name](argument) + match[4]

    return BLOCK.sub(replace, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail on a stale table")
    check = parser.parse_args().check
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        old = path.read_text()
        new = render(old)
        if new != old:
            stale.append(name)
            if not check:
                path.write_text(new)
    if check and stale:
        print("stale tables (run tests/bench/report.py):", ", ".join(stale), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
