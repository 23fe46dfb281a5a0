#!/usr/bin/env python3
"""Model-checks the rings of kernels/lab/protocol, and that each fault put into them is found.

  deploy/ci/protocol_check.py               check
  deploy/ci/protocol_check.py --update      search each fault's smallest sizes anew, write traces and README.md
  deploy/ci/protocol_check.py --self-test   prove that it can fail

The models as they are: every run at all sizes, no rule broken. With a fault: a run that breaks a rule at the sizes
that the committed trace names, its shortest run is that trace, and no run that breaks one at smaller sizes.
Needs spin and gcc.
"""

import concurrent.futures
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

LAB = pathlib.Path(__file__).resolve().parents[2] / "kernels" / "lab" / "protocol"

# Sizes that a model's init chooses, those first that make a run harder to read. Smaller means earlier in this order.
STAGES = range(1, 5)
SIZES = {
    "ring": {"in_turn": range(2), "tiles": range(1, 5), "stages": STAGES, "k_tiles": range(2 * STAGES[-1] + 2)},
    "cp_async_ring": {"stages": STAGES, "k_tiles": range(2 * STAGES[-1] + 2)},
}

FAULTS = {
    "ring": {
        "NO_REUSE_EDGE": "the producer does not wait until a slot is free",
        "NO_READY_EDGE": "the consumers do not wait until a panel has landed",
        "ISSUE_IS_COMPLETION": "the issue of a copy completes full, not its landing",
        "RELEASE_BEFORE_READ": "a consumer releases a slot before it has ended its read",
        "ONE_RELEASES": "empty counts one arrival, of two consumers",
        "LATE_RELEASE": "a ring of one slot, too, is released under the next step's read",
        "PHASE_PER_TILE": "the consumers begin each tile at phase 0",
        "NO_TURNS": "in ping-pong nobody waits for a turn",
    },
    "cp_async_ring": {
        "NO_BARRIER": "no barrier behind the wait",
        "BARRIER_BEFORE_WAIT": "the barrier before the wait: no ready edge between threads",
        "REFILL_BEFORE_BARRIER": "copies are issued before the barrier: no reuse edge between threads",
        "WAIT_LEAVES_ONE_MORE": "the wait leaves one group more in flight",
        "NO_EMPTY_GROUPS": "steps past k_tiles commit no group",
        "NO_BARRIER_BEFORE_REFILL": "S = 1: no barrier before the refill",
        "NO_DRAIN": "the threads end without Drain",
    },
}

DEADLOCK = "breach      nobody can go on"


class Broken(Exception):
    """What the check is there to find."""


def run(*command, cwd):
    result = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode != 0:
        raise Broken(f"{' '.join(map(str, command))}:\n{result.stdout}")
    return result.stdout


def judge(output):
    """The states that a search stored, its transitions and what it found wrong: "" if nothing."""
    errors = re.search(r"errors: (\d+)", output)
    found = re.search(r"^pan:1: (assertion violated|invalid end state)", output, re.M)
    if "Full statespace search for:" not in output or not errors:
        raise Broken(f"no full search:\n{output}")
    for checked in ("assertion violations", "invalid end states"):
        if not re.search(checked + r"\s*\+$", output, re.M):
            raise Broken(f"not checked: {checked}")
    if int(errors.group(1)):
        if not found:
            raise Broken(f"the model itself is wrong:\n{output}")
    elif found or re.search(r"max search depth too small|not completed|out of memory|^pan: .*error", output, re.M):
        raise Broken(f"the search was cut:\n{output}")
    states = int(re.search(r"(\d+) states, stored", output).group(1))
    transitions = int(re.search(r"(\d+) transitions", output).group(1))
    return states, transitions, found.group(1) if found else ""


def is_at(sizes):
    return "(" + " && ".join(f"{name} == {value}" for name, value in sizes.items()) + ")"


def is_below(sizes):
    names = list(sizes)
    return "(" + " || ".join(
        "(" + " && ".join([*(f"{n} == {sizes[n]}" for n in names[:i]), f"{name} < {sizes[name]}"]) + ")"
        for i, name in enumerate(names)) + ")"


