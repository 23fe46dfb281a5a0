#!/usr/bin/env python3
"""Draws the panels of the dashboards from what a Prometheus has: docs/pictures/DASHBOARD-ROW.png.

  deploy/grafana/pictures.py --data FOLDER          the data of a Prometheus that has ended
  deploy/grafana/pictures.py --prometheus URL       one that runs

Expressions, legends and units are read from dashboards/*.json, and variables are filled in as Grafana does. The
time shown is all that there is of gemmd, unless --from and --to (Unix seconds) say otherwise. Same data, same
bytes. Needs python3-matplotlib, and prometheus for --data.
"""

import argparse
import collections
import contextlib
import io
import itertools
import json
import math
import pathlib
import shutil
import statistics
import sys
import tempfile

import monitored
import rendering

try:
    import matplotlib
    import PIL.Image
except ImportError:
    sys.exit("no matplotlib: install python3-matplotlib, and run this with the distribution's python3")
matplotlib.use("agg")
import matplotlib.colors  # noqa: E402
import matplotlib.figure  # noqa: E402
import matplotlib.ticker  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "dashboards"
PICTURES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "pictures"

# Inches, but for DPI.
WIDTH, DPI = 13.0, 100
PLOT, STAT, LINE, TITLE, FOOT, GAP = 2.1, 0.5, 0.17, 0.35, 0.3, 0.2
MARGIN = 0.75  # left of a plot, for its numbers
MOST_LINES = 12  # of a legend
COLOURS_A_PICTURE = 256  # of its file
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c510a", "#7570b3",
           "#66a61e", "#e7298a", "#1b9e77")
STATES = {"green": "#2e7d32", "red": "#c62828", "orange": "#ef6c00", "text": "#616161"}
CELLS = matplotlib.colors.LinearSegmentedColormap.from_list("cells", ("#ffffff", "#9ebcda", "#8856a7"))

Line = collections.namedtuple("Line", "name labels values")  # values: one a step, NaN where there is none


class Source:
    """A Prometheus, asked for what a dashboard shows of a window of time."""

    def __init__(self, server, window, variables):
        self.server, self.window, self.variables = server, window, {**variables, **window.variables}
        count = int((window.end - window.start) / window.step_s + 1e-6)
        self.times = [window.start + i * window.step_s for i in range(count + 1)]

    def _ask(self, path, expr, **fields):
        answer = self.server.ask(path, query=rendering.filled_in(expr, self.variables), **fields)
        if answer["status"] != "success":
            sys.exit(f"{answer['error']}: {expr}")
        return answer["data"]["result"]

    def lines(self, target):
        start, step = self.window.start, self.window.step_s
        for one in self._ask("query_range", target["expr"], start=start, end=self.window.end, step=step):
            values = [math.nan] * len(self.times)
            for time, text in one["values"]:
                values[min(round((time - start) / step), len(values) - 1)] = float(text)
            if any(map(math.isfinite, values)):
                yield Line(rendering.legend(target["legendFormat"], one["metric"]), one["metric"], values)

    def now(self, target):
        """The labels and the value of each series at the end of the window."""
        for one in self._ask("query", target["expr"], time=self.window.end):
            yield one["metric"], float(one["value"][1])


def finite(values):
    return [value for value in values if math.isfinite(value)]


def unit_of(panel):
    return panel["fieldConfig"]["defaults"]["unit"]


def lines_of(panel, source):
    return [line for target in panel["targets"] for line in source.lines(target)]


class Plot:
    """A panel over time. `height` is known before it is drawn, so that a row can make room."""

    def __init__(self, panel, source):
        self.panel, self.source, self.unit = panel, source, unit_of(panel)
        self.lines = lines_of(panel, source)

    def value_axis(self, axes, top):
        axes.set_ylim(0, top)
        divisor, name = rendering.scale(top, self.unit)  # of all numbers of the axis
        ticks = matplotlib.ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(0, top / divisor)
        shown = [tick for tick in ticks if tick * divisor <= top * 1.001]
        axes.set_yticks([tick * divisor for tick in shown],
                        [f"{rendering.number(tick)} {name}".strip() for tick in shown])

    def time_axis(self, axes):
        times = self.source.times
        axes.set_xlim(0, max(times[-1] - times[0], 1e-3))
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(7, steps=[1, 1.5, 3, 6, 10]))
        axes.xaxis.set_major_formatter(lambda value, _: f"{int(value) // 60}:{int(value) % 60:02}")
        axes.tick_params(labelsize=7, length=2, color="#999999")
        for side in axes.spines.values():
            side.set_visible(False)

    def seconds(self):
        return [time - self.source.times[0] for time in self.source.times]


