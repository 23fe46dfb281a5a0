#!/usr/bin/env python3
"""The dashboards, and the one place to change them: dashboards/*.json is written from here.

  deploy/grafana/dashboards.py          write the JSON
  deploy/grafana/dashboards.py --check  exit 1 where the JSON is not what this would write
"""

import json
import pathlib
import sys

from grafana import Dashboard, Panel, Query, Row, dashboard_json

FOLDER = pathlib.Path(__file__).parent / "dashboards"

SERVER = 'instance=~"$instance"'
KERNEL = SERVER + ', kernel=~"$kernel"'

NO_POOL = "the CPU backend sets no memory aside"
NO_RING = "the probe is in the CUDA kernels that have a ring of stages"
NO_NVML = "the gauges are those of NVIDIA's driver"
NO_SAMPLES = "the samples are those of NVIDIA's GPUs, where the driver permits them (pc-sampling)"

YES_NO = (("0", "no", "green"), ("1", "yes", "orange"))


def rate(metric, by="", chosen=SERVER, where="", window="$__rate_interval"):
    """A counter's sum of rates, as PromQL: rates first, so that a server's restart is no dip."""
    grouped = f"sum by ({by})" if by else "sum"
    return f"{grouped} (rate({metric}{{{', '.join(filter(None, (chosen, where)))}}}[{window}]))"


def busy(expr):
    """Without what is idle: most of the kernels always are, and would fill the legend."""
    return f"{expr} > 0"


def ratio(over, under, match=""):
    """Sum over sum. A mean of ratios would let a rare kernel count as much as a busy one."""
    return f"{over} / {match}({busy(under)})"


def share(used, limit):
    """Of a limit that each server has for itself."""
    return ratio(f"sum by (instance) ({used}{{{SERVER}}})", f"sum by (instance) ({limit}{{{SERVER}}})")


def quantiles(metric, *shares):
    return tuple(Query(f"histogram_quantile({share}, {rate(metric + '_bucket', 'le')})", f"p{share * 100:g}")
                 for share in shares)


def stalls(wait, by, window="$__rate_interval"):
    return ratio(rate("gemmd_kernel_stall_cycles_total", by, KERNEL, f'wait="{wait}"', window),
                 rate("gemmd_kernel_cycles_total", by, KERNEL, 'part="mainloop"', window))


def epilogue(by, window="$__rate_interval"):
    return ratio(rate("gemmd_kernel_cycles_total", by, KERNEL, 'part="epilogue"', window),
                 rate("gemmd_kernel_cycles_total", by, KERNEL, window=window))


def reasons(by, window="$__rate_interval"):
    """Of the samples of the chosen kernels, or of each of them, those of a reason."""
    under = rate("gemmd_kernel_stall_samples_total", by, KERNEL, window=window)
    return ratio(rate("gemmd_kernel_stall_samples_total", ", ".join(filter(None, (by, "reason"))), KERNEL,
                      window=window), under, f"on ({by}) group_left () ")


LANES = ratio(f'sum by (instance, device) (gemmd_lanes{{{SERVER}, state="busy"}})',
              f"sum by (instance, device) (gemmd_lanes{{{SERVER}}})")

