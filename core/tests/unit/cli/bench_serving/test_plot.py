from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dougong.cli.bench_serving.plot import Chart, check_plot, drawing, svg_of
from dougong.cli.bench_serving.workload import ServeWorkload
from dougong.errors import ConfigError
from tests.unit.cli.bench_serving.test_results import RUN


def test_a_run_is_drawn_as_one_chart_for_rates_and_one_for_each_latency() -> None:
    root = ElementTree.fromstring(svg_of(RUN, ServeWorkload(model="<m> & co")))
    texts = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith("<m> & co: 64 requests") for text in texts)
    assert sum("share of all" in text for text in texts) == 4
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 5


def test_points_lie_where_their_values_are() -> None:
    svg = drawing([Chart("t", "s", {"": [(0.0, 0.0), (10.0, 4.0)]})])
    (points,) = re.findall(r'points="([^"]*)"', svg)
    first, last = ([float(x) for x in pair.split(",")] for pair in points.split())
    assert first[0] < last[0]
    assert first[1] > last[1], "down is up in a drawing"
    assert ">10<" in svg
    assert ">4<" in svg


def test_other_files_are_refused_before_any_work(tmp_path: Path) -> None:
    check_plot(None)
    check_plot(tmp_path / "new.svg")
    with pytest.raises(ConfigError, match=r"NAME\.svg"):
        check_plot(tmp_path / "new.png")
    (tmp_path / "there.svg").touch()
    with pytest.raises(ConfigError, match=r"--plot .* the file exists"):
        check_plot(tmp_path / "there.svg")