class TimeSeries(Plot):
    def __init__(self, panel, source):
        super().__init__(panel, source)
        self.stacked = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
        self.lines.sort(key=lambda line: -max(finite(line.values)))
        nonzero = [line for line in self.lines if any(finite(line.values))]
        self.named = (nonzero or self.lines)[:MOST_LINES]  # in the legend; the others are counted there

    @property
    def legend_lines(self):
        return len(self.named) + (len(self.named) < len(self.lines))

    @property
    def height(self):
        return PLOT + FOOT + LINE * (self.legend_lines + 1)

    def draw(self, figure, box):
        axes = box.axes(figure, self.height - PLOT, MARGIN)
        self.time_axis(axes)
        axes.grid(color="#e5e5e5", linewidth=0.6)
        axes.set_axisbelow(True)
        if not self.lines:
            box.note(figure, "No data")
            return
        colours = dict(zip((line.name for line in self.lines), itertools.cycle(COLOURS)))
        tops = [max(finite(line.values)) for line in self.lines]
        if self.stacked:
            filled = [[0 if math.isnan(value) else value for value in line.values] for line in self.lines]
            axes.stackplot(self.seconds(), filled, colors=[colours[line.name] for line in self.lines], alpha=0.6)
            tops = [max(map(sum, zip(*filled)))]
        else:
            for line in self.lines:
                axes.plot(self.seconds(), line.values, color=colours[line.name], linewidth=1.2)
        self.value_axis(axes, max(tops) * 1.08 or 1)
        self.draw_legend(figure, box, colours)

    def draw_legend(self, figure, box, colours):
        across = (0.74, 0.87)  # of the panel's width: mean and max
        for x, text in zip(across, ("mean", "max")):
            box.text(figure, x, LINE * (self.legend_lines + 0.5), text, color="#777777")
        for row, line in enumerate(self.named):
            y = LINE * (self.legend_lines - row - 0.5)
            values = finite(line.values)
            box.text(figure, 0, y, "■", color=colours[line.name])
            box.text(figure, 0.02, y, line.name)
            for x, value in zip(across, (statistics.fmean(values), max(values))):
                box.text(figure, x, y, rendering.value_text(value, self.unit))
        if others := self.lines[len(self.named):]:
            zero = "" if any(any(finite(line.values)) for line in others) else ", at 0"
            box.text(figure, 0.02, LINE * 0.5, f"and {len(others)} more{zero}", color="#777777")


class HeatMap(Plot):
    """Cells of a time by a bucket of a histogram, or by a series."""
    height = PLOT + FOOT + 0.5

    def rows(self):
        """(name, values) from the lowest row up."""
        def key(line):
            try:
                return (0, float(line.name), "")
            except ValueError:
                return (1, 0.0, line.name)
        ordered = sorted(self.lines, key=key)
        if self.panel["targets"][0]["format"] != "heatmap":
            return [(line.name, line.values) for line in ordered]
        unit, below, rows = self.panel["options"]["yAxis"]["unit"], None, []
        for line in ordered:  # each bucket has those below it in it
            values = line.values if below is None else [max(a - b, 0) for a, b in zip(line.values, below)]
            rows.append(("above" if line.name == "+Inf" else rendering.value_text(float(line.name), unit), values))
            below = line.values
        while rows and not any(value > 1e-9 for value in rows[-1][1]):
            rows.pop()
        while len(rows) > 1 and not any(value > 1e-9 for value in rows[0][1]):
            rows.pop(0)
        return rows

    def draw(self, figure, box):
        axes = box.axes(figure, FOOT + 0.5, MARGIN)
        self.time_axis(axes)
        if not (rows := self.rows()):
            box.note(figure, "No data")
            return
        least = self.panel["options"]["filterValues"]["le"]
        cells = [[value if value > least else math.nan for value in values] for _, values in rows]
        half = self.source.window.step_s / 2
        edges = [second - half for second in self.seconds()] + [self.seconds()[-1] + half]
        mesh = axes.pcolormesh(edges, range(len(rows) + 1), cells, cmap=self.panel["options"]["color"]["scheme"],
                               norm=matplotlib.colors.PowerNorm(self.panel["options"]["color"]["exponent"], vmin=0))
        axes.set_yticks([row + 0.5 for row in range(len(rows))], [name for name, _ in rows])
        bar = figure.colorbar(mesh, cax=box.strip(figure, 0.28, 0.1, MARGIN), orientation="horizontal")
        bar.ax.tick_params(labelsize=7, length=2)
        bar.ax.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(4))
        bar.ax.xaxis.set_major_formatter(
            lambda value, _: rendering.value_text(value, self.panel["options"]["cellValues"]["unit"]))
        bar.outline.set_visible(False)