SERVICE = Dashboard(
    "gemmd-service", "gemmd: service", "Whether gemmd serves, how fast, and what waits or is refused.", (
        Row("State", (
            Panel("Health", "1 on every chosen server: each device works and new work is taken. A server that drains "
                  "or has lost a device shows 0.", "none", (Query(f"min(gemmd_health{{{SERVER}}})", "health"),),
                  "stat", 4, values=(("0", "not serving", "red"), ("1", "serving", "green"))),
            Panel("Draining", "Whether a chosen server refuses new work because it was told to end.", "none",
                  (Query(f"max(gemmd_draining{{{SERVER}}})", "draining"),), "stat", 4, values=YES_NO,
                  still="a server that drains takes no load"),
            Panel("Up for", "Time since the youngest of the chosen servers started.", "s",
                  (Query(f"min(time() - gemmd_start_time_seconds{{{SERVER}}})", "up"),), "stat", 4),
            Panel("Version", "What the chosen servers were built from; more than one while a new one is rolled out.",
                  "none", (Query(f"count by (version, revision) (gemmd_build_info{{{SERVER}}})",
                                 "{{version}} ({{revision}})"),), "stat", 4, names=True),
            Panel("Devices", "What multiplies.", "none",
                  (Query(f"count by (device, name) (gemmd_device_info{{{SERVER}}})", "{{device}}: {{name}}"),),
                  "stat", 8, names=True),
        )),
        Row("Calls", (
            Panel("Products by status", "Calls of Gemm that ended. OK should be nearly all; RESOURCE_EXHAUSTED means "
                  "that callers ask for more than is taken, INTERNAL and UNKNOWN are faults of the server.", "reqps",
                  (Query(rate("gemmd_requests_total", "code", where='method="Gemm"'), "{{code}}"),), stacked=True),
            Panel("Failed by the server", "Share of Gemm calls that ended for a reason that is not their caller's.",
                  "percentunit",
                  (Query(ratio(rate("gemmd_requests_total",
                                    where='method="Gemm", code=~"INTERNAL|UNKNOWN|UNAVAILABLE"'),
                               rate("gemmd_requests_total", where='method="Gemm"')), "failed"),),
                  still="no fault is injected"),
            Panel("Calls by method", "Calls that arrived, refused ones included.", "reqps",
                  (Query(busy(rate("gemmd_requests_started_total", "method")), "{{method}}"),)),
            Panel("Calls under way", "Calls that arrived and have not ended. A line that only grows is a leak, or "
                  "callers that do not read their replies.", "none",
                  (Query(busy(f"sum by (method) (gemmd_requests_started_total{{{SERVER}}}) - "
                              f"sum by (method) (gemmd_requests_total{{{SERVER}}})"), "{{method}}"),)),
            Panel("Refused products", "Products that were not admitted, by reason. queue_full and queue_bytes: more "
                  "work than lanes; reply_bytes: callers that do not read; memory: larger than this server ever has.",
                  "reqps", (Query(rate("gemmd_rejected_total", "reason"), "{{reason}}"),)),
            Panel("Given up by callers", "Admitted products whose caller cancelled, vanished or met its deadline, by "
                  "what the product was doing: waiting (queue), running (run), being sent (reply).", "reqps",
                  (Query(rate("gemmd_cancelled_total", "phase"), "{{phase}}"),)),
        )),
        Row("Latency", (
            Panel("Time of a product", "Arrival to result, admitted products alone. A quantile lies within a bucket "
                  "of the histogram: read it to a factor of two.", "s",
                  quantiles("gemmd_request_duration_seconds", 0.5, 0.95, 0.99)),
            Panel("Where the time goes", "Mean time of a product in each phase, stacked up to its whole time. queue: "
                  "too few lanes; stage, h2d, d2h and unstage: copies; kernel: the work itself.", "s",
                  (Query(ratio(rate("gemmd_request_phase_seconds_sum", "phase"),
                               rate("gemmd_request_duration_seconds_count"), "on () group_left () "), "{{phase}}"),),
                  stacked=True),
            Panel("Times of products", "Products a second by time. Two bands are two kinds of work.", "reqps",
                  (Query(rate("gemmd_request_duration_seconds_bucket", "le"), "{{le}}"),), "heatmap", buckets="s"),
            Panel("Sizes of products", "Bytes of operands and result of a product. Larger ones explain longer times.",
                  "bytes", quantiles("gemmd_request_bytes", 0.5, 0.95)),
        )),
        Row("Queue and lanes", (
            Panel("Waiting and running", "Products that wait for a lane, and that have one. Waiting ones with idle "
                  "lanes mean that memory is short; see the memory dashboard.", "none",
                  (Query(f"sum(gemmd_queue_depth{{{SERVER}}})", "waiting"),
                   Query(f"sum(gemmd_inflight_requests{{{SERVER}}})", "running"))),
            Panel("Busy lanes", "Share of a device's lanes that have a product. At 100 % more lanes or devices help, "
                  "below it they do not.", "percentunit",
                  (Query(LANES, "{{instance}} device {{device}}"),)),
            Panel("Bytes multiplied", "Operands and results of admitted products.", "Bps",
                  (Query(rate("gemmd_request_bytes_sum"), "operands and results"),)),
            Panel("Queue in use", "What waits over what may wait (max-queue, max-queue-bytes). At 100 % of either "
                  "products are refused.", "percentunit",
                  (Query(share("gemmd_queue_depth", "gemmd_queue_limit_requests"), "{{instance}} by count"),
                   Query(share("gemmd_queue_bytes", "gemmd_queue_limit_bytes"), "{{instance}} by bytes"))),
        )),
    ))

