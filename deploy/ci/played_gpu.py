"""Plays a GPU: the exposition of a gemmd on the CPU, with the numbers of some CUDA kernels moving.

What a server on the CPU does not have is put in: launches of CUDA kernels, the gauges of a GPU, samples of warps.
Names and labels are those that tests/golden and the server's source have.
"""

import dataclasses
import pathlib
import re
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLLECTOR = "server/metrics/gpu_collector.cc"


@dataclasses.dataclass(frozen=True)
class Played:
    """What a kernel does at a stage count. Stalls and epilogue are shares of the main loop."""
    launches_a_second: float
    seconds: float  # of a launch
    cycles: float  # of its main loop
    full: float
    empty: float
    epilogue: float


# The kernels differ in load and in stalls, so that a mean of ratios is no sum over sum.
PLAYED = {
    ("tma_pingpong_128x128x64", "6"): Played(20, 200e-6, 5e7, 0.05, 0.40, 0.02),
    ("tma_wgmma_64x64x128", "6"): Played(900, 12e-6, 2e4, 0.70, 0.01, 0.20),
    ("tma_wgmma_64x64x128", "4"): Played(100, 15e-6, 2e4, 0.85, 0.01, 0.20),
    ("cp_async_64x64x64", "3"): Played(50, 90e-6, 1e6, 0.30, 0.10, 0.10),
}
PLAYED_FLOPS = 1e9  # of a launch
PLAYED_BYTES = {"used": 3 << 30, "free": 1 << 30}
GAUGES = {  # of device 0
    "gemmd_gpu_sm_utilization_ratio": 0.93, "gemmd_gpu_memory_utilization_ratio": 0.41,
    "gemmd_gpu_memory_used_bytes": 9 << 30, "gemmd_gpu_memory_total_bytes": 80 << 30,
    "gemmd_gpu_power_watts": 640, "gemmd_gpu_power_limit_watts": 700, "gemmd_gpu_temperature_celsius": 61,
    "gemmd_gpu_sm_clock_hertz": 1.5e9, "gemmd_gpu_memory_clock_hertz": 3.1e9, "gemmd_gpu_sample_age_seconds": 0.4,
}
THROTTLE, PLAYED_REASON = "gemmd_gpu_throttle_reason", "sw_power_cap"
# Samples of warps a second, by kernel and reason.
STALL_SAMPLES = "gemmd_kernel_stall_samples_total"
PLAYED_STALLS = {
    ("tma_pingpong_128x128x64", "long_scoreboard"): 2000, ("tma_pingpong_128x128x64", "selected"): 6000,
    ("tma_wgmma_64x64x128", "long_scoreboard"): 9000, ("tma_wgmma_64x64x128", "barrier"): 600,
    ("tma_wgmma_64x64x128", "selected"): 400, ("sum_parts", "long_scoreboard"): 50,
}
SAMPLE = re.compile(r"^(gemmd_\w+)(?:\{(.*)\})? \S+$")
LABEL = re.compile(r'(\w+)="((?:\\.|[^"\\])*)"')
BOUND = re.compile(r'^gemmd_kernel_duration_seconds_bucket\{.*le="([^"]+)"', re.M)


def throttle_reasons(root):
    """The values of gemmd_gpu_throttle_reason's label, from the table in the source."""
    if not (named := set(re.findall(r'\{0x\w+, "(\w+)"\}', (root / COLLECTOR).read_text()))):
        raise ValueError(f"{COLLECTOR}: no table of reasons")
    return named | {"other"}


def played_value(metric, labels, seconds):
    """The value after `seconds` of play of a series that any server has, or None where it is not played."""
    if metric in ("gemmd_device_memory_bytes", "gemmd_pinned_memory_bytes"):
        return PLAYED_BYTES[labels["state"]]
    if metric == "gemmd_pc_sampling_up":
        return 1
    if metric == "gemmd_pc_sampling_seconds_total":
        return seconds
    if metric == "gemmd_kernel_flops_total":
        runs = [p for (name, _), p in PLAYED.items() if name == labels["kernel"]]
        return sum(p.launches_a_second for p in runs) * seconds * PLAYED_FLOPS if runs else None
    return None


