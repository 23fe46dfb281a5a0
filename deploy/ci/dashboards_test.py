#!/usr/bin/env python3
"""Checks every expression of the dashboards and of the rule files against a real server.

  deploy/ci/dashboards_test.py [BIN]        gemmd and gemmctl in BIN (default: build/release/bin)
  deploy/ci/dashboards_test.py --self-test  prove that every check can fail; needs no gemmd

A Prometheus scrapes a gemmd on the CPU under load, and an exporter that plays a GPU: it has the same
gemmd's series, and those of some CUDA kernels moving. Each expression must parse, name metrics
and labels that are exported, and show what the load has moved; what it cannot move, a panel explains
in deploy/grafana/dashboards.py. Needs prometheus (deploy/packages.sh test).
"""

import copy
import dataclasses
import json
import math
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time

import played_gpu
import promql

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy" / "grafana"))
import dashboards  # noqa: E402
import monitored  # noqa: E402
import rendering  # noqa: E402

# What Grafana would put in: windows of several scrapes, and short, so that the test is too.
FILLED_IN = {"__rate_interval": "3s", "__range": "5s", "kernel": ".*"}
# Recording rules that this load leaves without a sample: name -> why.
UNRECORDED = {}


# Small budgets, so that little load fills them.
FLAGS = ("--backend=cpu", "--lanes", "1", "--cpu-threads", "1", "--max-queue", "2", "--max-queue-bytes", "48MiB")


@dataclasses.dataclass(frozen=True)
class Shown:
    """An expression of a panel."""
    where: str
    expr: str
    legend: str = ""
    table: bool = False
    played: bool = False  # the played GPU moves it, not the load
    still: bool = False  # zero will do


