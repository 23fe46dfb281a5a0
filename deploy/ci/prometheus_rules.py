#!/usr/bin/env python3
"""Checks of deploy/prometheus that promtool does not make; prints each breach and exits 1 if there is one.

  deploy/ci/prometheus_rules.py ROOT [SCRAPE]

Rules, tests and runbooks may name only what gemmd exports: metrics and labels by tests/golden/metrics.txt, values
of labels by SCRAPE, the text of /metrics of a server; those of launches, which it has of what it has launched
alone, by tests/golden/launch_labels.txt; the reasons of a GPU, which a server on the CPU has none of, by the source. Every alert has a runbook, a test in which it fires
and one in which it does not; every recording rule has a test of its value.
"""

import collections
import pathlib
import re
import sys

import yaml

from played_gpu import throttle_reasons
from promql import GROUPINGS, Expression, matches

RUNBOOKS = "deploy/prometheus/runbooks.md"
RUNBOOK_PARTS = ("Means", "See", "Causes", "Do")
SEVERITIES = ("critical", "warning", "info")

# Of every target, and put there by Prometheus.
TARGET_LABELS = {"job", "instance"}
TARGET_METRICS = {"up", "scrape_duration_seconds", "scrape_samples_scraped",
                  "scrape_samples_post_metric_relabeling", "scrape_series_added"}


def selects(wanted, series):
    """Whether the selector `wanted` finds `series`, of which every label is given."""
    labels = {label: value for label, _, value in series.matchers}
    return wanted.name == series.name and all(matches(matcher, labels) for matcher in wanted.matchers)


def level(record):
    return set(record.split(":")[0].split("_"))


class Exported:
    """Which metrics there are, their labels, and the values of those where a scrape or `launches` tells."""

    def __init__(self, golden, launches, scrape, jobs, records, reasons):
        self.of = {name: TARGET_LABELS for name in TARGET_METRICS}
        self.of.update((name, level(name)) for name in records)
        for line in golden.splitlines():
            name, kind, *labels = line.split()
            labels = TARGET_LABELS | set(labels[0].split(",") if labels else ())
            if kind == "histogram":
                self.of.update({f"{name}_sum": labels, f"{name}_count": labels,
                                f"{name}_bucket": labels | {"le"}})
            else:
                self.of[name] = labels
        self.values = collections.defaultdict(set)  # by (metric, label), and by ("", label) of any
        values = [(name, label, value) for name, labels in re.findall(r"^(\w+)\{(.*)\} ", scrape, re.M)
                  for label, value in re.findall(r'(\w+)="((?:\\.|[^"\\])*)"', labels)]
        values += [(name, label, value) for name, label, *all_there_are in map(str.split, launches.splitlines())
                   for value in all_there_are]
        for name, label, value in values:
            self.values[name, label].add(value)
            self.values["", label].add(value)
        self.values["", "job"] = set(jobs)
        self.values["gemmd_gpu_throttle_reason", "reason"] |= reasons

    def may_be(self, name, label, operator, value):
        values = self.values.get((name, label)) or self.values.get(("", label))
        # What is of one server is in no other's scrape.
        if not values or label in ("instance", "device", "name", "uuid", "version", "revision"):
            return True
        if operator in ("=", "!="):
            return value in values
        return all(any(re.fullmatch(part, v) for v in values) for part in value.split("|"))

    def problems_of_series(self, series):
        labels = self.of.get(series.name)
        if labels is None:
            yield f"gemmd does not export {series.name}"
            return
        for label, operator, value in series.matchers:
            if label not in labels:
                yield f"{series.name} has no label {label}"
            elif not self.may_be(series.name, label, operator, value):
                yield f"{series.name} never has {label}{operator}\"{value}\""

    def problems_of(self, expression):
        for series in expression.series:
            yield from self.problems_of_series(series)
        for labels in expression.labels:
            sets = [self.of.get(name, set()) for name in expression.names_in(labels.operand)]
            known = set.intersection(*sets) if labels.word in GROUPINGS and sets else set().union(*sets)
            for label in labels.names:
                if label not in known:
                    yield f"{labels.word} ({label}): what it is applied to has no such label"
        for operand in expression.means:
            for name in expression.names_in(operand):
                if ":ratio" in name:
                    yield f"a mean of the ratio {name}: divide sums instead"


