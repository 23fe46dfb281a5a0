"""Which metrics and labels a PromQL expression names, and whether a set of series has them.

Not a parser: the expression is one that Prometheus has parsed, so its words need only be told apart.
"""

import re

TOKEN = re.compile(r"""(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
    |(?P<number>0x[0-9a-fA-F]+|\d[\d.]*(?:[eE][+-]?\d+|ms|[smhdwy][\dsmhdwy]*)?)
    |(?P<word>[A-Za-z_:][\w:]*)|(?P<sign>=~|!~|!=|==|<=|>=|[^\s\w])""", re.X)
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
OTHER_WORDS = {"and", "or", "unless", "bool", "offset", "atan2", "start", "end", "inf", "nan"}
# Chosen by who deploys, so no value of theirs is wrong here.
DEPLOYED = {"job", "instance"}


def tokens(expr):
    return [(match.lastgroup, match.group()) for match in TOKEN.finditer(re.sub(r"#.*", "", expr))]


def list_in(words, start, end):
    """What stands in the brackets that open at `start`, without commas, and the place behind them."""
    stop = next(i for i in range(start, len(words)) if words[i][1] == end)
    return [word for word in words[start + 1:stop] if word[1] != ","], stop + 1


def named_in(expr):
    """([(metric, [(label, operator, value)])], [label that groups or joins], [string])."""
    words, at = tokens(expr), 0
    selectors, labels, strings = [], [], []
    while at < len(words):
        kind, word = words[at]
        following = words[at + 1][1] if at + 1 < len(words) else ""
        at += 1
        if kind == "string":
            strings.append(word[1:-1])
        elif word == "{" or (kind == "word" and word.lower() not in OTHER_WORDS | GROUPING and following != "("):
            metric = "" if word == "{" else word
            matchers = []
            if word == "{" or following == "{":
                inner, at = list_in(words, at - (word == "{"), "}")
                matchers = [(inner[i][1], inner[i + 1][1], inner[i + 2][1][1:-1]) for i in range(0, len(inner), 3)]
            # An aggregation's name may come before its labels: sum by (kernel) (...)
            if following not in GROUPING:
                selectors.append((metric, matchers))
        elif word.lower() in GROUPING and following == "(":
            inner, at = list_in(words, at, ")")
            labels += [text for _, text in inner]
    return selectors, labels, strings


def selects(matcher, series):
    label, operator, value = matcher
    has = series.get(label, "")
    if operator in ("=", "!="):
        return (has == value) == (operator == "=")
    return bool(re.fullmatch(value, has)) == (operator == "=~")


def problems(expr, series, recorded=()):
    """What is wrong with the names in `expr`.

    `series` has all that is exported: metric -> [labels of a series]. `recorded` are the names that
    rules give; one that has no series yet may have any label.
    """
    found = []
    selectors, grouping, strings = named_in(expr)
    known = set(strings) if re.search(r"\blabel_(replace|join)\b", expr) else set()
    for metric, matchers in selectors:
        if metric not in series:
            if metric not in recorded:
                found.append(f"no metric {metric or 'is named'}")
            return found
        exported = series[metric]
        labels = set().union(*exported)
        known |= labels
        if unknown := [label for label, _, _ in matchers if label not in labels]:
            found.append(f"{metric} has no label {', '.join(unknown)}")
            continue
        for matcher in matchers:
            if matcher[0] not in DEPLOYED and not any(selects(matcher, one) for one in exported):
                found.append(f"no series of {metric} has {''.join(matcher)}")
    if unknown := [label for label in grouping if label not in known]:
        found.append(f"grouped or joined by {', '.join(unknown)}, which none of its metrics has")
    return found
