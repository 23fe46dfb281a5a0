#!/usr/bin/env python3
"""Checks who may include, link to and use what; prints each breach and exits 1 if there is one.

  deploy/ci/layers.py [ROOT]      check a source tree (default: this one)
  deploy/ci/layers.py --self-test prove that every rule can fail

A module may use those to its left:
  core | plan | backend | cpu, cuda, engine, sampling | lab, backends, tuning, tuning_file | metrics, rpc | gemmd
and the client only the core, the proto and what converts between the two (convert). Tests may use all of them.
"""

import pathlib
import re
import sys
import tempfile

BELOW_WIRE = {"core", "plan", "backend", "cpu", "cuda", "backends", "engine", "sampling", "tuning"}

# Module -> modules that it may include and link to, itself aside.
ALLOWED = {
    "core": set(),
    "plan": {"core"},
    "backend": {"core", "plan"},
    "cpu": {"core", "plan", "backend"},
    "cuda": {"core", "plan", "backend"},
    "lab": {"core", "plan", "backend", "cuda"},
    "engine": {"core", "plan", "backend"},
    "backends": {"core", "plan", "backend", "cpu", "cuda"},
    "sampling": {"core", "plan", "backend"},
    "tuning": {"core", "plan", "backend", "engine", "sampling"},
    "tuning_file": {"core", "plan", "proto", "convert"},
    "metrics": {"core", "plan", "backend", "engine", "sampling", "tuning"},
    "rpc": {"core", "plan", "backend", "engine", "sampling", "tuning", "proto", "convert"},
    "proto": set(),
    "convert": {"core", "proto"},
    "client": {"core", "proto", "convert"},
    "gemmd": BELOW_WIRE - {"cpu", "cuda"} | {"metrics", "rpc", "tuning_file"},
}

# The longest matching prefix of a path decides its module.
MODULE_OF_PATH = {
    "kernels/core/": "core",
    "kernels/plan/": "plan",
    "kernels/backend.h": "backend",
    "kernels/pc_sampler.h": "backend",
    "kernels/cpu/": "cpu",
    "kernels/cuda/": "cuda",
    "kernels/lab/": "lab",
    "kernels/": "backends",
    "server/engine/": "engine",
    "server/sampling/": "sampling",
    "server/tuning/": "tuning",
    "server/tuning/tuning_file": "tuning_file",
    "server/metrics/": "metrics",
    "server/rpc/": "rpc",
    "server/": "gemmd",
    "client/": "client",
    "proto/": "convert",
    "gemmd/v1/": "proto",
    "google/rpc/": "proto",
}

# Targets whose name is not that of their module.
MODULE_OF_TARGET = {"gemmd": "gemmd", "gemmd_server": "gemmd", "gemmctl": "client",
                    "gemmd_ctl": "client", "gemmd_cuda_sm90a": "cuda",
                    "gemmd_lab_core": "lab", "gemmd_lab_device": "lab", "gemmd_lab_sm90a": "lab"}

# Third-party headers -> modules (or path prefixes of tests and single files) that may include them.
# server/server.cc puts the server together, so it knows what its parts are made of.
HEADER_OWNERS = [
    (r"cblas|openblas|lapacke", {"cpu"}),
    (r"cuda|cublas|nvml|cupti|cooperative_groups|mma\.h", {"cuda", "lab", "tests/"}),
    (r"prometheus/", {"metrics", "tests/", "server/server.cc"}),
    (r"grpc", {"rpc", "client", "tests/", "server/server.cc", "server/log.cc"}),
    (r"google/protobuf", {"convert", "rpc", "client", "tuning_file", "tests/"}),
    (r"spdlog|fmt/", {"rpc", "metrics", "gemmd", "client", "tests/"}),
    (r"CLI/", {"gemmd", "client", "lab", "tests/"}),
    (r"gtest|gmock|benchmark/", {"tests/"}),
]

