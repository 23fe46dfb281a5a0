"""What a PromQL expression names, and whether a set of series has it."""

import collections
import re

TOKEN = re.compile(r"""\#[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\[[^\]]*\]"""
                   r"|[A-Za-z_:][\w:]*|\d[\w.]*|=~|!~|!=|[(){},=]")
GROUPINGS = {"by", "without"}
LABEL_LISTS = GROUPINGS | {"on", "ignoring", "group_left", "group_right"}
WORDS = {"and", "or", "unless", "bool", "offset", "start", "end", "inf", "nan", "atan2"}
MEANS = {"avg", "avg_over_time"}
# Chosen by who deploys, so no value of theirs is wrong here.
DEPLOYED = {"job", "instance"}

Series = collections.namedtuple("Series", "at name matchers")  # matchers: [(label, operator, value)]
Labels = collections.namedtuple("Labels", "word names operand")  # operand: its tokens, a range


def closing(tokens, opening):
    """The index of the parenthesis that closes the one at `opening`."""
    depth = 0
    for i in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[i], 0)
        if depth == 0:
            return i
    raise ValueError("a parenthesis is not closed")


class Expression:
    """What a PromQL expression names. It is one that Prometheus has taken: only names are looked for."""

    def __init__(self, text):
        tokens = [t for t in TOKEN.findall(text) if t[0] not in "#["] + [""]
        self.series, self.labels, self.means = [], [], []
        at = 0
        try:
            while tokens[at]:
                at = self._read(tokens, at)
        except ValueError as error:
            raise ValueError(f"{error}: {text}") from error

    def names_in(self, operand):
        return {s.name for s in self.series if s.at in operand}

    def _read(self, tokens, at):
        """Reads what starts at `at`; returns where the next thing starts."""
        token, follows = tokens[at], tokens[at + 1]
        if token in LABEL_LISTS:
            if follows != "(":
                return at + 1
            end = closing(tokens, at + 1)
            operand = range(0, len(tokens))
            if token in GROUPINGS:
                operand = self._operand(tokens, end + 1)
            self.labels.append(Labels(token, [t for t in tokens[at + 2:end] if t != ","], operand))
            return end + 1
        if token == "{":
            end = tokens.index("}", at)
            if not self.series or self.series[-1].at != at - 1:
                raise ValueError("a selector has no metric before its braces")
            matchers = " ".join(tokens[at + 1:end])
            self.series[-1].matchers.extend(
                (label, operator, value[1:-1]) for label, operator, value in
                re.findall(r"""(\w+) (=~|!~|!=|=) ("[^"]*"|'[^']*')""", matchers))
            return end + 1
        if token in MEANS:
            start = at + 1
            if follows in GROUPINGS:
                start = closing(tokens, at + 2) + 1
            self.means.append(self._operand(tokens, start))
        elif (re.match(r"[A-Za-z_:]", token) and token not in WORDS and follows != "("
              and follows not in GROUPINGS):
            self.series.append(Series(at, token, []))
        return at + 1

    @staticmethod
    def _operand(tokens, opening):
        if tokens[opening] != "(":
            raise ValueError("'by' and 'without' stand before the operand here")
        return range(opening, closing(tokens, opening) + 1)


def matches(matcher, labels):
    """Whether a series with `labels` meets one matcher of a selector."""
    label, operator, value = matcher
    pattern = value if "~" in operator else re.escape(value)
    return bool(re.fullmatch(pattern, labels.get(label, ""))) == (operator in ("=", "=~"))


def problems(text, series, recorded=()):
    """What is wrong with the names in an expression.

    `series` has all that is exported: metric -> [labels of a series]. `recorded` are the names that
    rules give; one that has no series yet may have any label.
    """
    try:
        expression = Expression(text)
    except ValueError as error:
        return [str(error)]
    found, known = [], set()
    for metric, matchers in ((one.name, one.matchers) for one in expression.series):
        if metric not in series:
            if metric not in recorded:
                found.append(f"no metric {metric}")
            return found
        exported = series[metric]
        labels = set().union(*exported)
        known |= labels
        if unknown := [label for label, _, _ in matchers if label not in labels]:
            found.append(f"{metric} has no label {', '.join(unknown)}")
            continue
        for matcher in matchers:
            if matcher[0] not in DEPLOYED and not any(matches(matcher, one) for one in exported):
                found.append(f"no series of {metric} has {''.join(matcher)}")
    if unknown := [label for labels in expression.labels for label in labels.names if label not in known]:
        found.append(f"grouped or joined by {', '.join(unknown)}, which none of its metrics has")
    return found