class Folder:
    """deploy/prometheus of a source tree, read."""

    def __init__(self, root, scrape):
        folder = (root / RUNBOOKS).parent
        config = yaml.safe_load((folder / "prometheus.yml").read_text())
        self.runbooks = (root / RUNBOOKS).read_text()
        self.rule_files = config["rule_files"]
        files = {path.name: yaml.safe_load(path.read_text()) for path in folder.glob("*.yml")}
        self.tests = {name: files[name] for name in files if name.endswith("_test.yml")}
        self.unused = set(files) - set(self.tests) - set(self.rule_files) - {"prometheus.yml"}
        rules = [rule for name in self.rule_files for group in files[name]["groups"]
                 for rule in group["rules"]]
        self.records = {rule["record"]: Expression(rule["expr"]) for rule in rules if "record" in rule}
        self.alerts = {rule["alert"]: Expression(rule["expr"]) for rule in rules if "alert" in rule}
        self.alert_rules = {rule["alert"]: rule for rule in rules if "alert" in rule}
        golden = root / "tests/golden"
        self.exported = Exported((golden / "metrics.txt").read_text(), (golden / "launch_labels.txt").read_text(), scrape,
                                 [job["job_name"] for job in config["scrape_configs"]], self.records,
                                 throttle_reasons(root))

    def check(self):
        for name in self.unused:
            yield f"{name}: neither a test nor among the rule_files of prometheus.yml"
        for name, expression in (self.records | self.alerts).items():
            for problem in self.exported.problems_of(expression):
                yield f"{name}: {problem}"
        for name in self.records:
            if not re.fullmatch(r"[a-z_]+:\w+:\w+", name):
                yield f"{name}: a record is named LEVEL:METRIC:OPERATION"
        yield from self._check_runbooks()
        yield from self._check_tests()

    def _check_runbooks(self):
        sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", self.runbooks, re.M | re.S))
        for code in re.findall(r"`([^`]+)`", self.runbooks):
            if "gemmd_" in code:
                yield from (f"{RUNBOOKS}: {p}" for p in self.exported.problems_of(Expression(code)))
        for name in sections.keys() - self.alerts.keys():
            yield f"{RUNBOOKS}: {name} is no alert"
        for name, rule in self.alert_rules.items():
            if rule.get("labels", {}).get("severity") not in SEVERITIES:
                yield f"{name}: severity is none of {', '.join(SEVERITIES)}"
            for part in ("summary", "description"):
                if not rule.get("annotations", {}).get(part):
                    yield f"{name}: no {part}"
            url = f"{RUNBOOKS}#{name.lower()}"
            if rule.get("annotations", {}).get("runbook_url") != url:
                yield f"{name}: runbook_url is not {url}"
            if name not in sections:
                yield f"{name}: no runbook"
                continue
            for part in RUNBOOK_PARTS:
                if f"**{part}.**" not in sections[name]:
                    yield f"{name}: its runbook has no '**{part}.**'"

    def _is_fed(self, expression, given):
        """Whether every selector of an expression, through records, finds one of the series."""
        return all(self._is_fed(self.records[wanted.name], given) if wanted.name in self.records
                   else any(selects(wanted, series) for series in given)
                   for wanted in expression.series)

    def _check_tests(self):
        fired, silent, valued = set(), set(), set()
        for file, content in self.tests.items():
            for test in content["tests"]:
                given = [Expression(s["series"]).series[0] for s in test["input_series"]]
                for series in given:
                    yield from (f"{file}: {problem}" for problem in self._check_input(series))
                for case in test.get("alert_rule_test") or ():
                    name = case["alertname"]
                    if name not in self.alerts:
                        yield f"{file}: {name} is no alert"
                    elif case.get("exp_alerts"):
                        fired.add(name)
                    # An alert that has nothing to go by says nothing of its limit.
                    elif self._is_fed(self.alerts[name], given):
                        silent.add(name)
                for case in test.get("promql_expr_test") or ():
                    read = {series.name for series in Expression(case["expr"]).series}
                    for sample in case.get("exp_samples") or ():
                        labels = set(re.findall(r'(\w+)="', sample["labels"])) - {"__name__"}
                        valued.update(name for name in read if self.exported.of.get(name) == labels)
        for name in self.alerts.keys() - fired:
            yield f"{name}: no test in which it fires"
        for name in self.alerts.keys() - silent:
            yield f"{name}: no test in which it has its metrics and does not fire"
        for name in self.records.keys() - valued:
            yield f"{name}: no test of its value, with the labels of its level"

    def _check_input(self, series):
        yield from self.exported.problems_of_series(series)
        labels = {label for label, _, _ in series.matchers}
        missing = self.exported.of.get(series.name, set()) - labels
        if missing:
            yield f"{series.name} has a label {', '.join(sorted(missing))} too"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    scrape = pathlib.Path(sys.argv[2]).read_text() if len(sys.argv) == 3 else ""
    try:
        folder = Folder(pathlib.Path(sys.argv[1]), scrape)
        problems = sorted(set(folder.check()))
    except ValueError as error:
        sys.exit(str(error))
    if problems:
        sys.exit("\n".join(problems))
    tests = sum(len(content["tests"]) for content in folder.tests.values())
    print(f"prometheus: {len(folder.records)} records, {len(folder.alerts)} alerts, {tests} tests")


main()
