"""The peers' ways to convert, as their users run them: `load_dataset` + `map` + `to_parquet`, plain loops.

Each function reads JSON lines and writes Parquet, and returns the number of rows. They run in a process
of their own (benchmarks/convert.py), so that imports, memory and CPU seconds are theirs.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

CHATML_USER = "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
CHATML_SYSTEM = "<|im_start|>system\n{system}<|im_end|>\n" + CHATML_USER


def _flat_row(row):
    if row.get("system"):
        prompt = CHATML_SYSTEM.format(system=row["system"], question=row["question"])
    else:
        prompt = CHATML_USER.format(question=row["question"])
    return {
        "prompt": prompt,
        "chosen": row["chosen"] + "<|im_end|>",
        "rejected": row["rejected"] + "<|im_end|>",
    }


def axolotl_flat(source, out, processes=1):
    """axolotl's chatml.intel: the row function through datasets.map, then to_parquet."""
    from datasets import load_dataset

    with tempfile.TemporaryDirectory() as cache:
        data = load_dataset("json", data_files=source, split="train", cache_dir=cache)
        data = data.map(
            _flat_row,
            remove_columns=data.column_names,
            num_proc=processes if processes > 1 else None,
        )
        data.to_parquet(out)
        return len(data)


def _template_tokenizer(chat_template):
    from transformers import PreTrainedTokenizerFast

    here = os.path.dirname(os.path.abspath(__file__))
    folder = os.path.join(here, "..", "docs", "examples", "tokenizer")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))
    from fmtkit.rendering.template_sources import find_model_template

    tokenizer.chat_template = find_model_template(chat_template).source
    tokenizer.eos_token = "<|im_end|>"
    return tokenizer


def axolotl_messages(source, out, processes=1, chat_template="qwen3"):
    """axolotl's chat_template.default: the tokenizer's template per row, the reply cut by a dummy turn."""
    from datasets import load_dataset

    tokenizer = _template_tokenizer(chat_template)
    dummy = [{"role": "user", "content": "[[dummy_message]]"}]

    def reply(message):
        text = tokenizer.apply_chat_template(
            [*dummy, message], tokenize=False, add_generation_prompt=False
        )
        start = text.find(message["content"])
        return text[start:].rstrip()

    def convert(row):
        prompt = tokenizer.apply_chat_template(
            row["messages"], tokenize=False, add_generation_prompt=True
        )
        return {
            "prompt": prompt,
            "chosen": reply(row["chosen"]),
            "rejected": reply(row["rejected"]),
        }

    with tempfile.TemporaryDirectory() as cache:
        data = load_dataset("json", data_files=source, split="train", cache_dir=cache)
        data = data.map(
            convert, remove_columns=data.column_names, num_proc=processes if processes > 1 else None
        )
        data.to_parquet(out)
        return len(data)


def trl_messages(source, out, processes=1, chat_template="qwen3"):
    """TRL's way: apply_chat_template of trl.data_utils in map."""
    from datasets import load_dataset
    from trl.data_utils import apply_chat_template, extract_prompt

    tokenizer = _template_tokenizer(chat_template)

    def whole(row):
        return {side: [*row["messages"], row[side]] for side in ("chosen", "rejected")}

    with tempfile.TemporaryDirectory() as cache:
        data = load_dataset("json", data_files=source, split="train", cache_dir=cache)
        many = processes if processes > 1 else None
        data = data.map(whole, remove_columns=["messages"], num_proc=many)
        data = data.map(extract_prompt, num_proc=many)
        data = data.map(
            apply_chat_template,
            fn_kwargs={"processing_class": tokenizer},
            remove_columns=data.column_names,
            num_proc=many,
        )
        data.to_parquet(out)
        return len(data)