def search(model, where="true", fault=None, lab=LAB, depth=20000, shortest=False):
    """Walks every run of a model at the sizes where an expression over them holds, until one breaks a rule.

    Returns what judge does, and the events of a run that breaks one: of the shortest, if asked to.
    """
    with tempfile.TemporaryDirectory() as folder:
        defines = f"#define SIZES ({where})\n" + (f"#define FAULT\n#define {fault}\n" if fault else "")
        pathlib.Path(folder, "model.pml").write_text(f'{defines}#include "{lab / model}.pml"\n')
        run("spin", "-a", "model.pml", cwd=folder)
        flags = ["-DBFS", "-DNOREDUCE"] if shortest else ["-DCOLLAPSE"]
        run("gcc", "-O1", "-w", "-DSAFETY", "-DMEMLIM=2048", *flags, "-o", "pan", "pan.c", cwd=folder)
        result = judge(run("./pan", f"-m{depth}", cwd=folder))
        return *result, events(run("spin", "-t", "-T", "model.pml", cwd=folder), result[2]) if result[2] else []


def events(replay, found):
    """What a replay says, up to the broken rule."""
    lines = []
    for line in replay.splitlines():
        if line.startswith("spin: trail ends"):
            break
        if re.match(r"(producer|consumer \d|copy engine|thread \d|barrier|full\[\d\]|empty\[\d\]|breach) +", line):
            lines.append(line)
        if line.startswith("breach"):
            return lines
    if found != "invalid end state":
        raise Broken("the replay breaks no rule:\n" + replay)
    return [*lines, DEADLOCK]


def smallest(model, fault):
    """The first sizes at which a run breaks a rule."""
    sizes = {}
    for name, values in SIZES[model].items():
        for value in values:
            if search(model, is_at({**sizes, name: value}), fault)[2]:
                sizes[name] = value
                break
        else:
            raise Broken(f"{model} with {fault}: no run breaks a rule")
    return sizes


def breach_of(trace):
    return trace.splitlines()[-1].removeprefix("breach").strip()


def sizes_of(model, trace):
    """The sizes that a trace's head names."""
    named = dict(re.findall(r"(\w+) = (\d+)", trace.splitlines()[1]))
    return {name: int(named[name.replace("stages", "S")]) for name in SIZES[model]}


def trace_of(model, fault, sizes, lab=LAB):
    *_, found, lines = search(model, is_at(sizes), fault, lab, shortest=True)
    if not found:
        raise Broken(f"{model} with {fault}: no run breaks a rule at {is_at(sizes)}")
    at = ", ".join([f"S = {sizes['stages']}", f"k_tiles = {sizes['k_tiles']}",
                    *(f"{name} = {sizes[name]}" for name in ("tiles", "in_turn") if name in sizes)])
    return (f"{model}, {fault}: {FAULTS[model][fault]}\n"
            f"{at}; the shortest run that breaks a rule:\n"
            f"{breach_of(lines[-1])}\n\n" + "\n".join(lines) + "\n")


def trace_path(model, fault, lab=LAB):
    return lab / "traces" / f"{model}-{fault.lower()}.txt"


def check_fault(model, fault, lab=LAB):
    """Holds a fault against its trace, which it returns."""
    path = trace_path(model, fault, lab)
    if not path.exists():
        raise Broken(f"{path} is missing: run deploy/ci/protocol_check.py --update")
    old = path.read_text()
    sizes = sizes_of(model, old)
    new = trace_of(model, fault, sizes, lab)
    if new != old:
        raise Broken("\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), str(path), "the search's",
                                                    lineterm="")))
    if search(model, is_below(sizes), fault, lab)[2]:
        raise Broken(f"{model} with {fault}: a run below {is_at(sizes)} breaks a rule, too")
    return new


def update_fault(model, fault):
    trace = trace_of(model, fault, smallest(model, fault))
    trace_path(model, fault).write_text(trace)
    return trace


