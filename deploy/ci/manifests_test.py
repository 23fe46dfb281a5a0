#!/usr/bin/python3
"""Checks the files that deploy gemmd: deploy/compose.yaml and what it mounts.

  deploy/ci/manifests_test.py [GEMMD]      with the settings of this gemmd (default: build/release/bin/gemmd)
  deploy/ci/manifests_test.py --self-test  prove that every check can fail; needs no gemmd

The document has the form of its kind (schemas.py), and what it says of gemmd is so: settings, ports, images, budgets,
the time to drain, files that are mounted. The interpreter is the distribution's, for which deploy/packages.sh lint
installs the modules.
"""

import pathlib
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
import yaml  # noqa: E402

import compose_checks  # noqa: E402
import deployed  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def compose_problems(facts):
    try:
        return list(compose_checks.Compose(facts).problems())
    except yaml.YAMLError as error:
        return [f"{compose_checks.FILE}: {' '.join(str(error).split())}"]


def main_test(gemmd):
    if not gemmd.exists():
        sys.exit(f"no gemmd at {gemmd}")
    if problems := compose_problems(deployed.Facts(ROOT, deployed.settings_by(gemmd))):
        sys.exit("\n".join(problems))
    print("manifests: compose holds")


# --- the self-test

# Of gemmd --print-config, as far as the self-test asks.
PRINTED = {"listen": "127.0.0.1:50051", "metrics": "127.0.0.1:9464", "backend": "auto", "cpu-threads": "0",
           "max-queue-bytes": "2GiB", "max-reply-bytes": "2GiB", "pinned-pool": "1GiB", "drain-timeout": "30000ms",
           "tuning-file": "", "log-format": "console"}
TREE = ("Dockerfile", "deploy/compose.yaml", "deploy/compose", "deploy/grafana",
        "deploy/prometheus", "proto/gemmd/v1/gemm.proto", "server/rpc/rpc_server.cc", "tests/golden/metrics.txt")

