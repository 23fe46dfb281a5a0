#!/usr/bin/env python3
"""Writes base/prometheusrule.yaml, the rules of deploy/prometheus as the Prometheus Operator takes them.

  deploy/kubernetes/prometheusrule.py          write it
  deploy/kubernetes/prometheusrule.py --check  exit 1 where it is not what this would write
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WRITTEN = "deploy/kubernetes/base/prometheusrule.yaml"
RULE_FILES = ("deploy/prometheus/recording.yml", "deploy/prometheus/alerts.yml")
HEAD = """# Written by deploy/kubernetes/prometheusrule.py from the rules in deploy/prometheus: change those, run it.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: gemmd
  labels: {app.kubernetes.io/name: gemmd}
spec:
  groups:
"""


def rendered(root):
    """The files' own lines below `groups:`, so that layout and comments stay theirs."""
    text = HEAD
    for name in RULE_FILES:
        _, found, groups = (root / name).read_text().partition("\ngroups:\n")
        if not found:
            sys.exit(f"{name}: no line 'groups:'")
        text += "".join(f"  {line}".rstrip() + "\n" for line in groups.splitlines())
    return text


def stale(root):
    """Says that the file is not what this would write; nothing where it is."""
    written = root / WRITTEN
    same = written.exists() and written.read_text() == rendered(root)
    return "" if same else f"{WRITTEN}: not from deploy/prometheus; run deploy/kubernetes/prometheusrule.py"


def main():
    if sys.argv[1:] == ["--check"]:
        sys.exit(stale(ROOT) or 0)
    if sys.argv[1:]:
        sys.exit(__doc__)
    (ROOT / WRITTEN).write_text(rendered(ROOT))


if __name__ == "__main__":
    main()