def polars_flat(source, out, processes=1, rows=2000):
    """The ten lines that one writes first, with polars: nothing is checked."""
    import polars as pl

    system = pl.col("system").fill_null("")
    head = (
        pl.when(system != "")
        .then("<|im_start|>system\n" + system + "<|im_end|>\n")
        .otherwise(pl.lit(""))
    )
    prompt = (
        head + "<|im_start|>user\n" + pl.col("question") + "<|im_end|>\n<|im_start|>assistant\n"
    )
    replies = [(pl.col(name) + "<|im_end|>").alias(name) for name in ("chosen", "rejected")]
    schema = dict.fromkeys(("system", "question", "chosen", "rejected"), pl.String)
    data = pl.scan_ndjson(source, schema=schema).select(prompt.alias("prompt"), *replies)
    data.sink_parquet(out, compression="snappy", row_group_size=rows)
    return pl.scan_parquet(out).select(pl.len()).collect().item()


def pyarrow_flat(source, out, processes=1, rows=2000):
    """The same with pyarrow's JSON reader, block by block: nothing is checked."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json as pajson
    import pyarrow.parquet as pq

    wanted = pa.schema(
        [(name, pa.string()) for name in ("system", "question", "chosen", "rejected")]
    )
    parse = pajson.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
    blocks = pajson.open_json(source, pajson.ReadOptions(block_size=6 << 20), parse)
    made = pa.schema([(name, pa.string()) for name in ("prompt", "chosen", "rejected")])
    join, count = pc.binary_join_element_wise, 0
    with pq.ParquetWriter(out, made, compression="snappy", use_dictionary=False) as writer:
        for block in blocks:
            system = pc.fill_null(block["system"], "")
            head = pc.if_else(
                pc.equal(system, ""), "", join("<|im_start|>system\n", system, "<|im_end|>\n", "")
            )
            user = join(
                "<|im_start|>user\n", block["question"], "<|im_end|>\n<|im_start|>assistant\n", ""
            )
            replies = [join(block[name], "<|im_end|>", "") for name in ("chosen", "rejected")]
            writer.write_table(
                pa.table([join(head, user, ""), *replies], schema=made), row_group_size=rows
            )
            count += block.num_rows
    return count


def loop_flat(source, out, processes=1):
    """The script that engineers write: orjson, f-strings, a ParquetWriter fed by batches."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from orjson import loads

    schema = pa.schema([(name, pa.string()) for name in ("prompt", "chosen", "rejected")])
    count = 0
    with open(source, "rb") as lines, pq.ParquetWriter(out, schema) as writer:
        batch = []
        for line in lines:
            batch.append(_flat_row(loads(line)))
            if len(batch) == 2000:
                count += len(batch)
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                batch = []
        if batch:
            count += len(batch)
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))
    return count


def floor_parse(source, out, processes=1):
    """Parse only: pyarrow's JSON reader with an explicit schema, both cores."""
    import pyarrow as pa
    import pyarrow.json as pajson

    schema = pa.schema(
        [(name, pa.string()) for name in ("system", "question", "chosen", "rejected")]
    )
    reader = pajson.open_json(
        source,
        read_options=pajson.ReadOptions(block_size=4 << 20),
        parse_options=pajson.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
    )
    return sum(batch.num_rows for batch in reader)


def floor_write(source, out, processes=1):
    """Write only: what fmtkit wrote, read back from Parquet and written again by one ParquetWriter."""
    import pyarrow.parquet as pq

    count = 0
    file = pq.ParquetFile(source + ".parquet")
    with pq.ParquetWriter(out, file.schema_arrow, use_dictionary=False) as writer:
        for batch in file.iter_batches(batch_size=2000):
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def fmtkit_convert(source, out, processes=1, type="chatml.intel", **options):
    """`fmtkit convert` itself: checks, quarantine, report and differential sample on."""
    from fmtkit.cli import main

    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    sys.argv = ["fmtkit", "convert", source, "--type", type, "--out", out, "--overwrite", "--quiet"]
    sys.argv += ["--workers", str(processes), *flags]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    report = json.loads(Path(out).with_suffix(".report.json").read_text())
    return report["rows_written"]


if __name__ == "__main__":
    import resource

    name, source, out, processes, options = sys.argv[1:6]
    rows = globals()[name](source, out, int(processes), **json.loads(options))
    usage, children = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    cpu = usage.ru_utime + usage.ru_stime + children.ru_utime + children.ru_stime
    print(
        json.dumps(
            {"rows": rows, "cpu": cpu, "rss": max(usage.ru_maxrss, children.ru_maxrss) / 1024}
        )
    )