# CMake target names of third parties -> targets that may link to them.
TARGET_OWNERS = [
    (r"OPENBLAS|BLAS::", {"gemmd_cpu"}),
    (r"CUDA::", {"gemmd_cuda", "gemmd_cuda_sm90a"}),
    (r"prometheus-cpp::", {"gemmd_metrics"}),
    (r"gRPC::|protobuf::", {"gemmd_proto", "gemmd_rpc", "gemmd_client"}),
]

# Code -> the one file, or folder, where it may stand.
PLACES = [
    (r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*\bGEMMD_(?:WITH_)?CUDA", "kernels/backend_factory.cc",
     "#if on the CUDA build option"),
    (r"\basm\s*(?:volatile\s*)?\(|\b__asm__\b", "kernels/cuda/device/ptx/", "inline assembly"),
    (r"\bcblas_\w+\s*\(|\bopenblas_\w+\s*\(", "kernels/cpu/", "a call of the BLAS"),
]

SOURCE_SUFFIXES = {".cc", ".h", ".cu", ".cuh"}
FOLDERS = ("kernels", "proto", "server", "client", "tests")


def module_of(path):
    matches = [prefix for prefix in MODULE_OF_PATH if path.startswith(prefix)]
    return MODULE_OF_PATH[max(matches, key=len)] if matches else None


def may_include(path, module, owners):
    return module in owners or any(path.startswith(o) for o in owners if "/" in o)


