"""Checks of deploy/kubernetes: its files, and what kustomize makes of each kustomization."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

import deployed
import schemas

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "kubernetes"))
import prometheusrule  # noqa: E402

FOLDER = "deploy/kubernetes"
BASE = f"{FOLDER}/base"
# Kustomization -> whether its servers have a GPU.
KUSTOMIZATIONS = {BASE: True, f"{FOLDER}/overlays/cpu": False}
ADAPTER = f"{FOLDER}/prometheus-adapter-values.yaml"
DASHBOARDS = "deploy/grafana"
# Put there by the ServiceMonitor, of the pod that is scraped.
POD_LABELS = {"job", "instance", "namespace", "pod", "service", "endpoint", "container"}
SIDECAR_LABEL = "grafana_dashboard"


def kustomize_command():
    """None where there is no kustomize of today."""
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    if shutil.which("kubectl"):
        told = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True)
        if re.search(r'"kustomizeVersion": "v[5-9]', told.stdout):
            return ["kubectl", "kustomize"]
    return None


def base_files(root):
    """What the base lists of its own folder, as it stands in the files."""
    listed = deployed.read(root / BASE / "kustomization.yaml").get("resources", ())
    return [document for name in listed if (root / BASE / name).is_file()
            for document in deployed.read_all((root / BASE / name).read_text())]


def files_problems(root):
    """That every kustomization lists what is beside it, and has what it lists."""
    for path in sorted((root / "deploy").rglob("kustomization.yaml")):
        where, folder, listing = path.relative_to(root), path.parent, deployed.read(path)
        wrong = list(schemas.kubernetes_problems(listing))
        yield from (f"{where}: {problem}" for problem in wrong)
        if wrong:
            continue
        names = listing.get("resources", []) + [patch["path"] for patch in listing.get("patches", ())]
        names += [name for made in listing.get("configMapGenerator", ()) for name in made["files"]]
        for name in names:
            there = folder / name
            if not (there / "kustomization.yaml" if there.is_dir() else there).is_file():
                yield f"{where}: {name} is not there"
        beside = {str(p.relative_to(folder)) for suffix in ("*.yaml", "*/*.json") for p in folder.glob(suffix)}
        if forgotten := sorted(beside - set(names) - {"kustomization.yaml"}):
            yield f"{where}: {', '.join(forgotten)} is not listed"
    for folder in KUSTOMIZATIONS:
        if not (root / folder / "kustomization.yaml").is_file():
            yield f"{folder}: no kustomization.yaml"
    if stale := prometheusrule.stale(root):
        yield stale


def rendered(root, folder, command):
    """The resources that kustomize makes, or what it says."""
    ran = subprocess.run([*command, str(root / folder)], capture_output=True, text=True, timeout=60)
    return deployed.read_all(ran.stdout) if ran.returncode == 0 else ran.stderr.strip()


def matches(selector, labels):
    wanted = (selector or {}).get("matchLabels", {})
    return bool(wanted) and wanted.items() <= labels.items() and set(selector) == {"matchLabels"}


class Manifests:
    """What one kustomization applies. `has_maps`: it has the dashboards too, as kustomize has made it."""

    def __init__(self, facts, documents, has_gpu, has_maps):
        self.facts, self.documents, self.has_gpu, self.has_maps = facts, documents, has_gpu, has_maps

    def one(self, kind):
        return next((d for d in self.documents if d.get("kind") == kind), None)

    def problems(self):
        wrong = [f"{d.get('kind')} {d.get('metadata', {}).get('name')}: {problem}"
                 for d in self.documents for problem in schemas.kubernetes_problems(d)]
        kinds = ("Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget", "PrometheusRule",
                 "Service", "ServiceAccount", "ServiceMonitor")
        wrong += [f"no {kind}" for kind in kinds if not self.one(kind)]
        # The rest reads fields that a document of another form lacks.
        yield from wrong
        if wrong:
            return
        deployment = self.one("Deployment")
        self.pod_labels = deployment["spec"]["template"]["metadata"]["labels"]
        self.pod = deployment["spec"]["template"]["spec"]
        self.container = self.pod["containers"][0]
        self.settings = self.facts.settings(self.environment(), self.container.get("args", ()))
        if not isinstance(self.settings, dict):
            yield f"Deployment: {self.settings}"
            return
        self.ports = {name: deployed.port(self.settings[setting])
                      for name, setting in (("grpc", "listen"), ("metrics", "metrics"))}
        for kind, problems in (("Deployment", self.pod_problems), ("Deployment", self.probe_problems),
                               ("Deployment", self.confinement_problems), ("Service", self.service_problems),
                               ("NetworkPolicy", self.policy_problems), ("selectors", self.selector_problems),
                               ("HorizontalPodAutoscaler", self.autoscaler_problems),
                               ("dashboards", self.map_problems)):
            yield from (f"{kind}: {problem}" for problem in problems())

    def environment(self):
        def value(entry):
            if "value" in entry:
                return entry["value"]
            resource = entry.get("valueFrom", {}).get("resourceFieldRef", {}).get("resource")
            limits = self.container.get("resources", {}).get("limits", {})
            return str(deployed.whole_cpus(limits.get("cpu", 0))) if resource == "limits.cpu" else f"the {resource}"
        return {entry["name"]: value(entry) for entry in self.container.get("env", ())}

    def pod_problems(self):
        limits = self.container.get("resources", {}).get("limits", {})
        if self.has_gpu != ("nvidia.com/gpu" in limits):
            yield f"nvidia.com/gpu: {limits.get('nvidia.com/gpu')}"
        for name in ("cpu", "memory"):
            if name not in limits or name not in self.container["resources"].get("requests", {}):
                yield f"no request and limit of {name}"
        hook = self.container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
        if hook[:1] != ["sleep"]:
            yield "no preStop that sleeps"
        yield from self.facts.container_problems(
            self.settings, self.container["image"], limits.get("nvidia.com/gpu", 0),
            deployed.size(limits.get("memory", 0)), self.pod.get("terminationGracePeriodSeconds", 30),
            float(hook[1]) if hook[:1] == ["sleep"] else 0)
        if not self.has_gpu and self.settings["cpu-threads"] != str(deployed.whole_cpus(limits.get("cpu", 0))):
            yield f"{self.settings['cpu-threads']} BLAS threads on {limits.get('cpu')} CPUs"
        declared = {port["name"]: port["containerPort"] for port in self.container.get("ports", ())}
        if declared != self.ports:
            yield f"ports {declared}; it listens at {self.ports}"
        mounts = {mount["name"]: mount["mountPath"] for mount in self.container.get("volumeMounts", ())}
        if mounts.keys() != {volume["name"] for volume in self.pod.get("volumes", ())}:
            yield "volumes and their mounts differ"
        tuning = self.settings["tuning-file"]
        if tuning and str(pathlib.PurePosixPath(tuning).parent) not in mounts.values():
            yield f"the tuning file {tuning} is in no volume"
        if self.pod.get("enableServiceLinks", True):
            yield "enableServiceLinks: variables of Services would look like settings"

    def probe_problems(self):
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            grpc = self.container.get(name, {}).get("grpc")
            if not grpc:
                yield f"no {name} over gRPC"
                continue
            if grpc["port"] != self.ports["grpc"]:
                yield f"{name}: port {grpc['port']}; it listens at {self.ports['grpc']}"
            if grpc.get("service", "") not in self.facts.health_names:
                yield f"{name}: health does not know the name {grpc['service']}"

    def confinement_problems(self):
        user, _, group = self.facts.image.user.partition(":")
        of_pod = {"runAsNonRoot": True, "runAsUser": int(user), "runAsGroup": int(group), "fsGroup": int(group),
                  "seccompProfile": {"type": "RuntimeDefault"}}
        of_container = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]}}
        for what, wanted, given in (("the pod", of_pod, self.pod), ("the container", of_container, self.container)):
            if given.get("securityContext") != wanted:
                yield f"securityContext of {what} is not {json.dumps(wanted)}"
        if len(self.pod["containers"]) != 1 or any(self.pod.get(f) for f in ("hostNetwork", "hostPID", "hostIPC")):
            yield "one container without the host's namespaces is wanted"
        account = self.one("ServiceAccount")
        if self.pod.get("serviceAccountName") != account["metadata"]["name"]:
            yield "not the ServiceAccount of its own"
        if any(of.get("automountServiceAccountToken", True) for of in (self.pod, account)):
            yield "a token of the ServiceAccount is mounted"

    def service_problems(self):
        spec = self.one("Service")["spec"]
        if spec.get("clusterIP") != "None":
            yield "not headless"
        given = {port["name"]: port["port"] for port in spec["ports"]}
        if given != self.ports:
            yield f"ports {given}; it listens at {self.ports}"
        for port in spec["ports"]:
            if port.get("targetPort") not in (port["name"], self.ports.get(port["name"])):
                yield f"port {port['name']} leads to {port.get('targetPort')}"
        for endpoint in self.one("ServiceMonitor")["spec"]["endpoints"]:
            if endpoint["port"] != "metrics":
                yield f"the ServiceMonitor scrapes {endpoint['port']}"
            own = deployed.read(self.facts.root / "deploy/prometheus/prometheus.yml")["global"]["scrape_interval"]
            if endpoint.get("interval") != own:
                yield f"scraped each {endpoint.get('interval')}; the rules are for {own}"

    def policy_problems(self):
        spec = self.one("NetworkPolicy")["spec"]
        if sorted(spec.get("policyTypes", ())) != ["Egress", "Ingress"]:
            yield "policyTypes are not Ingress and Egress"
        ways = {}
        for rule in spec.get("ingress", ()):
            for port in rule.get("ports", [{"port": None}]):
                ways.setdefault(port["port"], []).extend(rule.get("from") or [{}])
        if ways.keys() != set(self.ports.values()):
            yield f"lets in at {list(ways)}; it listens at {self.ports}"
            return
        for peer in ways[self.ports["grpc"]]:
            if not peer.get("podSelector", {}).get("matchLabels"):
                yield "lets pods without a label call"
        for peer in ways[self.ports["metrics"]]:
            if not peer.get("namespaceSelector", {}).get("matchLabels"):
                yield "lets any namespace scrape"
        for rule in spec.get("egress", ()):
            if {port["port"] for port in rule.get("ports", [{"port": None}])} != {53} or not rule.get("to"):
                yield "lets out more than DNS"

    def selector_problems(self):
        of = {kind: self.one(kind)["spec"] for kind in ("Deployment", "NetworkPolicy", "PodDisruptionBudget",
                                                        "Service", "ServiceMonitor")}
        service_labels = self.one("Service")["metadata"].get("labels", {})
        if not matches(of["Deployment"]["selector"], self.pod_labels):
            yield "the Deployment's does not match its pods"
        if not matches(of["NetworkPolicy"]["podSelector"], self.pod_labels):
            yield "the NetworkPolicy's does not match the pods"
        if not matches(of["PodDisruptionBudget"]["selector"], self.pod_labels):
            yield "the PodDisruptionBudget's does not match the pods"
        if not matches({"matchLabels": of["Service"].get("selector", {})}, self.pod_labels):
            yield "the Service's does not match the pods"
        if not matches(of["ServiceMonitor"]["selector"], service_labels):
            yield "the ServiceMonitor's does not match the Service"
        for spread in self.pod.get("topologySpreadConstraints", ()):
            if not matches(spread.get("labelSelector"), self.pod_labels):
                yield "a topology spread's does not match the pods"
        # The alerts ask for this job.
        if service_labels.get(of["ServiceMonitor"].get("jobLabel")) != "gemmd":
            yield "the ServiceMonitor's jobLabel does not lead to the job gemmd"

    def autoscaler_problems(self):
        spec = self.one("HorizontalPodAutoscaler")["spec"]
        target, deployment = spec["scaleTargetRef"], self.one("Deployment")
        if (target.get("apiVersion"), target["kind"], target["name"]) != (
                deployment["apiVersion"], "Deployment", deployment["metadata"]["name"]):
            yield f"scales {target['kind']} {target['name']}"
        if "replicas" in deployment["spec"]:
            yield "the Deployment has a count of replicas too"
        if spec.get("minReplicas", 1) > spec["maxReplicas"]:
            yield f"minReplicas {spec['minReplicas']} above maxReplicas {spec['maxReplicas']}"
        supplied = {rule["name"]["as"] for rule in deployed.read(self.facts.root / ADAPTER)["rules"]["custom"]}
        for metric in spec.get("metrics", ()):
            name = metric.get("pods", {}).get("metric", {}).get("name")
            if name not in supplied:
                yield f"{name or metric['type']} is no metric of {ADAPTER}"

    def map_problems(self):
        if not self.has_maps:
            return
        maps = [d for d in self.documents if d["kind"] == "ConfigMap"]
        given = {name: text for d in maps for name, text in d["data"].items()}
        own = {path.name: path.read_text() for path in (self.facts.root / DASHBOARDS / "dashboards").glob("*.json")}
        if given != own:
            yield f"{', '.join(sorted(given)) or 'none'}; deploy/grafana/dashboards has {', '.join(sorted(own))}"
        for one in maps:
            if one["metadata"].get("labels", {}).get(SIDECAR_LABEL) != "1":
                yield f"{one['metadata']['name']}: no label {SIDECAR_LABEL}, so the sidecar leaves it"


def adapter_problems(facts):
    values = deployed.read(facts.root / ADAPTER)
    wrong = list(schemas.adapter_problems(values))
    yield from (f"{ADAPTER}: {problem}" for problem in wrong)
    for rule in [] if wrong else values["rules"]["custom"]:
        for text in (rule["seriesQuery"], filled_in(rule["metricsQuery"])):
            yield from (f"{ADAPTER}: {problem}" for problem in facts.series_problems(text, POD_LABELS))


def filled_in(query):
    """As the adapter would ask for all pods of the namespace a."""
    return query.replace("<<.GroupBy>>", "pod").replace("<<.LabelMatchers>>", 'namespace="a"')


def wait_problems(root):
    """Of the metric's value by promtool: two products a second that wait 0.25 s each in one pod, none in another."""
    query, = (filled_in(rule["metricsQuery"]) for rule in deployed.read(root / ADAPTER)["rules"]["custom"]
              if rule["name"]["as"] == "gemmd_queue_wait_seconds")
    # Namespace, pod, phase, what the sum and the count grow by in 15 s.
    given = (("a", "busy", "queue", 7.5, 30), ("a", "busy", "kernel", 60, 30), ("a", "idle", "queue", 0, 0),
             ("b", "busy", "queue", 90, 30))
    series = [{"series": f'gemmd_request_phase_seconds_{part}{{namespace="{namespace}", pod="{pod}", phase="{phase}"}}',
               "values": f"0+{each}x20"}
              for namespace, pod, phase, total, count in given for part, each in (("sum", total), ("count", count))]
    wanted = [{"labels": '{pod="busy"}', "value": 0.25}, {"labels": '{pod="idle"}', "value": 0}]
    test = {"interval": "15s", "input_series": series,
            "promql_expr_test": [{"expr": query, "eval_time": "4m", "exp_samples": wanted}]}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "test.yml")
        path.write_text(json.dumps({"evaluation_interval": "15s", "tests": [test]}))
        ran = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, timeout=60)
    if ran.returncode:
        yield f"{ADAPTER}: {' '.join((ran.stdout + ran.stderr).split())}"


def problems(facts, command):
    """Of the whole folder; `command` renders, None leaves what takes that out."""
    root = facts.root
    try:
        found = list(files_problems(root)) + list(adapter_problems(facts))
        for folder, has_gpu in KUSTOMIZATIONS.items():
            if found:
                break  # kustomize would say the same in other words
            if not command and folder != BASE:
                continue
            documents = rendered(root, folder, command) if command else base_files(root)
            if isinstance(documents, str):
                found.append(f"{folder}: {documents}")
                continue
            manifests = Manifests(facts, documents, has_gpu, command is not None)
            found += [f"{folder}: {problem}" for problem in manifests.problems()]
        return found
    except yaml.YAMLError as error:
        return [f"{FOLDER}: {' '.join(str(error).split())}"]
