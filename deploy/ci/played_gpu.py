"""Plays a GPU: the exposition of a gemmd on the CPU, with the numbers of some CUDA kernels moving."""

import dataclasses
import re
import time


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
SAMPLE = re.compile(r"^(gemmd_\w+)\{(.*)\} \S+$")


def played_value(metric, labels, seconds):
    """The value after `seconds` of play, or None where the series is not played."""
    if metric in ("gemmd_device_memory_bytes", "gemmd_pinned_memory_bytes"):
        return PLAYED_BYTES[labels["state"]]
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


def playing(text_of):
    """Returns text_of with the GPU's numbers in it: no series is there that gemmd does not export."""
    start = time.monotonic()

    def played():
        seconds, lines = time.monotonic() - start, []
        for line in text_of().splitlines():
            if sample := SAMPLE.match(line):
                labels = dict(re.findall(r'(\w+)="((?:\\.|[^"\\])*)"', sample.group(2)))
                value = played_value(sample.group(1), labels, seconds)
                line = line if value is None else f"{sample.group(1)}{{{sample.group(2)}}} {value!r}"
            lines.append(line)
        return "\n".join(lines) + "\n"

    return played


def full_of_all():
    """The full stalls of all kernels together: sum over sum."""
    cycles = [play.launches_a_second * play.cycles for play in PLAYED.values()]
    return sum(c * play.full for c, play in zip(cycles, PLAYED.values())) / sum(cycles)
