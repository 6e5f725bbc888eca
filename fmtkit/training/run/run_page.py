"""The page of a run: what was trained, its warnings, its curves, first and last metrics, its data.

One file that loads nothing and runs nothing; whatever comes from the run is escaped.
"""

import html
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fmtkit.training.rl.online import samples_page
from fmtkit.training.run import curves

PAGE = "report.html"

STYLE = """
:root{color-scheme:light dark;--line:#8884;--quiet:#57606a;--warn:#8a4b00;--ground:#fff4e0}
@media (prefers-color-scheme:dark){:root{--quiet:#9aa7b4;--warn:#ffcf87;--ground:#33260c}}
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1.5em}
h1{margin:0;overflow-wrap:anywhere}h2{font-size:1.1em;margin:1.6em 0 .4em}
.quiet{color:var(--quiet)}.note{background:var(--ground);color:var(--warn);padding:.4em .8em;
border-radius:6px}img{max-width:100%;background:#fff;border-radius:6px}
.scroll{overflow-x:auto}table{border-collapse:collapse}th,td{text-align:left;padding:.15em 1.2em .15em 0;
border-bottom:1px solid var(--line);vertical-align:top;font-weight:normal}th{color:var(--quiet)}
td.n{text-align:right;font-variant-numeric:tabular-nums}code{font-size:.85em;overflow-wrap:anywhere}
.answers td,.answers th{border:1px solid var(--line);padding:.3em;font-size:13px;white-space:pre-wrap}
"""


def write(run: Path, report: Mapping[str, object], own: Sequence[str] = ()) -> Path:
    """Write the page into the run folder; `own` are the method's own metrics, as curves.draw takes them."""
    name = html.escape(run.name)
    parts = [
        f"<h1>{name}</h1><p class=quiet>{_what(report)}</p>",
        *(
            f"<p class=note>{html.escape(str(finding))}</p>"
            for finding in _list(report, "findings")
        ),
        _picture(run),
        "<h2>Metrics</h2>" + _metrics(report, own),
        "<h2>Data</h2>" + _data(_list(report, "data")),
        samples_page.section(run),
        f"<h2>Versions</h2><p>{_versions(report)}</p>",
        "<p class=quiet>The settings are in config.yaml, every argument and its origin in plan.json, "
        "each log in metrics.jsonl.</p>",
    ]
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<title>{name}</title><style>{STYLE}</style>{''.join(parts)}</html>\n"
    )
    path = run / PAGE
    path.write_text(page, encoding="utf-8")
    return path


def _what(report: Mapping[str, object]) -> str:
    model, method = (html.escape(str(report.get(key))) for key in ("model", "method"))
    steps = f"{report.get('steps')} step{'s' * (report.get('steps') != 1)}"
    return f"{method} of {model}: {steps} in {report.get('seconds')} s"


def _picture(run: Path) -> str:
    file = run / curves.PICTURE
    if not file.is_file():
        return ""
    data = b64encode(file.read_bytes()).decode("ascii")
    return f'<h2>Curves</h2><img alt="Curves of the run" src="data:image/png;base64,{data}">'


def _metrics(report: Mapping[str, object], own: Sequence[str]) -> str:
    first, last = (_mapping(report, key) for key in ("first_metrics", "metrics"))
    names = sorted({**first, **last}, key=curves.placed(own))
    rows = (
        (html.escape(name), _number(first.get(name)), _number(last.get(name))) for name in names
    )
    return _table(("metric", "first log", "last log"), rows, numeric=True)


def _data(entries: list[object]) -> str:
    rows = (
        (
            html.escape(str(e["file"])),
            str(e["rows"]),
            f"<code>{html.escape(str(e['sha256']))}</code>",
        )
        for e in entries
        if isinstance(e, Mapping)
    )
    return _table(("file", "rows", "sha256"), rows)


def _versions(report: Mapping[str, object]) -> str:
    versions = _mapping(report, "versions").items()
    return ", ".join(
        f"{html.escape(name)} {html.escape(str(version))}" for name, version in versions
    )


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]], *, numeric: bool = False) -> str:
    """Write a table of escaped cells; with `numeric` all columns but the first are numbers."""
    kind = ' class="n"' if numeric else ""
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join(
        f"<tr><td>{row[0]}</td>" + "".join(f"<td{kind}>{cell}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else html.escape(str(value))


def _mapping(report: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = report.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(report: Mapping[str, object], key: str) -> list[object]:
    value = report.get(key)
    return value if isinstance(value, list) else []
