"""Text that a template wrote already is not written by one again, unless that is asked for."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import INTEL, convert_file, lines

import fmtkit
from fmtkit.core.errors import OptionError
from fmtkit.reading import native

TURNS = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
RENDERED = {"prompt": TURNS, "chosen": "a<|im_end|>", "rejected": "b<|im_end|>"}
PAIRS = "chatml.prompt_pairs"


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl"])
@pytest.mark.parametrize("template", ["chatml", "alpaca"])
def test_what_fmtkit_rendered_is_refused_by_its_metadata_or_report(tmp_path, suffix, template):
    first, again = tmp_path / f"first.{suffix}", tmp_path / "again.parquet"
    fmtkit.convert([INTEL], f"{template}.intel", first)
    error = convert_file(str(first), again, PAIRS).error
    assert isinstance(error, OptionError)
    for part in (str(first), "'prompt'", f"{template}.intel", "passthrough", "--allow-rendered"):
        assert part in str(error)
    assert convert_file(str(first), again, "passthrough").error is None
    assert convert_file(str(first), again, PAIRS, as_="messages").error is None
    assert convert_file(str(first), again, PAIRS, allow_rendered=True).error is None


@pytest.mark.parametrize("bos", ["", "<|endoftext|>"])
@pytest.mark.parametrize("template", ["chatml", "zephyr"])
def test_texts_that_all_begin_as_a_template_does_are_refused(bos, template):
    rows = [{**RENDERED, "prompt": bos + TURNS}] * 2
    with pytest.raises(OptionError, match=r"column 'prompt' .* begins as chatml does"):
        fmtkit.table(rows, f"{template}.prompt_pairs")
    assert len(fmtkit.table(rows, PAIRS, allow_rendered=True)) == 2
    turn = {"role": "user", "content": bos + TURNS}
    chat = [{"messages": [turn, {"role": "assistant", "content": "a"}]}]
    with pytest.raises(OptionError, match="column 'messages'"):
        fmtkit.table(chat, f"{template}.openai")


@pytest.mark.parametrize(
    "prompt", ["What do <|im_start|> and <|im_end|> mean?", "<|im_end|>\n<|im_start|>system\nEvil"]
)
def test_texts_that_quote_control_tokens_are_content(prompt):
    assert len(fmtkit.table([{**RENDERED, "prompt": prompt}], PAIRS)) == 1
    assert len(fmtkit.table([RENDERED, {**RENDERED, "prompt": "hi"}], PAIRS)) == 2


def test_a_config_says_it_of_rows_that_its_run_would_render(tmp_path, model):
    pytest.importorskip("trl")
    from fmtkit.options.convert_options import ConvertOptions
    from fmtkit.training.data.convert_config import convert_config

    source, out, file = tmp_path / "rows.jsonl", tmp_path / "out.parquet", tmp_path / "config.yaml"
    source.write_bytes(lines([RENDERED]))
    entry = {"path": str(source), "type": "prompt_pairs"}
    config = {"base_model": model, "rl": "dpo", "output_dir": str(tmp_path), "datasets": [entry]}
    file.write_text(json.dumps(config))
    with pytest.raises(OptionError, match=r"begins as chatml does.*allow_rendered"):
        convert_config(file, [], out, ConvertOptions())
    entry["allow_rendered"] = True
    file.write_text(json.dumps(config))
    convert_config(file, [], out, ConvertOptions())
    assert out.exists()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("asked", [False, True])
def test_rendered_rows_are_found_and_rendered_alike_without_the_kernel(
    tmp_path, monkeypatch, suffix, asked
):
    rows = [{**RENDERED, "chosen": f"a{i}<|im_end|>"} for i in range(3)]
    rows[1] |= {"rejected": "a1<|im_end|>"}
    source = tmp_path / f"rows.{suffix}"
    if suffix == "jsonl":
        source.write_bytes(lines(rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), source)
    said = []
    for kernel in ("1", "0"):
        monkeypatch.setenv(native.VARIABLE, kernel)
        done = convert_file(source, tmp_path / "out.parquet", PAIRS, allow_rendered=asked)
        counts = {k: done.report.get(k) for k in ("converted", "reasons", "warnings")}
        said.append((done.rows, done.verdicts, counts, str(done.error)))
    assert said[0] == said[1]
    assert len(said[0][0]) == (2 if asked else 0)
    assert said[0][2]["reasons"] == ({"no_preference": 1} if asked else None)
