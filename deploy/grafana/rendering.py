"""What Grafana makes of a dashboard's JSON: variables filled in, legends, values as text."""

import dataclasses
import math
import re

VARIABLE = re.compile(r"\$(?:(\w+)|{(\w+)})")
POINTS = 300  # of a line, where the scrapes are that close


def filled_in(expr, values):
    """`expr` with the value of each of its variables; a ValueError names one that has none."""
    def value(found):
        name = found.group(1) or found.group(2)
        if name not in values:
            raise ValueError(f"no variable ${name}: {expr}")
        return values[name]
    return VARIABLE.sub(value, expr)


def chosen(board, picked):
    """Variable -> text of a dashboard whose reader has picked values; `All` of those that he has not."""
    def any_of(values):
        # A regular expression in a PromQL string, where a backslash is written twice.
        escaped = [re.sub(r"[$^*{}\[\]+?.()|\\]", r"\\\\\g<0>", value) for value in values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
    return {variable["name"]: any_of(picked[variable["name"]]) if picked.get(variable["name"])
            else variable["allValue"]
            for variable in board["templating"]["list"] if variable["type"] == "query"}


@dataclasses.dataclass(frozen=True)
class Window:
    """The time that is shown, Unix seconds, and the seconds between two scrapes."""
    start: float
    end: float
    scrape_s: float

    @property
    def step_s(self):
        return max((self.end - self.start) / POINTS, self.scrape_s)

    @property
    def variables(self):
        def duration(seconds):
            return f"{round(seconds * 1000)}ms"
        return {"__interval": duration(self.step_s), "__range": duration(self.end - self.start),
                "__rate_interval": duration(max(self.step_s + self.scrape_s, 4 * self.scrape_s))}


def legend(text, labels):
    return re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found.group(1), found.group(1)), text)


# Unit -> the factor between two scales, and their names.
SCALES = {
    "none": (1000, ("",)),
    "short": (1000, ("", "K", "M", "G")),
    "bytes": (1024, ("B", "KiB", "MiB", "GiB", "TiB")),
    "Bps": (1000, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")),
    "flops": (1000, ("FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s")),
    "hertz": (1000, ("Hz", "kHz", "MHz", "GHz")),
    "watt": (1000, ("W", "kW", "MW")),
    "celsius": (1000, ("°C",)),
    "reqps": (1000, ("req/s", "K req/s")),
    "cps": (1000, ("c/s", "K c/s")),
}
SECONDS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def scale(value, unit):
    """What to divide a value of that size by, and the name of what is left."""
    value = abs(value)
    if unit == "percentunit":
        return 0.01, "%"
    if unit == "s":
        return next((one for one in SECONDS if value >= one[0]), SECONDS[3] if value == 0 else SECONDS[-1])
    if unit not in SCALES:
        raise ValueError(f"no unit {unit}")
    factor, names = SCALES[unit]
    power = min(int(math.log(value, factor) + 1e-9), len(names) - 1) if value >= 1 else 0
    return factor**power, names[power]


def number(value):
    """Three digits of it, and no zeros that say nothing."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else str(value)
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def value_text(value, unit):
    if not math.isfinite(value):
        return str(value)
    divisor, name = scale(value, unit)
    return f"{number(value / divisor)} {name}".strip()