def shown_in(board, panels):
    """The expressions of a dashboard's JSON; `panels` has their source, by title."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            source = panels[panel["title"]]
            yield Shown(f"{board['title']} / {panel['title']} / {target['refId']}", target["expr"],
                        target["legendFormat"], panel["type"] == "table", bool(source.absent), bool(source.still))


def form_problems(board):
    """Of panels that do not say how to read them."""
    for panel in board["panels"]:
        has = {"description": panel.get("description"),
               "unit": panel.get("fieldConfig", {}).get("defaults", {}).get("unit"),
               "legend": all(target["legendFormat"] for target in panel.get("targets", ()))}
        for what in (name for name, there in has.items() if panel["type"] != "row" and not there):
            yield f"{board['title']} / {panel['title']}: no {what}"
        try:
            rendering.value_text(1, has["unit"] or "none")
        except ValueError as unknown:
            yield f"{board['title']} / {panel['title']}: {unknown} in deploy/grafana/rendering.py"


def variable_problems(board, series):
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            for problem in promql.problems(f"count by ({label}) ({filled_in(selector, '.*')})", series):
                yield f"{board['title']} / variable {variable['name']}: {problem}"


def filled_in(expr, instance):
    return rendering.filled_in(expr, {**FILLED_IN, "instance": instance})


def data_problem(server, shown, expr, start):
    """What `expr` lacks of what the load should show, over the time since `start`; None for nothing."""
    answer = server.ask("query_range", query=expr, start=start, end=time.time(), step=monitored.SCRAPE_MS / 1000)
    if answer["status"] != "success":
        return answer["error"]
    lines = answer["data"]["result"]
    values = [value for line in lines for value in map(float, (text for _, text in line["values"]))]
    if not any(map(math.isfinite, values)):
        return "no data"
    if not shown.still and not any(0 < value < math.inf for value in values):
        return "nothing above zero"
    wanted = set() if shown.table else set(re.findall(r"{{(\w+)}}", shown.legend))
    if lacking := wanted - set(lines[0]["metric"]):
        return f"its series have no label {', '.join(sorted(lacking))}, which its legend names"
    return None


def check_shown(server, all_shown, instances, start, until):
    """Problems of expressions, which have `until` to show data. `instances`: of the load and of the play."""
    found, pending, series = [], [], server.series()
    for shown in all_shown:
        expr = filled_in(shown.expr, instances[shown.played])
        parsed = server.ask("format_query", query=expr)
        wrong = [parsed["error"]] if parsed["status"] != "success" else promql.problems(expr, series)
        found += [f"{shown.where}: {problem}: {expr}" for problem in wrong]
        if not wrong:
            pending.append((shown, expr))
    while True:
        lacking = [(shown, expr, problem) for shown, expr in pending
                   if (problem := data_problem(server, shown, expr, start))]
        if not lacking or time.monotonic() >= until:
            return found + [f"{shown.where}: {problem}: {expr}" for shown, expr, problem in lacking]
        pending = [(shown, expr) for shown, expr, _ in lacking]
        time.sleep(monitored.POLL_S)


def stall_problems(server, by_kernel, of_all, instance):
    """Of the two expressions of full stalls: the played numbers are known, and theirs are to be seen."""
    def values(expr):
        answer = server.ask("query", query=filled_in(expr, instance))
        for one in answer.get("data", {}).get("result", ()):
            yield (one["metric"].get("kernel"), one["metric"].get("stages")), float(one["value"][1])

    seen = dict(values(by_kernel))
    known = {of: play.full for of, play in played_gpu.PLAYED.items()} | {(None, None): played_gpu.full_of_all()}
    seen |= dict(values(of_all))
    for of, value in known.items():
        if not math.isclose(seen.get(of, math.nan), value, rel_tol=0.02):
            yield f"full stalls of {of[0] or 'all kernels'}: {seen.get(of)}, where {value:.3f} is played"


def reason_problems(server, by_kernel, of_all, instance):
    """Of the two expressions of reasons: they are shares of the samples that are played, and add up to one."""
    known = {key: played_gpu.share_of(key[1], key[0]) for key in played_gpu.PLAYED_STALLS}
    known |= {(None, reason): played_gpu.share_of(reason) for _, reason in played_gpu.PLAYED_STALLS}
    seen = {}
    for expr in (by_kernel, of_all):
        answer = server.ask("query", query=filled_in(expr, instance))
        for one in answer.get("data", {}).get("result", ()):
            seen[one["metric"].get("kernel"), one["metric"].get("reason")] = float(one["value"][1])
    for of, value in known.items():
        if not math.isclose(seen.get(of, math.nan), value, rel_tol=0.02):
            yield f"samples of {of[1]} in {of[0] or 'all kernels'}: {seen.get(of)}, where {value:.3f} is played"


def rule_files(root):
    """Those with groups of rules; tests of rules and configurations have none."""
    return [path for path in sorted((root / "deploy" / "prometheus").rglob("*.yml"))
            if re.search(r"^groups:", path.read_text(), re.M)]


def rule_problems(server):
    """Of all rules that Prometheus has; it has parsed them. An alert may be silent, a record not."""
    rules = [rule for group in server.ask("rules")["data"]["groups"] for rule in group["rules"]]
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording"}
    series = server.series()
    for rule in rules:
        found = promql.problems(rule["query"], series, recorded)
        if rule["health"] != "ok":
            found.append(rule.get("lastError") or "not evaluated")
        if rule["name"] in recorded - series.keys() - UNRECORDED.keys():
            found.append("no data")
        yield from (f"rule {rule['name']}: {problem}: {rule['query']}" for problem in found)


def settled(problems_of, until):
    """What problems_of() returns once that is nothing, or at `until`."""
    while (problems := list(problems_of())) and time.monotonic() < until:
        time.sleep(monitored.POLL_S)
    return problems


def write_matrix(path, extent):
    """A square of float32 ones."""
    path.write_bytes(monitored.npy_header("<f4", extent, extent) + b"\x00\x00\x80?" * extent**2)


def load(binaries, address, folder):
    """Keeps the server busy, and calls that it refuses or that are given up coming."""
    write_matrix(folder / "large.npy", 1500)
    write_matrix(folder / "excessive.npy", 2100)  # with its product more than may wait
    gemmctl = [binaries / "gemmctl", "--server", address]
    large = ["matmul", folder / "large.npy", folder / "large.npy", "-o"]
    return monitored.repeating([
        gemmctl + ["check", "--count", "20", "--max-extent", "200"],
        gemmctl + large + [folder / "first.npy"],
        gemmctl + large + [folder / "second.npy"],
        gemmctl + ["matmul", folder / "excessive.npy", folder / "excessive.npy", "-o", folder / "never.npy"],
        gemmctl + ["--timeout", "0.2"] + large + [folder / "late.npy"],
        gemmctl + ["tune", "--shape", "256x256x256", "--dtype", "f32", "--budget", "500ms"],
    ])


def main_test(binaries):
    if stale := dashboards.stale():
        sys.exit(stale)
    if not all((binaries / name).exists() for name in ("gemmd", "gemmctl")):
        sys.exit(f"no gemmd and gemmctl in {binaries}")
    boards = [json.loads(path.read_text()) for path in sorted(dashboards.FOLDER.glob("*.json"))]
    panels = {d.title: {p.title: p for row in d.rows for p in row.panels} for d in dashboards.DASHBOARDS}
    shown = [one for board in boards for one in shown_in(board, panels[board["title"]])]
    expr_of = {one.where: one.expr for one in shown}
    rules = rule_files(ROOT)
    until = time.monotonic() + monitored.DEADLINE_S
    with tempfile.TemporaryDirectory() as name:
        folder, start = pathlib.Path(name), time.time()
        with monitored.gemmd(binaries, folder, *FLAGS) as (grpc, metrics), \
                load(binaries, grpc, folder), \
                monitored.serving(played_gpu.playing(
                    lambda: monitored.get(metrics, "/metrics") or "")) as played, \
                monitored.prometheus((metrics, played), rules, folder) as server:
            monitored.wait_for("both are scraped", lambda: len(
                server.ask("query", query="gemmd_health")["data"]["result"]) == 2)
            problems = [problem for board in boards for problem in form_problems(board)]
            problems += [problem for board in boards for problem in variable_problems(board, server.series())]
            problems += check_shown(server, shown, (metrics, played), start, until)
            problems += settled(lambda: stall_problems(
                server, expr_of["gemmd: kernels and stalls / Waits for a stage to arrive / A"],
                expr_of["gemmd: kernels and stalls / Stalls of all chosen kernels / A"], played), until)
            problems += settled(lambda: reason_problems(
                server, expr_of["gemmd: kernels and stalls / Reasons of each kernel / A"],
                expr_of["gemmd: kernels and stalls / What warps wait for / A"], played), until)
            problems += settled(lambda: rule_problems(server), until)
    if problems:
        sys.exit("\n".join(problems))
    print(f"dashboards: {len(shown)} expressions of {len(boards)} dashboards show data, "
          f"{len(rules)} rule files hold")


# --- the self-test

# What a gemmd exports, as far as the self-test asks.
EXPORTED = 'gemmd_health 1\ngemmd_rejected_total{reason="draining"} 0\n'

LAUNCHES = 'rate(gemmd_kernel_launches_total{instance=~"$instance"}[$__rate_interval])'
FAIR = (
    Shown("a health", 'min(gemmd_health{instance=~"$instance"})', "health"),
    Shown("a rate", f"sum by (kernel, stages) ({LAUNCHES})", "{{kernel}}, {{stages}}"),
    Shown("a join", f"sum by (kernel) ({LAUNCHES}) / on () group_left () sum({LAUNCHES})", "{{kernel}}"),
    Shown("a zero", "sum by (reason) (gemmd_rejected_total)", "{{reason}}", still=True),
    Shown("a record", "a:recorded:ratio + on (kernel) group_left () a:recorded:ratio", "{{kernel}}"),
)
# Expression -> what is to be said of it.
BREACHES = {
    Shown("syntax", "sum(rate(gemmd_health"): "parse error",
    Shown("metric", "rate(gemmd_gone_total[3s])"): "no metric gemmd_gone_total",
    Shown("label", 'gemmd_health{kernel="a"}'): "gemmd_health has no label kernel",
    Shown("value", 'gemmd_rejected_total{reason="bored"}'): "no series of gemmd_rejected_total has reason=bored",
    Shown("grouping", "sum by (shape) (gemmd_health)"): "grouped or joined by shape",
    Shown("many", "gemmd_kernel_launches_total * on (kernel) gemmd_kernel_launches_total"): "many-to-many",
    Shown("nothing", "gemmd_health > 5"): "no data",
    Shown("not a number", "gemmd_rejected_total / gemmd_rejected_total", still=True): "no data",
    Shown("zero", "gemmd_rejected_total"): "nothing above zero",
    Shown("legend", "sum(gemmd_health)", "{{kernel}}"): "no label kernel",
}
RULES = """groups:
- name: self-test
  interval: 5m
  rules:
  - {record: 'a:recorded:ratio', expr: sum by (kernel) (gemmd_kernel_launches_total)}
  - {record: gone, expr: gemmd_gone}
  - {record: silent, expr: gemmd_health > 5}
  - {alert: Label, expr: 'gemmd_health{kernel="a"} == 0'}
  - {alert: Many, expr: gemmd_kernel_launches_total * on (kernel) gemmd_kernel_launches_total}
  - {alert: Fair, expr: gemmd_health == 0}