def check_model(model):
    states, transitions, found, lines = search(model)
    if found:
        raise Broken(f"{model}: a run breaks a rule\n" + "\n".join(lines))
    return states, transitions


def table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(str, cells)) + " |\n" for cells in lines)


def searches_table(searched):
    return table(["model", "states", "transitions", "broken rules"],
                 [[f"`{model}.pml`", *counts, 0] for model, counts in searched.items()])


def faults_table(traces):
    rows = []
    for (model, fault), trace in traces.items():
        sizes = sizes_of(model, trace)
        rows.append([f"`{model}`", FAULTS[model][fault], sizes["stages"], sizes["k_tiles"], sizes.get("tiles", ""),
                     breach_of(trace), f"[{fault}](traces/{trace_path(model, fault).name})"])
    return table(["model", "fault", "S", "k_tiles", "tiles", "what breaks", "trace"], rows)


def with_tables(readme, searched, traces):
    for name, text in (("searches", searches_table(searched)), ("faults", faults_table(traces))):
        readme, count = re.subn(rf"(<!-- protocol: {name} -->\n).*?(<!-- end -->)",
                                lambda match, text=text: match[1] + text + match[2], readme, flags=re.S)
        if count != 1:
            raise Broken(f"README.md has {count} tables of {name}")
    return readme


def check_readme(searched, traces, lab=LAB):
    if with_tables((lab / "README.md").read_text(), searched, traces) != (lab / "README.md").read_text():
        raise Broken(f"{lab / 'README.md'}: stale tables: run deploy/ci/protocol_check.py --update")
    known = {trace_path(model, fault, lab) for model, faults in FAULTS.items() for fault in faults}
    if strays := set((lab / "traces").iterdir()) - known:
        raise Broken(f"traces of no fault: {', '.join(sorted(path.name for path in strays))}")


