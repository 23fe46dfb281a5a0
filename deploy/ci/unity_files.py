#!/usr/bin/env python3
"""Writes files that include a build's sources many at a time, and compile commands for them.

  deploy/ci/unity_files.py BUILD_DIR OUT_DIR

Prints a line for each file that together they need: its name in OUT_DIR, then those of the parts that
can take its place, one for each target, where names of its targets clash. Only our own sources count:
not generated, not compiled by nvcc.
"""

import json
import pathlib
import re
import shlex
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("kernels", "proto", "server", "client", "tests")
OBJECT = re.compile(r"(?P<folder>\S+)/CMakeFiles/(?P<target>[^/]+)\.dir/")
MAIN = re.compile(r"^int main\(", re.MULTILINE)
# More would share a header's cost among more sources, but where names clash there is more to repeat.
MOST_SOURCES = 24
# Abseil's headers, which those of gRPC bring, must come before mutex.h: only that leaves alone what is
# defined. Including sources is suspicious, but what these files are made of.
FIRST = """#if __has_include(<absl/base/thread_annotations.h>)
#include <absl/base/thread_annotations.h>
#endif
"""


def own_commands(build_dir):
    """Yields (folder in the build, target, source, compiler's arguments) of each own source."""
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if source.suffix != ".cc" or not source.is_relative_to(ROOT):
            continue
        if source.relative_to(ROOT).parts[0] not in FOLDERS:
            continue
        words = shlex.split(entry["command"])
        place = OBJECT.match(words[words.index("-o") + 1])
        yield place["folder"], place["target"], source, words


def options(words):
    """Yields a command's options as tuples that belong together, without its input and output."""
    position = 1
    while position < len(words):
        length = 2 if words[position] in ("-o", "-c", "-isystem", "-MF", "-MT") else 1
        if words[position] not in ("-o", "-c"):
            yield tuple(words[position:position + length])
        position += length


class Unity:
    """Sources and the union of their options, in the order they came."""

    def __init__(self):
        self.sources, self.options = {}, {}

    def add(self, source, words):
        self.sources[source] = None
        self.options.update(dict.fromkeys(options(words)))

    def write(self, path, directory):
        path.write_text(FIRST + "".join(f'#include "{source}"  // NOLINT(bugprone-suspicious-include)\n'
                                        for source in self.sources))
        words = ["c++"] + [word for option in self.options for word in option] + ["-c", str(path)]
        return {"directory": str(directory), "file": str(path), "command": shlex.join(words)}


def targets_of(build_dir):
    """Returns {folder: {target: Unity}}; programs and modules, which all define a main() or the same
    interface, each count as a folder."""
    commands = list(own_commands(build_dir))
    alone = {(folder, target) for folder, target, source, words in commands
             if f"-D{target}_EXPORTS" in words or MAIN.search(source.read_text())}
    folders = {}
    for folder, target, source, words in commands:
        key = f"{folder}/{target}" if (folder, target) in alone else folder
        folders.setdefault(key, {}).setdefault(target, Unity()).add(source, words)
    return folders


def batches(targets):
    """Yields dictionaries of neighbours of at most MOST_SOURCES sources, or of one target."""
    batch, count = {}, 0
    for target, part in targets.items():
        if batch and count + len(part.sources) > MOST_SOURCES:
            yield batch
            batch, count = {}, 0
        batch[target] = part
        count += len(part.sources)
    yield batch


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build_dir, out = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    entries, lines = [], []
    for folder, targets in targets_of(build_dir).items():
        for number, batch in enumerate(batches(targets)):
            stem = f"{folder.replace('/', '.')}.{number}"
            whole, names = Unity(), []
            for target, part in batch.items():
                names.append(f"{stem}.{target}.cc")
                entries.append(part.write(out / names[-1], build_dir))
                whole.sources.update(part.sources)
                whole.options.update(part.options)
            if len(names) > 1:
                entries.append(whole.write(out / f"{stem}.cc", build_dir))
                names.insert(0, f"{stem}.cc")
            lines.append((len(whole.sources), " ".join(names)))
    (out / "compile_commands.json").write_text(json.dumps(entries, indent=1))
    if not lines:
        sys.exit(f"no sources of ours in {build_dir}/compile_commands.json")
    # The longest first, so that none is left to run alone.
    for _, line in sorted(lines, reverse=True):
        print(line)


main()
