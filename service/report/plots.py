"""The report's plots as SVG to put into HTML: the same bytes for the same numbers, colours of the page's scheme.

Colours are drawn as stand-ins and then become the page's CSS variables, so that a plot follows dark mode. Text stays
text. What HTML does not need (prolog, namespaces, metadata, the names of groups) is cut out.
"""

import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from models.bootstrap import Interval
from models.training.log import Progress
from service.report.curves import ThresholdCurve
from service.report.reliability import Bin

_PAINT = {
    "#010101": "var(--ink)",
    "#020202": "var(--quiet)",
    "#030303": "var(--line)",
    "#010199": "var(--blue)",
    "#990101": "var(--red)",
    "#019901": "var(--green)",
    "#996601": "var(--amber)",
}
_PAPER = {  # of a picture that stands alone
    "var(--ink)": "#222222",
    "var(--quiet)": "#777777",
    "var(--line)": "#dddddd",
    "var(--blue)": "#1f5fbf",
    "var(--red)": "#c0392b",
    "var(--green)": "#2e7d32",
    "var(--amber)": "#b26a00",
}
_INK, _QUIET, _LINE, _BLUE, _RED, _GREEN, _AMBER = _PAINT
_WIDTH_INCHES = 4.9  # so that its 10 pt text can still be read at a phone's width
_CURVE_MARGINS = (0.005, 0.995)  # the few margins beyond these quantiles would squeeze the rest


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One line of a plot of means with their intervals; group names the block that it stands in."""

    group: str
    label: str
    mean: float
    interval: Interval


@contextmanager
def _style(name: str) -> Iterator[None]:
    """Set the look; name seeds the ids, which must differ between the plots of one page."""
    with rc_context(
        {
            "svg.hashsalt": name,
            "svg.fonttype": "none",
            "text.parse_math": False,  # the name of a data set may hold a $
            "font.size": 10,
            "legend.frameon": False,
            "axes.grid": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "text.color": _INK,
            "axes.labelcolor": _INK,
            "axes.edgecolor": _QUIET,
            "grid.color": _LINE,
            "xtick.color": _QUIET,
            "ytick.color": _QUIET,
            "xtick.labelcolor": _INK,
            "ytick.labelcolor": _INK,
        }
    ):
        yield


def _figure(height_inches: float) -> Figure:
    return Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")


def _svg(figure: Figure, label: str) -> str:
    """Return the figure as an element; label, which says what it shows, must be plain text without markup."""
    written = io.StringIO()
    figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    box = re.search(r'viewBox="[^"]*"', svg)
    assert box is not None, "matplotlib gives every SVG a viewBox"
    svg = re.sub(r"^<svg[^>]*>", f'<svg {box.group()} role="img" aria-label="{label}">', svg)
    for colour, variable in _PAINT.items():
        svg = svg.replace(colour, variable)
    return svg


def training_plot(logs: Mapping[str, Sequence[Progress]]) -> str:
    """Return an SVG file of its own: the loss of each run by its steps, and below it the measures on dev if any.

    Args:
        logs: the runs by name, each in order of steps.
    """
    has_measures = any(line.measures for log in logs.values() for line in log)
    with _style("training"):
        figure = _figure(5.2 if has_measures else 3.2)
        panels = figure.subplots(2 if has_measures else 1, 1, sharex=True, squeeze=False)[:, 0]
        for (name, log), colour in zip(logs.items(), itertools.cycle((_BLUE, _RED, _GREEN, _AMBER))):
            steps = [line.step for line in log]
            panels[0].plot(steps, [line.loss for line in log], color=colour, linewidth=1, label=name)
            checks = [line for line in log if line.measures]
            for measure, dashes in zip(checks[0].measures if checks else (), itertools.cycle(("-", "--", ":"))):
                values = [line.measures[measure] for line in checks]
                label = f"{name}: {measure}"
                panels[-1].plot([c.step for c in checks], values, "o", linestyle=dashes, color=colour, label=label)
        panels[0].set_ylabel("loss")
        panels[-1].set_xlabel("step")
        if has_measures:
            panels[-1].set_ylabel("on dev")
        for panel in panels:
            panel.legend(loc="best", fontsize=8)
        return _alone(_svg(figure, "Loss and dev measures of a training run by step"))


def _alone(svg: str) -> str:
    """Return an element as a file: with its namespaces, on white, in fixed colours."""
    for variable, colour in _PAPER.items():
        svg = svg.replace(variable, colour)
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return svg.replace("<svg ", f'<svg {names} style="background:#ffffff" ', 1)


def measures_plot(rows: Sequence[MeasuredRow], *, measure: str) -> str:
    """Return means as dots with their intervals as lines, one below the other; at least one row."""
    with _style("measures"):
        n_groups = len({row.group for row in rows})
        figure = _figure(0.9 + 0.22 * len(rows) + 0.25 * n_groups)
        axes = figure.subplots()
        places = _places(rows)
        for row, place in zip(rows, places, strict=True):
            axes.plot([row.interval.low, row.interval.high], [place, place], color=_BLUE, linewidth=1.6)
            axes.plot([row.mean], [place], "o", color=_BLUE, markersize=4.5)
        labels = [row.label if n_groups == 1 else f"{row.group}  {row.label}" for row in rows]
        axes.set_yticks(places, labels)
        axes.set_ylim(max(places) + 0.8, -0.8)
        axes.set_xlabel(f"{measure}, mean and 95% interval")
        axes.grid(visible=False, axis="y")
        return _svg(figure, f"{measure} of each ranking with its interval")


def _places(rows: Sequence[MeasuredRow]) -> list[float]:
    """Return the height of each row, a gap before each new group."""
    heights: list[float] = []
    for i, row in enumerate(rows):
        gap = 0.8 if i and rows[i - 1].group != row.group else 0.0
        heights.append(heights[-1] + 1 + gap if heights else 0.0)
    return heights


def reliability_plot(bins: Sequence[Bin], *, name: str, score: str, right: str) -> str:
    """Return the share that is right against the score, and below it how many have such a score."""
    with _style(name):
        figure = _figure(4.4)
        shares, counts = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        shares.plot([0, 1], [0, 1], "--", color=_QUIET, linewidth=1, label="a probability would lie here")
        xs, ys = [each.mean_score for each in bins], [each.share_right for each in bins]
        shares.plot(xs, ys, "o-", color=_BLUE, linewidth=1.6, markersize=4.5, label="measured")
        shares.set(xlim=(0, 1), ylim=(-0.02, 1.02), ylabel=right)
        figure.legend(loc="outside upper left", ncols=2)
        middles, sizes = [(each.low + each.high) / 2 for each in bins], [each.n for each in bins]
        counts.bar(middles, sizes, width=[0.9 * (each.high - each.low) for each in bins], color=_BLUE)
        counts.set(yscale="log", ylim=(0.7, None), xlabel=score, ylabel="how many")
        counts.minorticks_off()
        counts.yaxis.set_major_formatter("{x:,.0f}")
        return _svg(figure, f"Reliability diagram: {right} against {score}")


def threshold_plot(curve: ThresholdCurve, *, threshold: float) -> str:
    """Return the measures against the threshold, and a mark at the one in use."""
    with _style("threshold"):
        figure = _figure(3.8)
        axes = figure.subplots()
        lines: tuple[tuple[str, NDArray[np.float64], str, Literal["-", "--", "-.", ":"]], ...] = (
            ("F1", curve.f1, _BLUE, "-"),
            ("EM", curve.exact_match, _AMBER, "--"),
            ("HasAns F1", curve.has_answer_f1, _GREEN, "-."),
            ("NoAns accuracy", curve.no_answer_accuracy, _RED, ":"),
        )
        for label, values, colour, dashes in lines:
            if np.isfinite(values).any():
                axes.plot(curve.thresholds, 100 * values, color=colour, linestyle=dashes, linewidth=1.8, label=label)
        axes.axvline(threshold, color=_INK, linewidth=1, label=f"in use: {threshold:.2f}")
        low, high = np.quantile(curve.thresholds, _CURVE_MARGINS)
        edge = 0.02 * max(high - low, 1.0)
        axes.set(xlim=(min(low, threshold) - edge, max(high, threshold) + edge), ylim=(-2, 102))
        axes.set(xlabel="no-answer threshold on the null margin", ylabel="%")
        figure.legend(loc="outside lower center", ncols=3)
        return _svg(figure, "F1, EM, HasAns F1 and NoAns accuracy against the no-answer threshold")


def coverage_plot(curve: ThresholdCurve, *, threshold: float) -> str:
    """Return the share of given answers that is right against the share of questions answered."""
    with _style("coverage"):
        figure = _figure(3.6)
        axes = figure.subplots()
        axes.plot(100 * curve.coverage, 100 * curve.precision, color=_BLUE, linewidth=1.8)
        place = min(int(np.searchsorted(curve.thresholds, threshold)), curve.thresholds.size - 1)
        _mark(axes, float(100 * curve.coverage[place]), float(100 * curve.precision[place]))
        axes.set(xlim=(-1, 101), ylim=(-2, 102), xlabel="coverage: % of questions answered")
        axes.set_ylabel("precision: % of answers right")
        return _svg(figure, "Precision of the answers against coverage")


def _mark(axes: Axes, x: float, y: float) -> None:
    """Mark the threshold in use, unless nothing is answered there and precision has no value."""
    if np.isfinite(y):
        axes.plot([x], [y], "o", color=_RED, markersize=6, label="threshold in use")
        axes.legend(loc="lower left")