KERNELS = Dashboard(
    "gemmd-kernels", "gemmd: kernels and stalls",
    "What runs on the devices, how many stages it has, and what it waits for.", (
        Row("Throughput", (
            Panel("Floating-point operations", "Of products that ended well, per second of wall time.", "flops",
                  (Query(busy(rate("gemmd_kernel_flops_total", "kernel", KERNEL)), "{{kernel}}"),), stacked=True),
            Panel("Operations while running", "Per second of the kernel's own device time: the kernel's speed, idle "
                  "time aside. Compare a kernel with itself over time: small products are slower on any.", "flops",
                  (Query(ratio(rate("gemmd_kernel_flops_total", "kernel", KERNEL),
                               rate("gemmd_kernel_duration_seconds_sum", "kernel", KERNEL)), "{{kernel}}"),)),
            Panel("Launches", "Launches that ended, failed ones included.", "cps",
                  (Query(busy(rate("gemmd_kernel_launches_total", "kernel, stages", KERNEL)),
                         "{{kernel}}, {{stages}} stages"),), stacked=True),
            Panel("Device time", "Seconds of device time for each second of wall time. It exceeds 1 where lanes "
                  "or devices work side by side.", "none",
                  (Query(busy(rate("gemmd_kernel_duration_seconds_sum", "kernel", KERNEL)), "{{kernel}}"),), stacked=True),
            Panel("Mean time of a launch", "Device time by device events. The same line at another stage count shows "
                  "what stages buy, where the shapes are alike.", "s",
                  (Query(ratio(rate("gemmd_kernel_duration_seconds_sum", "kernel, stages", KERNEL),
                               rate("gemmd_kernel_duration_seconds_count", "kernel, stages", KERNEL)),
                         "{{kernel}}, {{stages}} stages"),)),
            Panel("Times of launches", "Launches a second by device time; the buckets are a factor of eight wide.",
                  "cps", (Query(rate("gemmd_kernel_duration_seconds_bucket", "le", KERNEL), "{{le}}"),), "heatmap",
                  buckets="s"),
        )),
        Row("Stalls", (
            Panel("Stalls of all chosen kernels", "Cycles waited over cycles in the main loop, summed before they are "
                  "divided. full: panels arrive too late, so more stages or a larger tile may help. empty: slots are "
                  "not free, so the arithmetic is the limit, as it should be. epilogue: share of all cycles.",
                  "percentunit", (Query(stalls("full", ""), "full"), Query(stalls("empty", ""), "empty"),
                                  Query(epilogue(""), "epilogue")), absent=NO_RING),
            Panel("Stalls over the time shown", "Each kernel at each stage count, as in the panels around. Where full "
                  "falls from one stage count to the next, the stage was worth its memory.", "percentunit",
                  (Query(stalls("full", "kernel, stages", "$__range"), "full"),
                   Query(stalls("empty", "kernel, stages", "$__range"), "empty"),
                   Query(epilogue("kernel, stages", "$__range"), "epilogue")), "table", absent=NO_RING),
            Panel("Waits for a stage to arrive", "full over main loop: the consumer waits until a panel has landed. "
                  "High: bound by memory, or too few stages to hide its latency.", "percentunit",
                  (Query(stalls("full", "kernel, stages"), "{{kernel}}, {{stages}} stages"),), absent=NO_RING),
            Panel("Waits for a stage to be free", "empty over main loop: the producer waits until nobody reads the "
                  "slot. High: bound by arithmetic, and stages beyond these buy nothing. It may exceed 100 % where "
                  "K is short: a TMA producer also waits through epilogues.", "percentunit",
                  (Query(stalls("empty", "kernel, stages"), "{{kernel}}, {{stages}} stages"),), absent=NO_RING),
            Panel("Epilogue", "Share of all cycles that go into scaling, adding and storing tiles. High where K is "
                  "short.", "percentunit",
                  (Query(epilogue("kernel, stages"), "{{kernel}}, {{stages}} stages"),), absent=NO_RING),
            Panel("Records dropped", "Launches whose counters could not be their own, and are in no panel here. Other "
                  "than zero is a defect, launches of seconds, or another process on the GPU.", "cps",
                  (Query(rate("gemmd_kernel_stall_records_dropped_total", "instance"), "{{instance}}"),),
                  still="no record is damaged"),
        )),
        Row("Samples of warps", (
            Panel("What warps wait for", "Share of the samples that the GPU took of the chosen kernels' warps, by its "
                  "own names; selected: the warp issued. The cycles above are of the ring of stages alone, these of "
                  "every wait.", "percentunit", (Query(reasons(""), "{{reason}}"),), stacked=True, absent=NO_SAMPLES),
            Panel("Reasons of each kernel", "Share of a kernel's samples over the time shown: kernels down, reasons "
                  "across. sum_parts adds up parts of K; other is what gemmd did not launch. gemmctl profile says "
                  "where in a kernel they are.", "percentunit",
                  (Query(busy(reasons("kernel", "$__range")), "share"),), "table", matrix=("kernel", "reason"),
                  absent=NO_SAMPLES),
            Panel("Foremost reasons", "The three that each kernel is found at most, selected included.", "percentunit",
                  (Query(f"topk by (kernel) (3, {busy(reasons('kernel'))})", "{{kernel}}: {{reason}}"),),
                  absent=NO_SAMPLES),
            Panel("Time sampled", "Of wall time and of all devices: all of it, whatever the rate, but for what could not "
                  "be read. Zero: sampling is off, or the log says what is in the way.", "percentunit",
                  (Query(ratio(rate("gemmd_pc_sampling_seconds_total", "instance"),
                               f"count by (instance) (gemmd_device_info{{{SERVER}}})"), "{{instance}}"),),
                  absent=NO_SAMPLES),
            Panel("Sampled", "Whether the last samples of every device of each chosen server could be read.", "none",
                  (Query(f"min(gemmd_pc_sampling_up{{{SERVER}}})", "sampled"),), "stat", 6,
                  values=(("0", "no", "text"), ("1", "yes", "green")), absent=NO_SAMPLES),
            Panel("Samples dropped", "Samples for which the hardware had no room. Beyond a few, what runs while it "
                  "drops them is seen too little: sample less.", "cps",
                  (Query(rate("gemmd_pc_sampling_dropped_samples_total", "instance"), "{{instance}}"),), width=18,
                  absent=NO_SAMPLES, still="none is dropped"),
        )),
        Row("Stages and plans", (
            Panel("Stage choice", "Plans a second by stage count; 0 is a kernel without a ring. Choose one kernel "
                  "above to see its own choices.", "cps",
                  (Query(rate("gemmd_plan_selected_total", "stages", KERNEL), "{{stages}}"),), "heatmap"),
            Panel("Stage choice by kernel", "Plans over the time shown: kernels down, stage counts across.", "short",
                  (Query(busy(f"sum by (kernel, stages) (increase(gemmd_plan_selected_total{{{KERNEL}}}[$__range]))"),
                         "plans"),), "table", matrix=("kernel", "stages")),
            Panel("What bound the stages", "Why plans have no more stages: k_tiles (K is short), shared_memory, "
                  "residency (one more would cost resident blocks), model or measured (one more is not faster), "
                  "forced (the request said so), none (no ring).", "cps",
                  (Query(rate("gemmd_plan_selected_total", "limit", KERNEL), "{{limit}}"),), stacked=True),
            Panel("Where plans come from", "model: predicted; measured: tuning timed it; forced: the request named "
                  "kernel or stages.", "cps",
                  (Query(rate("gemmd_plan_selected_total", "source", KERNEL), "{{source}}"),), stacked=True),
        )),
        Row("Tuning", (
            Panel("Device is timed", "While it is, products that run beside it are slower, and what is measured is "
                  "slow too.", "none", (Query(f"max(gemmd_tuning_running{{{SERVER}}})", "timed"),), "stat", 6,
                  values=YES_NO),
            Panel("Problems known", "Problems whose measured times plans are made with.", "short",
                  (Query(f"sum(gemmd_tuning_entries{{{SERVER}}})", "problems"),), "stat", 6),
            Panel("Problems timed", "Since the start, background tuning included.", "short",
                  (Query(f"sum(gemmd_tuning_problems_total{{{SERVER}}})", "problems"),), "stat", 6),
            Panel("Started from a tuning file", "Whether every chosen server began with what its file holds.", "none",
                  (Query(f"min(gemmd_tuning_file_loaded{{{SERVER}}})", "loaded"),), "stat", 6,
                  values=(("0", "no", "text"), ("1", "yes", "green")), still="the first start has no file to load"),
            Panel("Runs of tuning", "Runs of Tune and Study that ended, by how. failed and drained ones kept what they "
                  "had measured.", "cps", (Query(rate("gemmd_tuning_runs_total", "result"), "{{result}}"),)),
            Panel("Time in tuning", "Seconds in which a device was timed, for each second of wall time. "
                  "background-share bounds it where no run was asked for.", "percentunit",
                  (Query(rate("gemmd_tuning_seconds_total", "instance"), "{{instance}}"),)),
            Panel("Saves of the tuning file", "A failed save is explained in the log; what was measured stays in use.",
                  "cps", (Query(rate("gemmd_tuning_saves_total", "result"), "{{result}}"),)),
        )),
    ), by_kernel=True)