COMPOSE, TARGETS, SOURCES = "deploy/compose.yaml", "deploy/compose/targets.json", "deploy/compose/datasources.yml"
# Each: a file, what to put there for what, and a word of what is then said.
BREACHES = (
    # The form of compose.
    (COMPOSE, "stop_grace_period:", "stop_grace:", "stop_grace"),
    (COMPOSE, "restart: unless-stopped", "restart: [always]", "is not of type"),
    (COMPOSE, 'GEMMD_BACKEND: cpu\n', 'GEMMD_BACKEND: cpu\n      GEMMD_BACKEND: cuda\n', "twice"),
    (COMPOSE, "${CPU_LIMIT:-4}", "${CPU_LIMIT}", "CPU_LIMIT: no default"),
    # Its meaning.
    (COMPOSE, "GEMMD_CPU_THREADS", "GEMMD_BLAS_THREADS", "GEMMD_BLAS_THREADS: no such setting"),
    (COMPOSE, "GEMMD_CPU_THREADS: \"${CPU_LIMIT:-2}\"", "GEMMD_CPU_THREADS: \"8\"", "8 BLAS threads on 2 CPUs"),
    (COMPOSE, "stop_grace_period: 45s", "stop_grace_period: 30s", "30 s of grace"),
    (COMPOSE, "MEMORY_LIMIT:-16G", "MEMORY_LIMIT:-12G", "bytes of memory"),
    (COMPOSE, ":9464:9464", ":9465:9465", "publishes the ports"),
    (COMPOSE, "aliases: [gemmd]", "aliases: [gemm]", "gemmd, which it scrapes, is not gemmd"),
    (COMPOSE, "profiles: [cpu]", "profiles: [gpu]", "2 services build gemmd"),
    (COMPOSE, "profiles: [cpu]", "profiles: [cup]", "profiles other than"),
    (COMPOSE, "[gpu, compute, utility]", "[gpu, compute]", "the capabilities"),
    (COMPOSE, "image: gemmd:cpu", "image: gemmd:cuda", "without a GPU it takes another"),
    (COMPOSE, "BUILD_BASE: debian:12", "BUILD_BASE: debian:11", "by the Dockerfile with"),
    (COMPOSE, "context: ..", "context: .", "no Dockerfile"),
    (COMPOSE, "GEMMD_BACKEND: cuda", "GEMMD_BACKEND: cpu", "backend cpu with a GPU"),
    (COMPOSE, "GEMMD_TUNING_FILE: /var/lib", "GEMMD_TUNING_FILE: /var/cache", "is in no volume"),
    (COMPOSE, '["tuning-gpu:', '["tuning:', "is not among the volumes"),
    (COMPOSE, 'user: "10001:10001"', 'user: "10002:10001"', "the image's is"),
    (COMPOSE, 'user: "472:0"', 'user: "0:0"', "a number above 0"),
    (COMPOSE, "  read_only: true\n", "", "read_only is not"),
    (COMPOSE, "cap_drop: [ALL]", "cap_drop: [NET_RAW]", "cap_drop is not"),
    (COMPOSE, "no-new-privileges:true", "no-new-privileges:false", "security_opt is not"),
    (COMPOSE, "  restart: unless-stopped\n", "", "no restart"),
    (COMPOSE, "prom/prometheus:v3.5.0", "prom/prometheus:latest", "no fixed tag"),
    (COMPOSE, "memory: 512M, pids: 512", "memory: 512M", "no limit of pids"),
    (COMPOSE, "./prometheus/alerts.yml:", "./prometheus/alert.yml:", "is not there"),
    (COMPOSE, "targets.json:ro", "targets.json", "mounted to be written"),
    (COMPOSE, ":/etc/prometheus/recording.yml", ":/etc/prometheus/record.yml", "recording.yml among its mounts"),
    (COMPOSE, "/etc/prometheus/targets.json:ro", "/etc/prometheus/target.json:ro", "targets.json among its mounts"),
    (COMPOSE, "--config.file=/etc", "--config.file=/var", "among its mounts"),
    (COMPOSE, "dashboards/gemmd:ro", "dashboards/gemm:ro", "where the provider looks"),
    (TARGETS, "9464", "9465", "not the port of /metrics"),
    (SOURCES, "prometheus:9090", "prometheus:9091", "is no service's"),
    (SOURCES, "uid: gemmd-prometheus", "uid: gemmd", "by more than the url"),
    ("Dockerfile", "HEALTHCHECK", "#", "no health check"),
)


def played(env, args):
    """Settings as gemmd would have them. It takes the one flag of the image."""
    given = {name: env.get(f"GEMMD_{name.upper().replace('-', '_')}", value) for name, value in PRINTED.items()}
    return given if set(args) <= {"--allow-remote"} else f"unknown: {args}"


def make_tree(folder):
    for name in TREE:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)


def prove(tree, breaches, problems_of):
    for file, old, new, word in breaches:
        path = tree / file
        text = path.read_text()
        if old not in text:
            sys.exit(f"self-test: {file} has no {old!r} to change")
        path.write_text(text.replace(old, new))
        problems = problems_of(deployed.Facts(tree, played))
        if not any(word in problem for problem in problems):
            sys.exit(f"self-test: {file}: {old!r} to {new!r}: '{word}' was not said, but: {problems}")
        path.write_text(text)


def self_test():
    with tempfile.TemporaryDirectory() as name:
        tree = pathlib.Path(name)
        make_tree(tree)
        if problems := compose_problems(deployed.Facts(tree, played)):
            sys.exit(f"self-test: what is in the tree was refused: {problems}")
        prove(tree, BREACHES, compose_problems)
    print(f"manifests: {len(BREACHES)} breaches are caught")


def main():
    try:
        if sys.argv[1:] == ["--self-test"]:
            self_test()
            return
        main_test(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/bin/gemmd"))
    except FileNotFoundError as error:
        sys.exit(str(error))


main()
