"""One soft label makes a column soft; which reader finds it makes no difference."""

import pytest

from fmtkit.reading import native
from fmtkit.reading.step_labels import has_soft_labels
from fmtkit.sources.opening import open_sources


@pytest.mark.parametrize("kernel", ["1", "0"])
@pytest.mark.parametrize(
    ("labels", "soft"),
    [
        ("[true, false]", False),
        ("[0, 1]", False),
        ("[0.0, 1.0, -0.0]", False),
        ("[null]", False),
        ("null", False),
        ('["0.5"]', False),
        ("[1e0]", False),
        ("[NaN]", False),
        ("[2]", False),
        ("[0.5]", True),
        ("[1, 0, 1e-1]", True),
        ("[true, 0.99999999999999999999999]", False),
        ("[true, 0.9999999999999999]", True),
        ("0.5", False),
    ],
)
def test_a_label_is_soft_if_it_is_a_real_between(tmp_path, monkeypatch, kernel, labels, soft):
    monkeypatch.setenv(native.VARIABLE, kernel)
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"labels": [true]}}\n\n{{"labels": {labels}}}\nno JSON\n{{"labels": [1]}}\n')
    (source,) = open_sources(path)
    assert has_soft_labels(source, "labels") is soft
    path.write_text(f'{{"a": {{"labels": {labels}}}, "labels": 5}}\n')
    (source,) = open_sources(path)
    assert has_soft_labels(source, "a.labels") is soft