class Stat:
    height = STAT

    def __init__(self, panel, source):
        options, values = panel["options"], {}
        for mapping in panel["fieldConfig"]["defaults"].get("mappings", ()):
            values.update(mapping["options"])
        self.texts = []
        for line in lines_of(panel, source):
            last = finite(line.values)[-1]
            plain = {"text": rendering.value_text(last, unit_of(panel)), "color": "text"}
            state = values.get(rendering.number(last), plain)
            self.texts.append((line.name, "text") if options["textMode"] == "name" else
                              (state["text"], state["color"]))

    def draw(self, figure, box):
        if not self.texts:
            box.note(figure, "No data")
        for i, (text, colour) in enumerate(self.texts):
            points = min(11, box.width * 72 / (0.72 * len(text)))  # so that it fits: a letter is that wide
            box.text(figure, 0, STAT * (1 - (i + 0.5) / len(self.texts)), text, color=STATES[colour],
                     fontsize=points, weight="bold")


def in_order(text):
    """Numbers by value, before names."""
    try:
        return (0, float(text), "")
    except ValueError:
        return (1, 0.0, text)


class Table:
    def __init__(self, panel, source):
        self.unit, cells = unit_of(panel), {}
        changes = {change["id"]: change["options"] for change in panel["transformations"]}
        matrix = changes.get("groupingToMatrix")
        names = changes.get("organize", {}).get("renameByName", {})
        for target in panel["targets"]:
            for labels, value in source.now(target):
                row, column = tuple(sorted(labels.items())), names.get(f"Value #{target['refId']}")
                if matrix:
                    row, column = ((matrix["rowField"], labels[matrix["rowField"]]),), labels[matrix["columnField"]]
                cells.setdefault(row, {})[column] = value
        self.columns = list(dict.fromkeys(itertools.chain.from_iterable(cells.values())))
        if matrix:
            self.columns.sort(key=in_order)
        self.heads = [name for name, _ in next(iter(cells), ())]
        self.rows = sorted(cells.items())

    @property
    def height(self):
        return LINE * 1.5 * (len(self.rows) + 1)

    def draw(self, figure, box):
        if not self.rows:
            box.note(figure, "No data")
            return
        values = finite(value for _, row in self.rows for value in row.values())
        top = max(values, default=1) or 1
        text, colours = [], []
        for labels, row in self.rows:
            given = [row.get(column, math.nan) for column in self.columns]
            text.append([value for _, value in labels] +
                        ["" if math.isnan(value) else rendering.value_text(value, self.unit) for value in given])
            colours.append(["#ffffff"] * len(labels) +
                           ["#ffffff" if math.isnan(value) else CELLS(0.8 * min(value / top, 1)) for value in given])
        axes = box.axes(figure, 0, 0)
        axes.axis("off")
        widths = [3.0] + [1.0] * (len(text[0]) - 1)
        made = axes.table(text, colours, colLabels=self.heads + self.columns, bbox=(0, 0, 1, 1), cellLoc="left",
                          colLoc="left", colWidths=[width / sum(widths) for width in widths])
        made.auto_set_font_size(False)
        made.set_fontsize(7)
        for cell in made.get_celld().values():
            cell.set_edgecolor("#dddddd")


class Box:
    """A panel's part of the figure: inches from the left and from below."""

    def __init__(self, left, bottom, width, height):
        self.left, self.bottom, self.width, self.height = left, bottom, width, height

    def part(self, figure, left, bottom, width, height):
        wide, high = figure.get_size_inches()
        return figure.add_axes((left / wide, bottom / high, width / wide, height / high))

    def axes(self, figure, below, margin):
        return self.part(figure, self.left + margin, self.bottom + below, self.width - margin, self.height - below)

    def strip(self, figure, below, height, margin):
        return self.part(figure, self.left + margin, self.bottom + below, self.width - margin, height)

    def text(self, figure, across, above, text, **style):
        wide, high = figure.get_size_inches()
        figure.text((self.left + across * self.width) / wide, (self.bottom + above) / high, text,
                    **{"fontsize": 7, "va": "center", "parse_math": False, **style})

    def note(self, figure, text):
        self.text(figure, 0.5, self.height / 2, text, ha="center", fontsize=9, color="#777777")


