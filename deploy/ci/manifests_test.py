#!/usr/bin/python3
"""Checks the files that deploy gemmd: deploy/compose.yaml and deploy/kubernetes.

  deploy/ci/manifests_test.py [GEMMD]      with the settings of this gemmd (default: build/release/bin/gemmd)
  deploy/ci/manifests_test.py --self-test  prove that every check can fail; needs no gemmd

Each document has the form of its kind (schemas.py), and what it says of gemmd is so: settings, ports, health names,
metrics, images, budgets, the time to drain, files that are mounted or listed, selectors. Kustomize makes what is
looked at where there is one of version 5 (kustomize, or kubectl); else only the base's files are read. The
interpreter is the distribution's, for which deploy/packages.sh lint installs the modules.
"""

import pathlib
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
import yaml  # noqa: E402

import compose_checks  # noqa: E402
import deployed  # noqa: E402
import kubernetes_checks  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def compose_problems(facts):
    try:
        return list(compose_checks.Compose(facts).problems())
    except yaml.YAMLError as error:
        return [f"{compose_checks.FILE}: {' '.join(str(error).split())}"]


def main_test(gemmd):
    if not gemmd.exists():
        sys.exit(f"no gemmd at {gemmd}")
    facts, command = deployed.Facts(ROOT, deployed.settings_by(gemmd)), kubernetes_checks.kustomize_command()
    problems = compose_problems(facts) + kubernetes_checks.problems(facts, command)
    if problems := problems or list(kubernetes_checks.wait_problems(ROOT)):
        sys.exit("\n".join(problems))
    if not command:
        print("skipped: overlays and ConfigMaps: no kustomize of version 5")
    print("manifests: compose and Kubernetes hold")


# --- the self-test

# Of gemmd --print-config, as far as the self-test asks.
PRINTED = {"listen": "127.0.0.1:50051", "metrics": "127.0.0.1:9464", "backend": "auto", "cpu-threads": "0",
           "max-queue-bytes": "2GiB", "max-reply-bytes": "2GiB", "pinned-pool": "1GiB", "drain-timeout": "30000ms",
           "tuning-file": "", "log-format": "console"}
TREE = ("Dockerfile", "deploy/compose.yaml", "deploy/compose", "deploy/kubernetes", "deploy/grafana",
        "deploy/prometheus", "proto/gemmd/v1/gemm.proto", "server/rpc/rpc_server.cc", "tests/golden/metrics.txt")

COMPOSE, TARGETS, SOURCES = "deploy/compose.yaml", "deploy/compose/targets.json", "deploy/compose/datasources.yml"
KUBERNETES = "deploy/kubernetes/"
BASE, CPU = KUBERNETES + "base/", KUBERNETES + "overlays/cpu/"
DEPLOYMENT, POLICY, SCALER = (BASE + name for name in (
    "deployment.yaml", "networkpolicy.yaml", "horizontalpodautoscaler.yaml"))