"""
RULE_BREACHES = ("rule gone: no metric gemmd_gone", "rule gone: no data", "rule silent: no data",
                 "rule Label: gemmd_health has no label kernel", "rule Many: found duplicate series")
FULL = 'sum by (kernel, stages) (rate(gemmd_kernel_stall_cycles_total{wait="full"}[3s]))'
SAMPLES = "rate(gemmd_kernel_stall_samples_total[3s])"
REASON_OF_KERNEL = f"sum by (kernel, reason) ({SAMPLES}) / on (kernel) group_left () sum by (kernel) ({SAMPLES})"
REASON_OF_ALL = f"sum by (reason) ({SAMPLES}) / on () group_left () sum({SAMPLES})"
LOOP = 'sum by (kernel, stages) (rate(gemmd_kernel_cycles_total{part="mainloop"}[3s]))'


def expect(problems, *wanted):
    problems = list(problems)
    if len(problems) != len(wanted) or not all(any(w in p for p in problems) for w in wanted):
        sys.exit(f"self-test: of {list(wanted)} this was seen: {problems}")


def prove_board():
    board = dashboards.dashboard_json(dashboards.SERVICE)
    expect(form_problems(board))
    for what, spoil in {"description": lambda p: p.pop("description"),
                        "unit": lambda p: p["fieldConfig"]["defaults"].pop("unit"),
                        "legend": lambda p: p["targets"][0].update(legendFormat=""),
                        "unit furlong": lambda p: p["fieldConfig"]["defaults"].update(unit="furlong")}.items():
        spoilt = copy.deepcopy(board)
        spoil(spoilt["panels"][1])
        expect(form_problems(spoilt), f"no {what}")
    expect(variable_problems(board, {"gemmd_health": [{"job": "a"}]}), "grouped or joined by instance")
    expect(variable_problems(board, {"gemmd_health": [{"instance": "a"}]}))


def prove_rendering():
    """Of each function what it returns, and that a variable without a value is seen."""
    board = {"templating": {"list": [
        {"name": "datasource", "type": "datasource"},
        {"name": "instance", "type": "query", "allValue": ".*"},
        {"name": "kernel", "type": "query", "allValue": ".+"}]}}
    window = rendering.Window(start=1000, end=1120, scrape_s=0.5)
    day = rendering.Window(start=0, end=86400, scrape_s=15)
    returned = {
        "a $b ${b} $bc$c": rendering.filled_in('$a{b="${b}"}[$c]', {"a": "x", "b": "$c", "c": "1s"}) == 'x{b="$c"}[1s]',
        "all": rendering.chosen(board, {}) == {"instance": ".*", "kernel": ".+"},
        "one": rendering.chosen(board, {"instance": ["a.b:1"]})["instance"] == r"a\\.b:1",
        "two": rendering.chosen(board, {"kernel": ["a", "b"]})["kernel"] == "(a|b)",
        "window": window.variables == {"__interval": "500ms", "__range": "120000ms", "__rate_interval": "2000ms"},
        "day": day.variables == {"__interval": "288000ms", "__range": "86400000ms", "__rate_interval": "303000ms"},
        "legend": rendering.legend("{{a}}, {{ b }}: {{c}}", {"a": "1", "b": "{{a}}"}) == "1, {{a}}: c",
        "texts": [rendering.value_text(*one) for one in (
            (0, "s"), (1.5e-6, "s"), (0.0123, "s"), (59, "s"), (90, "s"), (0.25, "percentunit"), (1536, "bytes"),
            (999, "flops"), (7.1e14, "flops"), (1.5e9, "hertz"), (1e9, "none"), (0.05, "none"), (3e6, "cps"))] ==
        ["0 s", "1.5 µs", "12.3 ms", "59 s", "1.5 min", "25 %", "1.5 KiB", "999 FLOP/s", "710 TFLOP/s", "1.5 GHz",
         "1000000000", "0.05", "3000 K c/s"],
    }
    expect(what for what, right in returned.items() if not right)
    try:
        expect([rendering.filled_in("$gone", {"g": "1"})], "to be refused")
    except ValueError as refusal:
        expect([str(refusal)], "no variable $gone")


def prove_played():
    """A gauge that is exported and not played, or played and not exported, is seen; so is an unknown launch."""
    expect(played_gpu.unknown_labels(['gemmd_kernel_launches_total{kernel="gemv",stages="9"} 1']), 'stages="9"')
    for name in ("gemmd_gpu_power_watts", "gemmd_gpu_mood_ratio"):
        gauges = dict(played_gpu.GAUGES)
        played_gpu.GAUGES.update({name: 1})
        if name in gauges:
            del played_gpu.GAUGES[name]
        try:
            expect([list(played_gpu.gauges())], "to be refused")
        except ValueError as refusal:
            expect([str(refusal)], name)
        played_gpu.GAUGES.clear()
        played_gpu.GAUGES.update(gauges)


def self_test():
    prove_board()
    prove_played()
    prove_rendering()
    with tempfile.TemporaryDirectory() as name, \
            monitored.serving(played_gpu.playing(lambda: EXPORTED)) as exporter:
        folder, start = pathlib.Path(name), time.time()
        rules = folder / "deploy" / "prometheus" / "rules"
        rules.mkdir(parents=True)
        (rules / "a.yml").write_text(RULES)
        (rules.parent / "a_test.yml").write_text("rule_files: [rules/a.yml]\n")
        with monitored.prometheus((exporter,), rule_files(folder), folder) as server:
            monitored.wait_for("it records", lambda: "a:recorded:ratio" in server.series())
            until = time.monotonic() + monitored.DEADLINE_S
            expect(check_shown(server, FAIR, (exporter, exporter), start, until))
            for breach, wanted in BREACHES.items():
                expect(check_shown(server, [breach], (exporter, exporter), start, until=0), wanted)
            expect(stall_problems(server, f"{FULL} / {LOOP}", f"sum({FULL}) / sum({LOOP})", exporter))
            expect(stall_problems(server, f"{FULL} / {LOOP}", f"avg({FULL} / {LOOP})", exporter), "all kernels")
            expect(settled(lambda: reason_problems(server, REASON_OF_KERNEL, REASON_OF_ALL, exporter),
                           time.monotonic() + monitored.DEADLINE_S))
            expect(reason_problems(server, REASON_OF_KERNEL, f"avg by (reason) ({REASON_OF_KERNEL})", exporter),
                   *(f"samples of {reason} in all" for reason in ("long_scoreboard", "barrier", "selected")))
            expect(settled(lambda: rule_problems(server), time.monotonic() + 2), *RULE_BREACHES)
    print(f"dashboards: {len(BREACHES) + len(RULE_BREACHES) + 11} breaches are caught, fair expressions pass")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends
    if not shutil.which("prometheus"):
        sys.exit("no prometheus; run deploy/packages.sh test")
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    try:
        main_test(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "release" / "bin"))
    except ValueError as problem:
        sys.exit(str(problem))


main()