def pool(metric, title, description):
    """Two panels of a pool: how full, and how large."""
    return (
        Panel(f"{title} in use", f"Share of the {description} that products hold. At 100 % products wait with "
              "idle lanes.", "percentunit",
              (Query(ratio(f'sum by (instance, device) ({metric}{{{SERVER}, state="used"}})',
                           f"sum by (instance, device) ({metric}{{{SERVER}}})"), "{{instance}} device {{device}}"),),
              absent=NO_POOL),
        Panel(f"{title} by state", f"The {description}; used and free make up what was set aside at start.", "bytes",
              (Query(f"sum by (device, state) ({metric}{{{SERVER}}})", "device {{device}} {{state}}"),),
              stacked=True, absent=NO_POOL),
    )


MEMORY = Dashboard(
    "gemmd-memory", "gemmd: memory", "How full the pools and the budgets of requests are.", (
        Row("Pools", (
            *pool("gemmd_device_memory_bytes", "Device pool", "device memory of device-pool"),
            *pool("gemmd_pinned_memory_bytes", "Pinned pool", "pinned host memory of pinned-pool"),
        )),
        Row("Requests in host memory", (
            Panel("Results not taken yet", "Results of open calls, unread ones included. High without load: callers "
                  "do not read.", "bytes",
                  (Query(f"sum by (instance) (gemmd_reply_bytes{{{SERVER}}})", "{{instance}}"),)),
            Panel("Products that wait", "Operands and results in the queue.", "bytes",
                  (Query(f"sum by (instance) (gemmd_queue_bytes{{{SERVER}}})", "{{instance}}"),)),
            Panel("Budgets in use", "Both over their limits, max-reply-bytes and max-queue-bytes. At 100 % products "
                  "are refused.", "percentunit",
                  (Query(share("gemmd_reply_bytes", "gemmd_reply_limit_bytes"), "{{instance}} results"),
                   Query(share("gemmd_queue_bytes", "gemmd_queue_limit_bytes"), "{{instance}} waiting"))),
            Panel("Refused for memory", "memory: larger than this server ever has; queue_bytes and reply_bytes: a "
                  "budget is full, and waiting helps.", "reqps",
                  (Query(rate("gemmd_rejected_total", "reason", where='reason=~"memory|queue_bytes|reply_bytes"'),
                         "{{reason}}"),)),
            Panel("Sizes of products", "Products a second by bytes of operands and result.", "reqps",
                  (Query(rate("gemmd_request_bytes_bucket", "le"), "{{le}}"),), "heatmap", 24, buckets="bytes"),
        )),
    ))


