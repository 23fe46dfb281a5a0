"""Panels and dashboards as Grafana's JSON (schema 38, Grafana 10 and later), so that all look alike.

A panel says besides what deploy/ci/dashboards_test.py may ask of it: `absent` is why a server on the
CPU has nothing to show, `still` why the test's load leaves a zero there.
"""

import dataclasses

SCHEMA = 38
COLUMNS = 24  # of Grafana's grid
HEIGHT = 8  # grid rows of a panel
STAT_HEIGHT = 4
TAG = "gemmd"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclasses.dataclass(frozen=True)
class Query:
    expr: str
    legend: str = ""  # of a table: the name of its column


@dataclasses.dataclass(frozen=True)
class Panel:
    title: str
    description: str  # how to read it
    unit: str  # an id of Grafana's
    queries: tuple
    kind: str = "timeseries"  # timeseries, stat, heatmap or table
    width: int = 12
    stacked: bool = False
    names: bool = False  # a stat shows the series' names, not their values
    values: tuple = ()  # of a stat: (value, text, colour)
    buckets: str = ""  # of a heat map over a histogram: the buckets' unit
    matrix: tuple = ()  # of a table: the labels of its rows and columns
    absent: str = ""
    still: str = ""

    @property
    def text(self):
        return f"{self.description} On the CPU there is none: {self.absent}." if self.absent else self.description


@dataclasses.dataclass(frozen=True)
class Row:
    title: str
    panels: tuple


@dataclasses.dataclass(frozen=True)
class Dashboard:
    uid: str  # "gemmd-NAME"; links and bookmarks hold on to it
    title: str
    description: str
    rows: tuple
    by_kernel: bool = False  # whether its reader may choose kernels

    @property
    def file(self):
        return self.uid.removeprefix(f"{TAG}-") + ".json"


def targets(panel):
    instant = panel.kind == "table"
    for index, query in enumerate(panel.queries):
        yield {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend,
            "format": {"table": "table", "heatmap": "heatmap" if panel.buckets else "time_series"}.get(
                panel.kind, "time_series"),
            "instant": instant,
            "range": not instant,
        }


def timeseries(panel):
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 30 if panel.stacked else 0,
              "showPoints": "never", "spanNulls": False,
              "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"}}
    options = {"legend": {"displayMode": "table", "placement": "bottom", "showLegend": True,
                          "calcs": ["mean", "max"], "sortBy": "Max", "sortDesc": True},
               "tooltip": {"mode": "multi", "sort": "desc"}}
    return {"min": 0, "custom": custom}, options, []


def stat(panel):
    defaults = {}
    if panel.values:
        defaults["mappings"] = [{"type": "value", "options": {
            value: {"index": index, "text": text, "color": colour}
            for index, (value, text, colour) in enumerate(panel.values)}}]
    options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
               "textMode": "name" if panel.names else "auto", "graphMode": "none",
               "colorMode": "background" if panel.values else "value"}
    return defaults, options, []


def heatmap(panel):
    options = {"calculate": False, "cellGap": 1,
               "color": {"mode": "scheme", "scheme": "Blues", "steps": 64, "exponent": 0.5},
               "filterValues": {"le": 1e-9},
               "cellValues": {"unit": panel.unit}, "yAxis": {"axisPlacement": "left", "unit": panel.buckets or "none"},
               "tooltip": {"mode": "single", "yHistogram": False, "show": True}, "legend": {"show": True}}
    return {}, options, []


def table(panel):
    """One row for each set of labels; with a matrix, one for each value of its first label."""
    defaults = {"custom": {"align": "auto", "cellOptions": {"type": "color-background", "mode": "basic"}},
                "color": {"mode": "continuous-BlPu"}, "min": 0}
    options = {"showHeader": True}
    if panel.matrix:
        row, column = panel.matrix
        change = [{"id": "sortBy", "options": {"fields": {}, "sort": [{"field": column}]}},
                  {"id": "groupingToMatrix",
                   "options": {"rowField": row, "columnField": column, "valueField": "Value"}}]
        return defaults, options, change
    names = {f"Value #{target['refId']}": query.legend for target, query in zip(targets(panel), panel.queries)}
    change = [{"id": "merge", "options": {}},
              {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}}]
    return defaults, options, change


def panel_json(panel, number, place):
    defaults, options, change = {"timeseries": timeseries, "stat": stat, "heatmap": heatmap, "table": table}[
        panel.kind](panel)
    made = {"id": number, "type": panel.kind, "title": panel.title, "description": panel.text,
            "datasource": SOURCE, "gridPos": place, "targets": list(targets(panel)),
            "fieldConfig": {"defaults": {"unit": panel.unit, **defaults}, "overrides": []}, "options": options}
    if panel.kind == "table":  # labels are text
        made["fieldConfig"]["overrides"] = [
            {"matcher": {"id": "byRegexp", "options": "kernel|stages|kernel.*stages"},
             "properties": [{"id": "custom.cellOptions", "value": {"type": "auto"}}, {"id": "unit", "value": "none"}]}]
    if change:
        made["transformations"] = change
    return made


def laid_out(rows):
    """Yields the panels from left to right, and each row's title above its own."""
    number, y = 1, 0
    for row in rows:
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": [],
               "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}
        number, y, x, height = number + 1, y + 1, 0, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                y, x, height = y + height, 0, 0
            tall = STAT_HEIGHT if panel.kind == "stat" else HEIGHT
            yield panel_json(panel, number, {"x": x, "y": y, "w": panel.width, "h": tall})
            number, x, height = number + 1, x + panel.width, max(height, tall)
        y += height


def label_variable(name, label, metric):
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE,
            "query": {"query": f"label_values({metric}, {name})", "refId": name},
            "definition": f"label_values({metric}, {name})",
            "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}


def dashboard_json(dashboard):
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1},
        label_variable("instance", "Server", "gemmd_health"),
    ]
    if dashboard.by_kernel:
        variables.append(label_variable(
            "kernel", "Kernel", 'gemmd_kernel_launches_total{instance=~"$instance"}'))
    return {
        "uid": dashboard.uid, "title": dashboard.title, "description": dashboard.description, "tags": [TAG],
        "schemaVersion": SCHEMA, "editable": False, "graphTooltip": 1, "refresh": "30s", "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "tags": [TAG], "title": "gemmd", "asDropdown": False,
                   "includeVars": True, "keepTime": True, "targetBlank": False, "icon": "external link"}],
        "templating": {"list": variables}, "annotations": {"list": []},
        "panels": list(laid_out(dashboard.rows)),
    }