SERVICE, MONITOR, BUDGET = (BASE + name for name in ("service.yaml", "servicemonitor.yaml", "poddisruptionbudget.yaml"))
LISTED, ADAPTER = BASE + "kustomization.yaml", KUBERNETES + "prometheus-adapter-values.yaml"
DASHBOARDS = "deploy/grafana/kustomization.yaml"
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
    # The form of the manifests.
    (DEPLOYMENT, "terminationGracePeriodSeconds", "terminationGracePeriod", "terminationGracePeriod"),
    (DEPLOYMENT, "containerPort: 9464", "containerPort: metrics", "is not of type"),
    (DEPLOYMENT, "apiVersion: apps/v1", "apiVersion: extensions/v1beta1", "has no Deployment"),
    (DEPLOYMENT, "      tolerations:", "      hostPID: false\n      hostPID: false\n      tolerations:", "hostPID"),
    (SERVICE, "appProtocol: grpc", "appProtocols: grpc", "appProtocols"),
    (POLICY, "policyTypes", "policyType", "policyType"),
    (BUDGET, "maxUnavailable", "maxUnavailabe", "maxUnavailabe"),
    (BASE + "serviceaccount.yaml", "automountServiceAccountToken", "automountToken", "automountToken"),
    (SCALER, "averageValue", "averageValues", "averageValues"),
    (MONITOR, "scrapeTimeout", "scrape_timeout", "scrape_timeout"),
    (LISTED, "resources:", "resource:", "resource"),
    ("deploy/prometheus/alerts.yml", "annotations:", "annotation:", "prometheusrule.yaml: not from"),
    (ADAPTER, "metricsQuery", "metricQuery", "metricQuery"),
    # Which files there are.
    (LISTED, "  - service.yaml\n", "", "service.yaml is not listed"),
    (LISTED, "- service.yaml", "- services.yaml", "services.yaml is not there"),
    (DASHBOARDS, "[dashboards/memory.json]", "[dashboards/service.json]", "dashboards/memory.json is not listed"),
    (CPU + "kustomization.yaml", "path: deployment.yaml", "path: patch.yaml", "patch.yaml is not there"),
    (BASE + "prometheusrule.yaml", "> 0.05", "> 0.5", "prometheusrule.yaml: not from"),
    # Their meaning.
    (DEPLOYMENT, "GEMMD_TUNING_FILE", "GEMMD_TUNING", "GEMMD_TUNING: no such setting"),
    (DEPLOYMENT, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 35", "35 s of grace"),
    (DEPLOYMENT, "[sleep, \"5\"]", "[\"true\"]", "no preStop that sleeps"),
    (DEPLOYMENT, "grpc: {port: 50051}", "grpc: {port: 50052}", "livenessProbe: port 50052"),
    (DEPLOYMENT, "service: gemmd.v1.GemmService", "service: gemmd.v1.Gemm", "does not know the name gemmd.v1.Gemm"),
    (DEPLOYMENT, "startupProbe:\n            grpc: {port: 50051, service: gemmd.v1.GemmService}",
     "startupProbe:\n            tcpSocket: {port: 50051}", "no startupProbe over gRPC"),
    (DEPLOYMENT, "containerPort: 9464", "containerPort: 9465", "it listens at"),
    (DEPLOYMENT, "image: gemmd:cuda", "image: gemmd:gpu", "the Dockerfile builds"),
    (DEPLOYMENT, "              nvidia.com/gpu: 1\n", "", "nvidia.com/gpu: None"),
    (DEPLOYMENT, "              memory: 8Gi", "              memory: 5Gi", "bytes of memory"),
    (DEPLOYMENT, "mountPath: /var/lib/gemmd", "mountPath: /var/lib/gemm", "is in no volume"),
    (DEPLOYMENT, "        - name: tmp\n          emptyDir: {sizeLimit: 64Mi}\n", "", "volumes and their mounts differ"),
    (DEPLOYMENT, "enableServiceLinks: false", "enableServiceLinks: true", "enableServiceLinks"),
    (DEPLOYMENT, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "securityContext of the container"),
    (DEPLOYMENT, "drop: [ALL]", "drop: [NET_RAW]", "securityContext of the container"),
    (DEPLOYMENT, "runAsUser: 10001", "runAsUser: 0", "securityContext of the pod"),
    (DEPLOYMENT, "type: RuntimeDefault", "type: Unconfined", "securityContext of the pod"),
    (DEPLOYMENT, "serviceAccountName: gemmd", "serviceAccountName: default", "not the ServiceAccount"),
    (DEPLOYMENT, "automountServiceAccountToken: false", "automountServiceAccountToken: true", "a token"),
    (DEPLOYMENT, "      serviceAccountName", "      hostNetwork: true\n      serviceAccountName", "host's namespaces"),
    (DEPLOYMENT, "    metadata:\n      labels: {app.kubernetes.io/name: gemmd}",
     "    metadata:\n      labels: {app.kubernetes.io/name: gemm}", "the Deployment's does not match"),
    (DEPLOYMENT, "          labelSelector:\n            matchLabels: {app.kubernetes.io/name: gemmd}",
     "          labelSelector:\n            matchLabels: {app: gemmd}", "a topology spread's"),
    (DEPLOYMENT, "spec:\n  selector", "spec:\n  replicas: 2\n  selector", "a count of replicas too"),
    (SERVICE, "clusterIP: None", "type: ClusterIP", "not headless"),
    (SERVICE, "port: 9464", "port: 9465", "it listens at"),
    (SERVICE, "targetPort: grpc", "targetPort: metrics", "port grpc leads to metrics"),
    (SERVICE, "selector: {app.kubernetes.io/name", "selector: {app", "the Service's"),
    (SERVICE, "labels: {app.kubernetes.io/name: gemmd}", "labels: {app.kubernetes.io/name: gemm}",
     "does not lead to the job gemmd"),
    (MONITOR, "port: metrics", "port: grpc", "scrapes grpc"),
    (MONITOR, "interval: 15s", "interval: 60s", "the rules are for 15s"),
    (MONITOR, "matchLabels: {app.kubernetes.io/name: gemmd}", "matchLabels: {app: gemmd}",
     "the ServiceMonitor's does not match"),
    (POLICY, "port: 50051", "port: 50052", "lets in at"),
    (POLICY, "gemmd/client: \"true\"", "", "lets pods without a label call"),
    (POLICY, "kubernetes.io/metadata.name: monitoring", "", "lets any namespace scrape"),
    (POLICY, "protocol: TCP, port: 53", "protocol: TCP, port: 443", "lets out more than DNS"),
    (POLICY, "[Ingress, Egress]", "[Ingress]", "policyTypes"),
    (POLICY, "  podSelector:\n    matchLabels: {app.kubernetes.io/name: gemmd}",
     "  podSelector:\n    matchLabels: {app: gemmd}", "the NetworkPolicy's"),
    (BUDGET, "matchLabels: {app.kubernetes.io/name: gemmd}", "matchLabels: {app: gemmd}",
     "the PodDisruptionBudget's"),
    (SCALER, "Deployment, name: gemmd", "Deployment, name: gemm", "scales Deployment gemm"),
    (SCALER, "maxReplicas: 8", "maxReplicas: 1", "above maxReplicas"),
    (SCALER, "name: gemmd_queue_wait_seconds", "name: gemmd_wait", "is no metric of"),
    (ADAPTER, "phase_seconds_count", "phases_seconds_count", "does not export"),
    (ADAPTER, "_sum{phase=", "_sum{phases=", "has no label phases"),
)
# What only kustomize shows.
RENDERED_BREACHES = (
    (CPU + "deployment.yaml", "nvidia.com/gpu: null", "cpu: \"2\"", "nvidia.com/gpu: 1"),
    (CPU + "deployment.yaml", "GEMMD_CPU_THREADS", "GEMMD_THREADS", "GEMMD_THREADS: no such"),
    (CPU + "deployment.yaml", "{resource: limits.cpu}", "{resource: limits.memory}", "BLAS threads"),
    (CPU + "deployment.yaml", "value: cpu", "value: cuda", "backend cuda without a GPU"),
    (CPU + "kustomization.yaml", "newTag: cpu", "newTag: cuda", "without a GPU it takes another"),
    (CPU + "deployment.yaml", "  name: gemmd", "  name: gemm", "no matches for"),
    (DASHBOARDS, 'grafana_dashboard: "1"', 'grafana: "1"', "the sidecar leaves it"),
    (LISTED, "  - ../../grafana\n", "", "dashboards: none"),
)