def gauge(metric, what=""):
    return Query(f"max by (instance, device) ({metric}{{{SERVER}}})", f"{{{{instance}}}} device {{{{device}}}}{what}")


def gauge_panel(title, description, unit, *queries):
    return Panel(title, description, unit, queries, absent=NO_NVML)


FAULTS = 'reason=~"sw_thermal_slowdown|hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown"'

DEVICE = Dashboard(
    "gemmd-device", "gemmd: devices", "How busy, hot and fast the GPUs are, beside what gemmd does with them.", (
        Row("What they are", (
            Panel("Devices", "What the chosen servers multiply on.", "none",
                  (Query(f"count by (device, name) (gemmd_device_info{{{SERVER}}})", "{{device}}: {{name}}"),),
                  "stat", 8, names=True),
            Panel("Version", "What the chosen servers were built from.", "none",
                  (Query(f"count by (version, revision) (gemmd_build_info{{{SERVER}}})",
                         "{{version}} ({{revision}})"),), "stat", 4, names=True),
            Panel("Slowed by a fault", "Whether heat, a power brake or the hardware holds a clock down now. A power cap "
                  "is none: a busy GPU works at its limit.", "none",
                  (Query(f"max(gemmd_gpu_throttle_reason{{{SERVER}, {FAULTS}}})", "slowed"),), "stat", 4,
                  values=(("0", "no", "green"), ("1", "yes", "red")), absent=NO_NVML,
                  still="a fault is not what is played"),
            Panel("Hottest", "Temperature of the hottest chosen GPU.", "celsius",
                  (Query(f"max(gemmd_gpu_temperature_celsius{{{SERVER}}})", "hottest"),), "stat", 4, absent=NO_NVML),
            Panel("Age of the readings", "Since the driver last answered; it is asked every second. Above 30 s it "
                  "hangs, and its other gauges are gone.", "s",
                  (Query(f"max(gemmd_gpu_sample_age_seconds{{{SERVER}}})", "age"),), "stat", 4, absent=NO_NVML),
        )),
        Row("Use", (
            gauge_panel("Time with a kernel", "Part of the time in which some kernel ran, of any process. 100 % says "
                        "that the GPU is never idle, not that it is fast: see the operations beside it.",
                        "percentunit", gauge("gemmd_gpu_sm_utilization_ratio")),
            Panel("gemmd's floating-point operations", "Of products that ended well, per second of wall time, on all "
                  "devices of a server.", "flops",
                  (Query(busy(rate("gemmd_kernel_flops_total", "instance")), "{{instance}}"),)),
            Panel("gemmd's kernels", "Seconds of gemmd's kernels for each second of wall time, on all devices of a "
                  "server. Where it is low and the time with a kernel is high, another process uses the GPU.", "none",
                  (Query(busy(rate("gemmd_kernel_duration_seconds_sum", "instance")), "{{instance}}"),)),
            Panel("Busy lanes", "Share of a device's lanes that have a product: what gemmd is asked for.",
                  "percentunit", (Query(LANES, "{{instance}} device {{device}}"),)),
            gauge_panel("Time with memory traffic", "Part of the time in which device memory was read or written.",
                        "percentunit", gauge("gemmd_gpu_memory_utilization_ratio")),
            gauge_panel("Device memory", "Taken by all processes and the driver, what of it is gemmd's pool, and what "
                        "there is.", "bytes", gauge("gemmd_gpu_memory_used_bytes", " taken"),
                        Query(f"sum by (instance, device) (gemmd_device_memory_bytes{{{SERVER}}})",
                              "{{instance}} device {{device}} gemmd's pool"),
                        gauge("gemmd_gpu_memory_total_bytes", " in all")),
        )),
        Row("Power, heat and clocks", (
            gauge_panel("Power", "What a GPU draws, and may draw. At its limit the clocks follow the power: that is "
                        "usual for large products.", "watt", gauge("gemmd_gpu_power_watts"),
                        gauge("gemmd_gpu_power_limit_watts", " limit")),
            gauge_panel("Temperature", "Of the core. One that rises while power does not is a matter of cooling.",
                        "celsius", gauge("gemmd_gpu_temperature_celsius")),
            gauge_panel("Clocks", "Of the SMs and of the memory. Times that were measured at another clock of the SMs "
                        "do not compare.", "hertz", gauge("gemmd_gpu_sm_clock_hertz", " SM"),
                        gauge("gemmd_gpu_memory_clock_hertz", " memory")),
            gauge_panel("Why the clocks are held down", "Part of the time for each reason. sw_power_cap: at the power "
                        "limit, usual under load; gpu_idle: nothing to do; thermal ones, hw_slowdown and the power "
                        "brake are faults.", "percentunit",
                        Query(busy("sum by (instance, device, reason) (avg_over_time("
                                   f"gemmd_gpu_throttle_reason{{{SERVER}}}[$__rate_interval]))"),
                              "{{instance}} device {{device}} {{reason}}")),
        )),
    ))

DASHBOARDS = (SERVICE, KERNELS, MEMORY, DEVICE)


def rendered():
    """File name -> text."""
    return {d.file: json.dumps(dashboard_json(d), indent=2, ensure_ascii=False) + "\n" for d in DASHBOARDS}


def stale():
    """Says which files are not what this would write; nothing where all are."""
    texts = rendered()
    there = {path.name: path.read_text() for path in FOLDER.iterdir()}
    wrong = [name for name in sorted(texts | there) if texts.get(name) != there.get(name)]
    return f"{', '.join(wrong)} in {FOLDER}: not from deploy/grafana/dashboards.py; run it" if wrong else ""


def main():
    if sys.argv[1:] == ["--check"]:
        sys.exit(stale() or 0)
    if sys.argv[1:]:
        sys.exit(__doc__)
    for name, text in rendered().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