def launches(seconds, bounds):
    """The exposition of the launches after `seconds` of play. `bounds`: those of the histogram, as texts."""
    for (kernel, stages), play in PLAYED.items():
        count, labels = play.launches_a_second * seconds, f'kernel="{kernel}",stages="{stages}"'
        cycles = count * play.cycles
        yield f"gemmd_kernel_launches_total{{{labels}}} {count!r}"
        yield f"gemmd_kernel_duration_seconds_count{{{labels}}} {count!r}"
        yield f"gemmd_kernel_duration_seconds_sum{{{labels}}} {count * play.seconds!r}"
        yield from (f'gemmd_kernel_duration_seconds_bucket{{{labels},le="{bound}"}} '
                    f"{count if float(bound) >= play.seconds else 0.0!r}" for bound in bounds)
        yield f'gemmd_kernel_stall_cycles_total{{{labels},wait="full"}} {cycles * play.full!r}'
        yield f'gemmd_kernel_stall_cycles_total{{{labels},wait="empty"}} {cycles * play.empty!r}'
        yield f'gemmd_kernel_cycles_total{{{labels},part="mainloop"}} {cycles!r}'
        yield f'gemmd_kernel_cycles_total{{{labels},part="epilogue"}} {cycles * play.epilogue!r}'
        yield f'gemmd_plan_selected_total{{{labels},source="model",limit="k_tiles"}} {count!r}'


def unknown_labels(lines):
    """Of series that gemmd does not export so, by tests/golden/launch_labels.txt."""
    golden = {(name, label): values for name, label, *values in
              map(str.split, (ROOT / "tests/golden/launch_labels.txt").read_text().splitlines())}
    for line in lines:
        name, labels = SAMPLE.match(line).groups()
        name = re.sub("_(sum|count|bucket)$", "", name)
        yield from (f'{name} never has {label}="{value}"' for label, value in LABEL.findall(labels)
                    if label != "le" and value not in golden.get((name, label), ()))


def gauges():
    """The exposition of a GPU's gauges: of all that gemmd exports, and of no others."""
    exported = set(re.findall(r"^gemmd_gpu_\w+", (ROOT / "tests/golden/metrics.txt").read_text(), re.M))
    if exported != {*GAUGES, THROTTLE}:
        raise ValueError(f"played or exported, but not both: {', '.join(exported ^ {*GAUGES, THROTTLE})}")
    yield from (f'{name}{{device="0"}} {value!r}' for name, value in GAUGES.items())
    yield from (f'{THROTTLE}{{device="0",reason="{reason}"}} {int(reason == PLAYED_REASON)}'
                for reason in sorted(throttle_reasons(ROOT)))


def stall_samples(seconds):
    """The exposition of the samples of warps after `seconds` of play: a server on the CPU has no such series."""
    yield from (f'{STALL_SAMPLES}{{kernel="{kernel}",reason="{reason}"}} {rate * seconds!r}'
                for (kernel, reason), rate in PLAYED_STALLS.items())


def playing(text_of):
    """Returns text_of with the GPU's numbers in it: no series is there that gemmd does not export."""
    start, gpu = time.monotonic(), list(gauges())
    if unknown := list(unknown_labels(launches(0, ()))):
        raise ValueError("; ".join(unknown))

    def played():
        seconds, lines, text = time.monotonic() - start, [], text_of()
        for line in text.splitlines():
            if sample := SAMPLE.match(line):
                value = played_value(sample.group(1), dict(LABEL.findall(sample.group(2) or "")), seconds)
                line = line if value is None else f"{line.rpartition(' ')[0]} {value!r}"
            lines.append(line)
        bounds = dict.fromkeys(BOUND.findall(text))
        return "\n".join([*lines, *gpu, *launches(seconds, bounds), *stall_samples(seconds)]) + "\n"

    return played


def share_of(reason, kernel=None):
    """Of the samples of a kernel, or of all together, those of a reason."""
    of = {key: rate for key, rate in PLAYED_STALLS.items() if kernel in (None, key[0])}
    return sum(rate for key, rate in of.items() if key[1] == reason) / sum(of.values())


def full_of_all():
    """The full stalls of all kernels together: sum over sum."""
    cycles = [play.launches_a_second * play.cycles for play in PLAYED.values()]
    return sum(c * play.full for c, play in zip(cycles, PLAYED.values())) / sum(cycles)