def in_parallel(calls):
    """Results of calls by name; each is (function, arguments...). Raises what any raised, all of it."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = {name: pool.submit(*call) for name, call in calls.items()}
    problems = [str(future.exception()) for future in futures.values() if isinstance(future.exception(), Broken)]
    if problems:
        raise Broken("\n".join(problems))
    return {name: future.result() for name, future in futures.items()}


def check(update):
    start = time.monotonic()
    calls = {(model,): (check_model, model) for model in FAULTS}
    for model, faults in FAULTS.items():
        calls |= {(model, fault): (update_fault if update else check_fault, model, fault) for fault in faults}
    results = in_parallel(calls)
    searched = {name[0]: counts for name, counts in results.items() if len(name) == 1}
    traces = {name: trace for name, trace in results.items() if len(name) == 2}
    if update:
        (LAB / "README.md").write_text(with_tables((LAB / "README.md").read_text(), searched, traces))
    check_readme(searched, traces)
    states = ", ".join(f"{model} {counts[0]} states" for model, counts in searched.items())
    print(f"protocol: no run breaks a rule ({states}), {len(traces)} faults do, in {time.monotonic() - start:.0f} s")


# Model, text, what stands there instead: each breaks a rule at the sizes of SMALL.
MUTATIONS = [
    ("ring", "init_barrier(full_bar[slot], 1)", "init_barrier(full_bar[slot], 2)"),
    ("ring", "init_barrier(empty_bar[slot], (in_turn -> 1 : 2))", "init_barrier(empty_bar[slot], 2)"),
    ("ring", "init_barrier(empty_bar[slot], (in_turn -> 1 : 2))", "init_barrier(empty_bar[slot], 3)"),
    ("ring", "PASSES(empty_bar[slot], 1 - phase)", "PASSES(empty_bar[slot], phase)"),
    ("ring", "PASSES(full_bar[slot], phase)", "PASSES(full_bar[slot], 1 - phase)"),
    ("ring", "    slot = 0;\n    phase = 1 - phase\n", "    slot = 0\n"),
    ("ring", "    barrier.phase = 1 - barrier.phase;\n", ""),
    ("ring", "arrive_expect_tx(full_bar[slot], 2)", "arrive_expect_tx(full_bar[slot], 1)"),
    ("ring", "arrive_expect_tx(full_bar[slot], 2)", "arrive_expect_tx(full_bar[slot], 3)"),
    ("ring", "    arrive(empty_bar[from]);\n", ""),
    ("ring", "        skip_steps(k_tiles)\n", "        skip_steps(0)\n"),
    ("ring", "turn_phase = (c == 0)", "turn_phase = 0"),
    ("ring", "        turn_phase = 1 - turn_phase\n", "        turn_phase = (c == 0 -> 1 - turn_phase : 0)\n"),
    ("ring", "        turn_phase = 1 - turn_phase\n", "        turn_phase = (c == 1 -> 1 - turn_phase : 1)\n"),
    ("ring", "        skip_steps(k_tiles)\n", "        skip_steps(k_tiles * (c == 0))\n"),
    ("ring", "        step = step + k_tiles;\n", "        step = step + (c == 0 -> k_tiles : 0);\n"),
    ("ring", "        arrive(turn_bar[1 - c])\n", "        if\n:: tile < 2 -> arrive(turn_bar[1 - c])\n:: else\nfi\n"),
    ("ring", "        PASSES(turn_bar[c], turn_phase) ->", "        (tile >= 3 || PASSES(turn_bar[c], turn_phase)) ->"),
    ("cp_async_ring", "at_barrier == THREADS ->", "at_barrier == 1 ->"),
    ("cp_async_ring", "(stages == 1 -> 1 : stages - 1);\n#ifdef", "stages;\n#ifdef"),
    ("cp_async_ring", "    fill = (fill + 1) % stages\n", "    fill = (fill + 1) % SLOTS\n"),
    ("cp_async_ring", "stages == 1 -> block_barrier()", "stages == 2 -> block_barrier()"),
]
SMALL = {"ring": "(stages <= 2)", "cp_async_ring": "(stages <= 2)"}

# Model, a rule, what stands there without it, and an edit as of MUTATIONS: that rule alone sees what it does. The other
# rules each end a trace.
RULES = [
    ("ring", "RULE(panel[2 * slot] == step && panel[2 * slot + 1] == step", "RULE(true",
     "panel[2 * slot + half] = step;", "panel[2 * slot + half] = step - half;"),
    ("ring", "RULE(QUIET(full_bar[slot]) && QUIET(empty_bar[slot]) &&\n"
             "             full_bar[slot].phase == empty_bar[slot].phase", "RULE(true",
     "  done++\n}\n\n// The step that the slot held", "  arrive(empty_bar[0]);\n  done++\n}\n\n//"),
    ("ring", "RULE((in_turn -> reads[0] + reads[1] == tiles * k_tiles\n"
             "                 : reads[0] == tiles * k_tiles && reads[1] == tiles * k_tiles)", "RULE(true",
     "tiles, in_turn, 1);\n      run Consumer(stages, k_tiles, tiles, in_turn, 0);\n      run Producer(stages, tiles *",
     "tiles - 1, in_turn, 1);\n      run Consumer(stages, k_tiles, tiles - 1, in_turn, 0);\n"
     "      run Producer(stages, (tiles - 1) *"),
    ("cp_async_ring", "RULE(flying[THREADS * fill + t] == NONE", "RULE(true",
     "      RULE(flying[THREADS * fill", "      flying[THREADS * fill + t] = load;\n      RULE(flying[THREADS * fill"),
    ("cp_async_ring", "RULE(flying[slot] == NONE", "RULE(true",
     "    RULE(ended[0] == k_tiles &&",
     "    if\n    :: k_tiles > 0 -> flying[THREADS * slot + t] = k_tiles - 1\n    :: else\n    fi;\n"
     "    RULE(ended[0] == k_tiles &&"),
    ("cp_async_ring", "RULE(step < k_tiles", "RULE(true", "load < k_tiles ->", "load <= k_tiles ->"),
    ("cp_async_ring", "      check_overwrite(0);\n", "",
     "    block_barrier();\n#endif\n#ifndef REFILL_BEFORE_BARRIER\n    if\n    :: stages > 1 ->",
     "    if\n    :: stages > 1 && t == 1 -> begun[0] >= step -> produce(step + lead)\n    :: else\n    fi;\n"
     "    block_barrier();\n#endif\n#ifndef REFILL_BEFORE_BARRIER\n    if\n    :: stages > 1 && t == 0 ->"),
]


def edited(text, old, new):
    if text.count(old) != 1:
        raise Broken(f"self-test: a model does not have this once: {old}")
    return text.replace(old, new)


def breaks(model, edits):
    """Whether a run of the edited model breaks a rule, at the sizes of SMALL."""
    with tempfile.TemporaryDirectory() as folder:
        lab = pathlib.Path(folder)
        for path in LAB.glob("*.pml"):
            shutil.copy(path, lab)
        text = (lab / f"{model}.pml").read_text()
        for old, new in edits:
            text = edited(text, old, new)
        (lab / f"{model}.pml").write_text(text)
        return bool(search(model, SMALL[model], lab=lab)[2])


def check_mutation(model, old, new):
    if not breaks(model, [(old, new)]):
        raise Broken(f"self-test: no run of {model} breaks a rule with {new!r} for {old!r}")


def check_rule(model, rule, without, old, new):
    check_mutation(model, old, new)
    if breaks(model, [(old, new), (rule, without)]):
        raise Broken(f"self-test: {new!r} for {old!r} in {model} breaks a rule without {rule!r}, too")


def must_break(what, function, *arguments):
    try:
        function(*arguments)
    except Broken:
        return
    raise Broken(f"self-test: went unseen: {what}")


def check_other_trace(edit, what):
    """That a fault whose trace was changed is refused."""
    with tempfile.TemporaryDirectory() as folder:
        lab = pathlib.Path(folder, "lab")
        shutil.copytree(LAB, lab)
        path = trace_path("ring", "NO_READY_EDGE", lab)
        old = path.read_text()
        path.write_text(edit(old))
        if path.read_text() == old:
            raise Broken(f"self-test: the trace is as it was: {what}")
        must_break(what, check_fault, "ring", "NO_READY_EDGE", lab)


def larger(trace):
    """A trace that is right but for sizes that are not the smallest."""
    sizes = sizes_of("ring", trace)
    return trace_of("ring", "NO_READY_EDGE", {**sizes, "k_tiles": sizes["k_tiles"] + 1})


def self_test():
    calls = {f"mutation {i}": (check_mutation, *mutation) for i, mutation in enumerate(MUTATIONS)}
    calls |= {f"rule {i}": (check_rule, *rule) for i, rule in enumerate(RULES)}
    calls |= {
        "cut": (must_break, "a search that was cut", search, "ring", SMALL["ring"], None, LAB, 50),
        "bits": (must_break, "a search that is not full", judge, "Bit statespace search for:\nerrors: 0"),
        "harmless": (must_break, "a fault without effect", trace_of, "ring", "NO_TURNS",
                     {"in_turn": 0, "tiles": 1, "stages": 1, "k_tiles": 1}),
        "event": (check_other_trace, lambda trace: trace.replace("begins", "ends"), "a trace of another event"),
        "sizes": (check_other_trace, larger, "a trace at sizes that are not the smallest"),
        "readme": (must_break, "a stale table", check_readme, {"ring": (0, 0)}, {}),
    }
    in_parallel(calls)
    print(f"protocol: {len(MUTATIONS)} mutations are caught, and {len(RULES)} by one rule alone; so are a cut search, a fault "
          "without effect, stale traces")


def main():
    arguments = sys.argv[1:]
    if arguments not in ([], ["--update"], ["--self-test"]):
        sys.exit(__doc__)
    for tool in ("spin", "gcc"):
        if not shutil.which(tool):
            sys.exit(f"protocol: no {tool}; deploy/packages.sh build lint installs it")
    try:
        self_test() if arguments == ["--self-test"] else check(arguments == ["--update"])
    except Broken as broken:
        sys.exit(f"protocol: {broken}")


main()
