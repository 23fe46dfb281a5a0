"""Checks of deploy/compose.yaml and of what it mounts."""

import json
import pathlib
import re
import urllib.parse

import deployed
import schemas

FILE = "deploy/compose.yaml"
MOST_GPUS = 8  # of a host, where a service takes all
PROFILES = {"gpu": True, "cpu": False}  # profile -> whether gemmd has a GPU in it


def interpolated(text):
    """What compose puts in where no variable is set. A variable without a default stays, and is told of."""
    text = re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", text)
    return text.replace("$$", "$")


class Compose:
    def __init__(self, facts):
        self.facts, self.folder = facts, (facts.root / FILE).parent
        self.text = (facts.root / FILE).read_text()
        self.file = deployed.read_all(interpolated(self.text))[0]

    def problems(self):
        wrong = list(schemas.compose_problems(self.file))
        if unset := re.findall(r"(?<!\$)\$\{?(\w+)(?![\w:-])", self.text):
            wrong.append(f"{', '.join(unset)}: no default")
        # The rest reads fields that a file of another form lacks.
        for problem in wrong or self.meaning_problems():
            yield f"{FILE}: {problem}"

    def meaning_problems(self):
        services = self.file["services"]
        for name, service in services.items():
            yield from (f"{name}: {problem}" for problem in self.confinement_problems(service))
            yield from (f"{name}: {problem}" for problem in self.mount_problems(service))
            if set(service.get("profiles", ())) - PROFILES.keys():
                yield f"{name}: profiles other than {', '.join(PROFILES)}"
        for profile, has_gpu in PROFILES.items():
            up = {name: service for name, service in services.items() if profile in service.get("profiles", [profile])}
            for problem in self.profile_problems(up, has_gpu):
                yield f"profile {profile}: {problem}"
        yield from self.data_source_problems()

    def confinement_problems(self, service):
        wanted = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
        for field, value in wanted.items():
            if service.get(field) != value:
                yield f"{field} is not {json.dumps(value)}"
        if not re.fullmatch(r"[1-9]\d*:\d+", service.get("user", "")):
            yield "user: a number above 0 and one of a group are wanted"
        if service.get("privileged") or service.get("cap_add") or "network_mode" in service:
            yield "more rights than it needs"
        if not service.get("restart"):
            yield "no restart"
        limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
        if lacking := sorted({"cpus", "memory", "pids"} - limits.keys()):
            yield f"no limit of {', '.join(lacking)}"
        if not re.fullmatch(r"[^:@]+:(?!latest$)[\w.-]+(@sha256:[0-9a-f]{64})?", service["image"]):
            yield f"image {service['image']} has no fixed tag"
        built = service["image"] in self.facts.image.builds and self.facts.image.has_health_check
        if not built and "test" not in service.get("healthcheck", {}):
            yield "no health check"

    def mounts(self, service):
        """(source, target, mode); files are relative to compose.yaml."""
        for mount in service.get("volumes", ()):
            yield (mount.split(":") + [""])[:3]

    def mount_problems(self, service):
        for source, target, mode in self.mounts(service):
            if not source.startswith("."):
                if source not in self.file["volumes"]:
                    yield f"volume {source} is not among the volumes"
            elif not (self.folder / source).exists():
                yield f"{source}, which it mounts at {target}, is not there"
            elif mode != "ro":
                yield f"{source} is mounted to be written"

    def profile_problems(self, services, has_gpu):
        gemmds = {name: s for name, s in services.items() if "build" in s}
        if len(gemmds) != 1:
            yield f"{len(gemmds)} services build gemmd"
            return
        (name, gemmd), = gemmds.items()
        yield from (f"{name}: {problem}" for problem in self.gemmd_problems(gemmd, has_gpu))
        ports = [re.sub(r".*:", "", published) for s in services.values() for published in s.get("ports", ())]
        if len(set(ports)) < len(ports):
            yield "a port is published twice"
        reached = dict(services)
        for service in services.values():
            for alias in service.get("networks", {}).get("default", {}).get("aliases", ()):
                reached[alias] = service
        if "prometheus" in services:
            yield from self.prometheus_problems(services["prometheus"], reached, gemmd)
        else:
            yield "no service prometheus"

    def gemmd_problems(self, gemmd, has_gpu):
        settings = self.facts.settings(gemmd.get("environment", {}), gemmd.get("command", ()))
        if not isinstance(settings, dict):
            yield settings
            return
        resources = gemmd["deploy"]["resources"]
        devices = resources.get("reservations", {}).get("devices", [])
        if has_gpu != bool(devices):
            yield f"{len(devices)} reserved devices"
        for device in devices:
            if device.get("driver") != "nvidia" or not {"gpu", "compute", "utility"} <= set(device["capabilities"]):
                yield "the device wants driver nvidia and the capabilities gpu, compute and utility"
        gpus = sum(MOST_GPUS if device.get("count", "all") == "all" else int(device["count"]) for device in devices)
        limits = resources.get("limits", {})
        # For docker a G is 1024^3.
        memory_bytes = deployed.size(re.sub(r"([KMGT])B?$", r"\1i", limits.get("memory", "0")))
        yield from self.facts.container_problems(
            settings, gemmd["image"], gpus, memory_bytes, deployed.seconds(gemmd.get("stop_grace_period", "10s")))
        if not has_gpu and settings["cpu-threads"] != limits.get("cpus"):
            yield f"{settings['cpu-threads']} BLAS threads on {limits.get('cpus')} CPUs"
        build = gemmd["build"]
        if build.get("args") != self.facts.image.builds.get(gemmd["image"]):
            yield f"built with {build.get('args')}, {gemmd['image']} by the Dockerfile with " \
                  f"{self.facts.image.builds.get(gemmd['image'])}"
        if not (self.folder / build["context"] / build.get("dockerfile", "Dockerfile")).exists():
            yield f"no Dockerfile in {build['context']}"
        if gemmd["user"] != self.facts.image.user:
            yield f"user {gemmd['user']}, the image's is {self.facts.image.user}"
        published = {deployed.port(entry) for entry in gemmd.get("ports", ())}
        if published != (wanted := {deployed.port(settings[name]) for name in ("listen", "metrics")}):
            yield f"publishes the ports {sorted(published)}; it listens at {sorted(wanted)}"
        volumes = {target for source, target, _ in self.mounts(gemmd) if not source.startswith(".")}
        if settings["tuning-file"] and str(pathlib.Path(settings["tuning-file"]).parent) not in volumes:
            yield f"the tuning file {settings['tuning-file']} is in no volume"

    def prometheus_problems(self, prometheus, reached, gemmd):
        mounted = {target: self.folder / source for source, target, _ in self.mounts(prometheus) if source[0] == "."}
        config = next((c.partition("=")[2] for c in prometheus["command"] if c.startswith("--config.file=")), "")
        if config not in mounted:
            yield f"prometheus: no {config or '--config.file'} among its mounts"
            return
        parsed, beside = deployed.read(mounted[config]), pathlib.PurePosixPath(config).parent
        targets = [file for job in parsed["scrape_configs"] for found in job.get("file_sd_configs", ())
                   for file in found["files"]]
        for file in parsed["rule_files"] + targets:
            if str(beside / file) not in mounted:
                yield f"prometheus: no {beside / file} among its mounts, which {config} names"
                return
        settings = self.facts.settings(gemmd.get("environment", {}))
        for file in targets:
            groups = json.loads(mounted[str(beside / file)].read_text())
            for target in (target for group in groups for target in group["targets"]):
                host, _, port = target.rpartition(":")
                if reached.get(host) is not gemmd:
                    yield f"prometheus: {host}, which it scrapes, is not gemmd"
                if isinstance(settings, dict) and int(port) != deployed.port(settings["metrics"]):
                    yield f"prometheus: {target} is not the port of /metrics, {settings['metrics']}"

    def data_source_problems(self):
        grafana = self.file["services"].get("grafana", {})
        mounted = {target: self.folder / source for source, target, _ in self.mounts(grafana) if source[0] == "."}
        sources = [path for target, path in mounted.items() if "/provisioning/datasources/" in target]
        if not sources:
            yield "grafana: no data source is mounted"
            return
        own = deployed.read(self.facts.root / "deploy/grafana/provisioning/datasources/gemmd.yml")
        given = deployed.read(sources[0])
        for source, there in zip(own["datasources"], given["datasources"]):
            url = urllib.parse.urlsplit(there["url"])
            ports = [deployed.port(p) for p in self.file["services"].get(url.hostname, {}).get("ports", ())]
            if url.port not in ports:
                yield f"grafana: {there['url']} is no service's"
            source["url"] = there["url"]
        if own != given:
            yield f"grafana: {sources[0].name} differs from deploy/grafana's by more than the url"
        provider = deployed.read(self.facts.root / "deploy/grafana/provisioning/dashboards/gemmd.yml")
        for path in (provider["options"]["path"] for provider in provider["providers"]):
            if mounted.get(path, pathlib.Path()).name != "dashboards":
                yield f"grafana: no dashboards at {path}, where the provider looks"
