"""Plays a GPU: the exposition of a gemmd on the CPU, with the numbers of some CUDA kernels moving.

The gauges of a GPU, which a server on the CPU does not have, are put in; their names and labels are those
that tests/golden/metrics.txt and the server's source have.
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


def throttle_reasons(root):
    """The values of gemmd_gpu_throttle_reason's label, from the table in the source."""
    if not (named := set(re.findall(r'\{0x\w+, "(\w+)"\}', (root / COLLECTOR).read_text()))):
        raise ValueError(f"{COLLECTOR}: no table of reasons")
    return named | {"other"}


def played_value(metric, labels, seconds):
    """The value after `seconds` of play, or None where the series is not played."""
    if metric in ("gemmd_device_memory_bytes", "gemmd_pinned_memory_bytes"):
        return PLAYED_BYTES[labels["state"]]
    if metric == "gemmd_pc_sampling_up":
        return 1
    if metric == "gemmd_pc_sampling_seconds_total":
        return seconds
    kernel = labels.get("kernel")
    if metric == "gemmd_kernel_flops_total":
        runs = [p for (name, _), p in PLAYED.items() if name == kernel]
        return sum(p.launches_a_second for p in runs) * seconds * PLAYED_FLOPS if runs else None
    play = PLAYED.get((kernel, labels.get("stages")))
    if play is None:
        return None
    launches = play.launches_a_second * seconds
    cycles = launches * play.cycles
    match metric:
        case "gemmd_kernel_launches_total" | "gemmd_kernel_duration_seconds_count":
            return launches
        case "gemmd_kernel_duration_seconds_sum":
            return launches * play.seconds
        case "gemmd_kernel_duration_seconds_bucket":
            return launches if float(labels["le"]) >= play.seconds else 0
        case "gemmd_kernel_stall_cycles_total":
            return cycles * {"full": play.full, "empty": play.empty}[labels["wait"]]
        case "gemmd_kernel_cycles_total":
            return cycles * {"mainloop": 1, "epilogue": play.epilogue}[labels["part"]]
        case "gemmd_plan_selected_total" if (labels["source"], labels["limit"]) == ("model", "k_tiles"):
            return launches
    return None


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

    def played():
        seconds, lines = time.monotonic() - start, []
        for line in text_of().splitlines():
            if sample := SAMPLE.match(line):
                labels = dict(re.findall(r'(\w+)="((?:\\.|[^"\\])*)"', sample.group(2) or ""))
                value = played_value(sample.group(1), labels, seconds)
                line = line if value is None else f"{line.rpartition(' ')[0]} {value!r}"
            lines.append(line)
        return "\n".join([*lines, *gpu, *stall_samples(seconds)]) + "\n"

    return played


def share_of(reason, kernel=None):
    """Of the samples of a kernel, or of all together, those of a reason."""
    of = {key: rate for key, rate in PLAYED_STALLS.items() if kernel in (None, key[0])}
    return sum(rate for key, rate in of.items() if key[1] == reason) / sum(of.values())


def full_of_all():
    """The full stalls of all kernels together: sum over sum."""
    cycles = [play.launches_a_second * play.cycles for play in PLAYED.values()]
    return sum(c * play.full for c, play in zip(cycles, PLAYED.values())) / sum(cycles)