def without_comments(text):
    """Blanks comments, keeping the line numbers. Strings that hold '//' lose their end: harmless."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def check_include(path, module, header):
    """Yields what is wrong with the file at `path` including `header`."""
    target = module_of(header)
    if module is not None and target is not None and target != module:
        if target not in ALLOWED[module]:
            yield f'{module} may not include {target} ("{header}")'
        return
    if target is not None:
        return
    for pattern, owners in HEADER_OWNERS:
        if re.match(pattern, header) and not may_include(path, module, owners):
            yield f"only {', '.join(sorted(owners))} may include <{header}>"


def check_source(path, text):
    module = None if path.startswith("tests/") else module_of(path)
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        include = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if include:
            for problem in check_include(path, module, include.group(1)):
                yield f"{path}:{number}: {problem}"
            continue
        for pattern, place, what in PLACES:
            if re.search(pattern, line) and not path.startswith(place):
                yield f"{path}:{number}: {what} stands only in {place}"


def link_calls(text):
    """Yields (target, [what it links to]) of every call that links."""
    text = re.sub(r"#[^\n]*", "", text)
    for call in re.finditer(r"\b(gemmd_library|target_link_libraries)\s*\(([^()]*)\)", text):
        words = call.group(2).split()
        if call.group(1) == "gemmd_library":
            first = next((i for i, w in enumerate(words) if w in ("DEPENDS", "PRIVATE_DEPENDS")), None)
            links = words[first:] if first is not None else []
        else:
            links = words[1:]
        yield words[0], links


def module_of_target(target):
    return MODULE_OF_TARGET.get(target, target.removeprefix("gemmd_"))


def check_cmake(path, text):
    for target, links in link_calls(text):
        module = module_of_target(target)
        if module not in ALLOWED:
            if target != "gemmd_flags":
                yield f"{path}: {target} is of no module that deploy/ci/layers.py knows"
            continue
        for link in links:
            for name in re.findall(r"\bgemmd_\w+", link):
                other = module_of_target(name)
                if name != "gemmd_flags" and other != module and other not in ALLOWED[module]:
                    yield f"{path}: {target} may not link to {name}"
            for pattern, owners in TARGET_OWNERS:
                if re.search(pattern, link) and target not in owners:
                    yield f"{path}: only {', '.join(sorted(owners))} may link to {link}"


def check_tree(root):
    problems = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.suffix in SOURCE_SUFFIXES:
                problems += check_source(path, file.read_text())
            elif file.name == "CMakeLists.txt" and folder != "tests":
                problems += check_cmake(path, file.read_text())
    return problems


BREACHES = {
    "kernels/core/a.h": '#include "kernels/plan/plan.h"\n',
    "kernels/plan/a.cc": '#include "kernels/backend.h"\n',
    "kernels/cpu/a.cc": '#include "kernels/cuda/launcher.h"\n',
    "kernels/cuda/a.cc": "#include <cblas.h>\n",
    "kernels/cuda/b.cu": 'void f() { asm volatile("bar.sync 0;"); }\n',
    "kernels/self_check.cc": "#ifdef GEMMD_WITH_CUDA\n#endif\n",
    "kernels/plan/b.cc": "#include <cuda_runtime.h>\n",
    "server/engine/a.cc": "#include <prometheus/counter.h>\n",
    "server/engine/b.cc": '#include "server/rpc/codec.h"\n',
    "server/engine/c.cc": "#include <spdlog/spdlog.h>\n",
    "server/tuning/a.cc": '#include "server/rpc/codec.h"\n',
    "server/tuning/b.cc": "#include <google/protobuf/util/json_util.h>\n",
    "server/tuning/tuning_file.cc": "#include <grpcpp/grpcpp.h>\n",
    "proto/a.h": '#include "kernels/plan/plan.h"\n',
    "server/metrics/a.cc": "#include <grpcpp/grpcpp.h>\n",
    "server/metrics/b.cc": '#include "server/rpc/codec.h"\n',
    "server/rpc/a.cc": '#include "kernels/backend_factory.h"\n',
    "server/config.cc": '#include "kernels/cuda/handles.h"\n',
    "client/a.cc": '#include "server/engine/engine.h"\n',
    "client/b.cc": "void f() { cblas_sgemm(); }\n",
    "kernels/CMakeLists.txt": "gemmd_library(gemmd_core SOURCES a.cc DEPENDS gemmd_plan)\n",
    "client/CMakeLists.txt": "gemmd_library(gemmd_ctl SOURCES a.cc PRIVATE_DEPENDS gemmd_server)\n",
    "kernels/cpu/CMakeLists.txt": "gemmd_library(gemmd_unheard_of SOURCES a.cc)\n",
    "server/CMakeLists.txt": "target_link_libraries(gemmd_engine PRIVATE $<1:prometheus-cpp::core>)\n",
}
FAIR = {
    "kernels/cpu/a.cc": '#include <cblas.h>\n#include "kernels/backend.h"\nint f() { return cblas_x(); }\n',
    "kernels/backend_factory.cc": "#ifdef GEMMD_WITH_CUDA\n#endif\n",
    "kernels/cuda/device/ptx/ptx.cuh": 'void f() { asm volatile("bar.sync 0;"); }\n',
    "kernels/cuda/a.cu": "// asm (here) and #include <cblas.h> only in a comment\n#include <cuda_runtime.h>\n",
    "server/server.cc": '#include <grpcpp/grpcpp.h>\n#include "server/rpc/codec.h"\n',
    "server/rpc/a.cc": '#include "gemmd/v1/gemm.pb.h"\n#include "server/engine/engine.h"\n',
    "server/tuning/tuning_file.cc": '#include <google/protobuf/util/json_util.h>\n'
                                    '#include "gemmd/v1/tuning.pb.h"\n',
    "tests/e2e/a.cc": '#include "client/gemm_client.h"\n#include <gtest/gtest.h>\n',
    "server/CMakeLists.txt": "gemmd_library(gemmd_rpc SOURCES a.cc DEPENDS gemmd_engine gemmd_proto)\n",
}


def problems_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        return check_tree(root)


def self_test():
    for path, text in BREACHES.items():
        if len(problems_of({path: text})) != 1:
            sys.exit(f"self-test: this breach went unseen: {path}: {text}")
    if problems := problems_of(FAIR):
        sys.exit("self-test: fair code was refused:\n" + "\n".join(problems))
    print(f"layers: {len(BREACHES)} breaches are caught, fair code passes")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]
    if problems := check_tree(root):
        sys.exit("\n".join(problems))
    print("layers: every include and link goes to the left")


main()
