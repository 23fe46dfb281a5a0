"""Whether a document has the form of its kind: of compose, of Kubernetes, of kustomize, of an operator.

Fields that a kind does not have are wrong. The schemas of compose and Kubernetes come out of two wheels, unopened
otherwise; those of what no package has are written down here, and hold what is used here alone.
"""

import functools
import json
import pathlib
import zipfile

import jsonschema

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "build" / "schemas"
# The oldest that the manifests are for, with gRPC probes for good, and the newest that there is a schema of.
KUBERNETES = ("1.27", "1.37")

TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "array", "items": TEXT, "minItems": 1}
DURATION = {"type": "string", "pattern": "^([0-9]+(ms|[smhdwy]))+$"}
STRING_MAP = {"type": "object", "additionalProperties": {"type": "string"}}


def record(required, **optional):
    """An object with these fields and no others."""
    return {"type": "object", "properties": required | optional, "required": list(required),
            "additionalProperties": False}


def many(item):
    return {"type": "array", "items": item, "minItems": 1}


METADATA = record({"name": TEXT}, labels=STRING_MAP, annotations=STRING_MAP)


def resource(api, kind, spec):
    return record({"apiVersion": {"const": api}, "kind": {"const": kind}, "metadata": METADATA, "spec": spec})


RULE = {"oneOf": [
    record({"record": TEXT, "expr": TEXT}, labels=STRING_MAP),
    record({"alert": TEXT, "expr": TEXT}, labels=STRING_MAP, annotations=STRING_MAP, **{"for": DURATION}),
]}
NAMED_IMAGE = record({"name": TEXT}, newName=TEXT, newTag=TEXT, digest=TEXT)
GENERATED = record({"name": TEXT, "files": TEXTS})

# (apiVersion, kind) -> schema.
OWN = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): resource("monitoring.coreos.com/v1", "ServiceMonitor", record(
        {"selector": record({"matchLabels": STRING_MAP}),
         "endpoints": many(record({"port": TEXT}, interval=DURATION, scrapeTimeout=DURATION))}, jobLabel=TEXT)),
    ("monitoring.coreos.com/v1", "PrometheusRule"): resource("monitoring.coreos.com/v1", "PrometheusRule", record(
        {"groups": many(record({"name": TEXT, "rules": many(RULE)}, interval=DURATION))})),
    ("kustomize.config.k8s.io/v1beta1", "Kustomization"): record(
        {"apiVersion": TEXT, "kind": TEXT}, resources=TEXTS, images=many(NAMED_IMAGE),
        patches=many(record({"path": TEXT})), configMapGenerator=many(GENERATED), generatorOptions=record(
            {}, disableNameSuffixHash={"type": "boolean"}, labels=STRING_MAP, annotations=STRING_MAP)),
}
RESOURCE_OF = record({"resource": TEXT}, group=TEXT)
ADAPTER = record({"rules": record({"custom": many(record(
    {"seriesQuery": TEXT, "name": record({"as": TEXT}), "metricsQuery": TEXT,
     "resources": record({"overrides": {"type": "object", "additionalProperties": RESOURCE_OF}})}))})})


@functools.cache
def wheel(name):
    paths = list(FOLDER.glob(f"{name}-*.whl"))
    if len(paths) != 1:
        raise FileNotFoundError(f"no one wheel of {name} in {FOLDER}; run deploy/packages.sh lint")
    return zipfile.ZipFile(paths[0])


class Definitions(jsonschema.RefResolver):
    """Of schemas in which every reference is to a definition, by its name."""

    def __init__(self, definitions):
        super().__init__("", {})
        self.definitions = definitions

    def resolve(self, ref):
        return ref, self.definitions[ref.rpartition("/")[2]]


@functools.cache
def compose_validator():
    schema = json.loads(wheel("check_jsonschema").read("check_jsonschema/builtin_schemas/vendor/compose-spec.json"))
    return jsonschema.validators.validator_for(schema)(schema)


@functools.cache
def kubernetes_schema(version, name):
    """None where that version has none of this name."""
    path = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict/{name}.json"
    files = wheel("kubernetes_validate")
    return json.loads(files.read(path)) if path in files.NameToInfo else None


@functools.cache
def kubernetes_validator(version, api, kind):
    """None where that version has no such kind."""
    group, _, name = api.rpartition("/")
    schema = kubernetes_schema(version, "-".join(filter(None, (kind.lower(), group.partition(".")[0], name))))
    if schema is None:
        return None
    definitions = kubernetes_schema(version, "_definitions")["$defs"]
    return jsonschema.Draft202012Validator(schema, resolver=Definitions(definitions))


def said_by(validator, document):
    for error in validator.iter_errors(document):
        place = ".".join(map(str, error.absolute_path)) or "the document"
        # Of alternatives the nearest miss says more than that none fits.
        error = jsonschema.exceptions.best_match([error])
        yield f"{place}: {error.message[:300]}"


def compose_problems(document):
    return said_by(compose_validator(), document)


def adapter_problems(document):
    return said_by(jsonschema.Draft202012Validator(ADAPTER), document)


def kubernetes_problems(document):
    api, kind = (str(document.get(field, "")) for field in ("apiVersion", "kind"))
    if own := OWN.get((api, kind)):
        yield from said_by(jsonschema.Draft202012Validator(own), document)
        return
    for version in KUBERNETES:
        if validator := kubernetes_validator(version, api, kind):
            yield from said_by(validator, document)
        else:
            yield f"Kubernetes {version} has no {kind or 'kind'} of {api or 'no API'}"
