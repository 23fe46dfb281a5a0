"""What deployment files are compared to: the image, the server's settings, its health names, its metrics."""

import json
import math
import pathlib
import re
import subprocess

import yaml

import promql


class Loader(yaml.CSafeLoader):
    """YAML in which a key that stands twice is an error, as compose and kubectl have it."""

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise yaml.constructor.ConstructorError(None, None, f"twice: {', '.join(sorted(twice))}", node.start_mark)
        return super().construct_mapping(node, deep)


def read_all(text):
    return [document for document in yaml.load_all(text, Loader) if document is not None]


def read(path):
    return yaml.load(pathlib.Path(path).read_text(), Loader)


def seconds(text):
    """Of "45s", "1m30s" or "30000ms"."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|[smh])", str(text)))


def size(text):
    """Bytes of "8G", "8Gi" or "2GiB". A G without an i is taken for 1000^3: the smaller of its meanings."""
    number, unit, binary = re.fullmatch(r"(\d+)([KMGT]?)(i?)B?", str(text)).groups()
    return int(number) * (1024 if binary else 1000) ** " KMGT".index(unit or " ")


def port(address):
    return int(str(address).rpartition(":")[2])


class Image:
    """What the Dockerfile says of the image, and which images its comment builds: tag -> build arguments."""

    def __init__(self, text):
        self.bases = dict(re.findall(r"^ARG (\w+_BASE)=(\S+)", text, re.M))
        comment = re.sub(r"\s*\\\n#", "", text)
        self.builds = {tag: self.bases | dict(re.findall(r"--build-arg (\w+)=(\S+)", rest))
                       for tag, rest in re.findall(r"^#\s+docker build -t (\S+)(.*)$", comment, re.M)}
        joined = text.replace("\\\n", " ")
        self.env = dict(re.findall(r"(\w+)=(\S+)", " ".join(re.findall(r"^ENV (.*)", joined, re.M))))
        self.args = json.loads(re.search(r"^ENTRYPOINT (.*)", joined, re.M).group(1))[1:]
        self.user = re.search(r"^USER (\S+)", text, re.M).group(1)
        self.has_health_check = re.search(r"^HEALTHCHECK .*CMD", joined, re.M) is not None

    def has_cuda(self, tag):
        return "cuda" in self.builds[tag]["BUILD_BASE"]


def settings_by(gemmd):
    """(environment, arguments) -> the settings that the program would serve with, or what it says against them."""
    def settings(env, args):
        ran = subprocess.run([gemmd, *args, "--print-config"], env=env, capture_output=True, text=True, timeout=20)
        return printed(ran.stdout) if ran.returncode == 0 else (ran.stderr or ran.stdout).strip()
    return settings


def printed(text):
    return dict(re.findall(r'^([\w-]+) = "(.*)"$', text, re.M))


class Facts:
    def __init__(self, root, settings_of):
        self.root, self.settings_of = root, settings_of
        self.image = Image((root / "Dockerfile").read_text())
        # gRPC's health service has the name "" for the whole server.
        package = re.search(r"^package (\S+);", (root / "proto/gemmd/v1/gemm.proto").read_text(), re.M).group(1)
        names = re.findall(r"SetServingStatus\(v1::(\w+)::", (root / "server/rpc/rpc_server.cc").read_text())
        self.health_names = {""} | {f"{package}.{name}" for name in names}
        self.labels = {}  # series -> its labels
        for line in (root / "tests/golden/metrics.txt").read_text().splitlines():
            name, kind, *labels = line.split()
            labels = set(labels[0].split(",") if labels else ())
            parts = ("_sum", "_count", "_bucket") if kind == "histogram" else ("",)
            self.labels.update({name + part: labels | ({"le"} if part == "_bucket" else set()) for part in parts})

    def settings(self, env, args=()):
        """Of a container: a dictionary, or what is wrong with it."""
        names = {f"GEMMD_{name.upper().replace('-', '_')}" for name in self.settings_of({}, [])} | {"GEMMD_CONFIG"}
        if unknown := sorted(name for name in env if name.startswith("GEMMD_") and name not in names):
            return f"{', '.join(unknown)}: no such setting"
        return self.settings_of(self.image.env | env, [*self.image.args, *args])

    def container_problems(self, settings, tag, gpus, memory_bytes, grace_s, stop_after_s=0):
        """Of a container of gemmd, wherever it runs. The signal to stop comes `stop_after_s` into the grace."""
        has_gpu = gpus > 0
        if tag not in self.image.builds:
            yield f"image {tag}: the Dockerfile builds {', '.join(self.image.builds)}"
        elif self.image.has_cuda(tag) != has_gpu:
            yield f"image {tag}: {'with' if has_gpu else 'without'} a GPU it takes another"
        if (settings["backend"] == "cuda") != has_gpu:
            yield f"backend {settings['backend']} {'with' if has_gpu else 'without'} a GPU"
        drain_s = seconds(settings["drain-timeout"])
        if grace_s <= drain_s + stop_after_s:
            yield f"{grace_s:g} s of grace for {stop_after_s:g} s and a drain limit of {drain_s:g} s"
        budgets = ["max-queue-bytes", "max-reply-bytes"] + ["pinned-pool"] * gpus  # one for each device
        if memory_bytes <= (need := sum(size(settings[name]) for name in budgets)):
            yield f"{memory_bytes} bytes of memory for {need} of {', '.join(budgets)}"

    def series_problems(self, expr, target_labels):
        """Of series that gemmd does not export. `target_labels` are put there by Prometheus."""
        for series in promql.Expression(expr).series:
            if series.name not in self.labels:
                yield f"gemmd does not export {series.name}"
                continue
            for label, _, _ in series.matchers:
                if label not in self.labels[series.name] | target_labels:
                    yield f"{series.name} has no label {label}"


def whole_cpus(text):
    """Of "4" or "1500m", rounded up."""
    text = str(text)
    return math.ceil(int(text[:-1]) / 1000 if text.endswith("m") else float(text))