KINDS = {"timeseries": TimeSeries, "heatmap": HeatMap, "stat": Stat, "table": Table}


def draw_row(panels, source, path):
    """Draws the panels of one row, placed as the dashboard places them."""
    drawn = [(panel, KINDS[panel["type"]](panel, source)) for panel in panels]
    tall = {}  # by the panel's y in the dashboard
    for panel, content in drawn:
        y = panel["gridPos"]["y"]
        tall[y] = max(tall.get(y, 0), content.height)
    high = sum(tall.values()) + (TITLE + GAP) * len(tall)
    figure = matplotlib.figure.Figure((WIDTH, high), dpi=DPI, facecolor="white")
    for panel, content in drawn:
        place = panel["gridPos"]
        above = sum(height + TITLE + GAP for y, height in tall.items() if y < place["y"])
        column = WIDTH / 24
        box = Box(place["x"] * column + GAP, high - above - TITLE - content.height, place["w"] * column - 2 * GAP,
                  content.height)
        box.text(figure, 0, content.height + TITLE / 2, panel["title"], fontsize=9, weight="bold")
        content.draw(figure, box)
    drawing = io.BytesIO()
    figure.savefig(drawing, format="png")
    picture = PIL.Image.open(drawing).convert("RGB")
    # Rare colours, such as those of a legend, are to stay apart.
    picture.quantize(COLOURS_A_PICTURE, PIL.Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


def rows_of(board):
    """(title, panels) of each row of a dashboard."""
    rows = []
    for panel in board["panels"]:
        if panel["type"] == "row":
            rows.append((panel["title"], []))
        else:
            rows[-1][1].append(panel)
    return rows


def name_of(board_file, title):
    return f"{board_file.stem}-{title.lower().replace(',', '').replace(' ', '-')}.png"


@contextlib.contextmanager
def kept(folder, program):
    """A Prometheus on a copy of another's data: it would write into it, and delete what is old."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(folder, pathlib.Path(name) / "data", ignore=shutil.ignore_patterns("lock", "queries.active"))
        with monitored.prometheus((), (), pathlib.Path(name), program=program) as server:
            yield server


def window_of(server, start, end):
    """All the time of which there is data, and how often it was scraped."""
    answer = server.ask("query", query="gemmd_health[3650d]", **({"time": end} if end else {}))
    if answer["status"] != "success" or not answer["data"]["result"]:
        sys.exit(f"no data of a gemmd: {answer.get('error', 'no sample of gemmd_health')}")
    series = [[float(time) for time, _ in one["values"]] for one in answer["data"]["result"]]
    longest = [time for time in max(series, key=len) if not start or time >= start]
    if len(longest) < 2:
        sys.exit("fewer than two samples of gemmd_health in the time to be shown")
    between = statistics.median(b - a for a, b in itertools.pairwise(longest))
    return rendering.Window(start or longest[0], end or longest[-1], round(between, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--prometheus", metavar="URL", help="http://HOST:PORT")
    where.add_argument("--data", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--program", default="prometheus", help="the Prometheus that --data starts")
    parser.add_argument("--from", dest="start", type=float, metavar="SECONDS")
    parser.add_argument("--to", dest="end", type=float, metavar="SECONDS")
    parser.add_argument("--pick", action="append", default=[], metavar="VARIABLE=VALUE",
                        help="instance or kernel; may be given again")
    parser.add_argument("--out", type=pathlib.Path, default=PICTURES, metavar="FOLDER")
    arguments = parser.parse_args()
    picked = collections.defaultdict(list)
    for pick in arguments.pick:
        variable, _, value = pick.partition("=")
        picked[variable].append(value)
    running = kept(arguments.data, arguments.program) if arguments.data else contextlib.nullcontext(
        monitored.Prometheus(arguments.prometheus.removeprefix("http://").rstrip("/")))
    arguments.out.mkdir(parents=True, exist_ok=True)
    with running as server:
        window = window_of(server, arguments.start, arguments.end)
        for file in sorted(FOLDER.glob("*.json")):
            board = json.loads(file.read_text())
            source = Source(server, window, rendering.chosen(board, picked))
            for title, panels in rows_of(board):
                path = arguments.out / name_of(file, title)
                draw_row(panels, source, path)
                print(f"{path}: {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