# What only the metric's value shows.
WAIT_BREACHES = (
    (ADAPTER, "seconds_count{", "seconds_sum{", "FAILED"),
    (ADAPTER, "clamp_min(sum by (<<.GroupBy>>)", "clamp_min(sum by <<.GroupBy>>", "parse error"),
    (ADAPTER, ', 0.001)', ', 0)', "FAILED"),
    (ADAPTER, 'seconds_count{phase="queue",', 'seconds_count{', "FAILED"),
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
    command = kubernetes_checks.kustomize_command()

    def unrendered(facts):
        return compose_problems(facts) + kubernetes_checks.problems(facts, None)

    def with_kustomize(facts):
        return kubernetes_checks.problems(facts, command)

    def of_wait(facts):
        return list(kubernetes_checks.wait_problems(facts.root))

    with tempfile.TemporaryDirectory() as name:
        tree = pathlib.Path(name)
        make_tree(tree)
        for problems_of in (unrendered, with_kustomize, of_wait):
            if problems := problems_of(deployed.Facts(tree, played)):
                sys.exit(f"self-test: what is in the tree was refused: {problems}")
        prove(tree, BREACHES, unrendered)
        if command:
            prove(tree, RENDERED_BREACHES, with_kustomize)
        prove(tree, WAIT_BREACHES, of_wait)
    count = len(BREACHES) + len(WAIT_BREACHES) + len(RENDERED_BREACHES) * bool(command)
    print(f"manifests: {count} breaches are caught")


def main():
    if not shutil.which("promtool"):
        sys.exit("no promtool; run deploy/packages.sh test")
    try:
        if sys.argv[1:] == ["--self-test"]:
            self_test()
            return
        main_test(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/bin/gemmd"))
    except FileNotFoundError as error:
        sys.exit(str(error))


main()
