"""Are lines told apart, with colour and without, and does a panel of zeros say that it is one?"""

from __future__ import annotations

import pytest

from research.simulate import plots
from research.simulate.drawing import COLOURS, drawing, from_zero, line_style
from research.simulate.generated import imbalance_trace
from research.simulate.methods import method_of
from research.simulate.running import Every, simulate


def _luminance(colour: str) -> float:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_lines_are_told_apart_with_colour_and_without() -> None:
    styles = [line_style(i) for i in range(28)]
    assert len({(each["color"], each["linestyle"]) for each in styles}) == 28
    assert len({(each["linestyle"], each["marker"]) for each in styles}) == 28
    assert len({each["color"] for each in styles[: len(COLOURS)]}) == len(COLOURS)
    assert max(map(_luminance, COLOURS)) < 0.7, "none is too pale for a line on white"


def test_a_panel_of_zeros_says_so_and_shows_no_scale_that_nothing_reaches() -> None:
    pytest.importorskip("matplotlib")
    figure, (flat, other) = drawing().subplots(1, 2)
    for axes, values in ((flat, [0, 0]), (other, [0, 3])):
        axes.plot(values)
        from_zero(axes, values)
    assert [text.get_text() for text in flat.texts] == ["0 throughout"]
    assert list(flat.get_yticks()) == [0]
    assert (list(other.texts), other.get_ylim()[0]) == ([], 0)
    drawing().close(figure)


def test_a_simulation_in_which_no_pod_moves_has_such_a_panel() -> None:
    pytest.importorskip("matplotlib")
    trace = imbalance_trace(1).cut(pods_max=20, until_ms=None, stay=False)
    run = simulate(trace, method_of("own", None, (), 0), seed=1, every=Every(pods=10))
    figure = plots._pods([run], True)
    assert [text.get_text() for axes in figure.axes[1:2] for text in axes.texts] == ["0 throughout"]
    drawing().close(figure)
