"""Inspection: exact token lengths beside `tokenizers`' batch encoder, and the survey beside convert.

Each contestant runs in a fresh process; a round runs each once, in a random order. The texts are
sentences of real data in a random order (../shared/data/real), so that words repeat as they do in
data; the tokenizer is a byte-level BPE of 32,000 tokens trained on them. Figures are medians over
the rounds; the ratio is that of each round's times.

    .venv/bin/python benchmarks/inspect_survey.py               # about ten minutes
    .venv/bin/python benchmarks/inspect_survey.py --rows 20000 --rounds 3
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REAL = Path(__file__).parents[2] / "shared/data/real"
VOCABULARY = 32_000


def sentences() -> list[str]:
    """Return every line of text in the real data."""
    found: set[str] = set()
    for path in sorted(REAL.glob("*.json*")):
        for value in _strings(json.loads(line) for line in _records(path)):
            found.update(line for line in value.splitlines() if len(line) > 30)
    return sorted(found)


def _records(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return [text] if path.suffix == ".json" else text.splitlines()


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = (
        value.values() if isinstance(value, dict) else value if hasattr(value, "__iter__") else ()
    )
    return [text for item in items for text in _strings(item)]


def write_pairs(path: Path, lines: list[str], rows: int) -> None:
    """Write preference rows of about 3 KB, no two texts the same."""
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            question, chosen, rejected = (
                f"{number} " + "\n".join(rng.choices(lines, k=size)) for size in (4, 7, 7)
            )
            row = {"system": "", "question": question, "chosen": chosen, "rejected": rejected}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_tokenizer(folder: Path, lines: list[str]) -> None:
    """Train a byte-level BPE and save it as a tokenizer's folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(lines, trainer)
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def texts_of(path: Path) -> list[str]:
    """Return the questions and replies of a file."""
    rows = [json.loads(line) for line in path.open(encoding="utf-8")]
    return [row[name] for row in rows for name in ("question", "chosen", "rejected")]


def count_fmtkit(path: Path, folder: Path) -> dict[str, object]:
    """Count with fmtkit's counter on two threads."""
    import pyarrow as pa

    from fmtkit.counting.token_counts import TokenCounter
    from fmtkit.tokenizers import tokens

    texts = pa.array(texts_of(path), pa.large_string())
    counter = TokenCounter(tokens.load(folder), threads=2)
    begun = time.monotonic()
    counts = counter.count(texts)
    return {"seconds": time.monotonic() - begun, "checksum": checksum(counts.tolist())}


def count_batch(path: Path, folder: Path) -> dict[str, object]:
    """Count with the batch encoder of tokenizers, on all cores, a block of texts at a time."""
    from fmtkit.tokenizers import tokens

    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    texts = texts_of(path)
    encode = tokens.load(folder).backend.encode_batch_fast
    begun = time.monotonic()
    counts = [
        len(encoding)
        for i in range(0, len(texts), 1000)
        for encoding in encode(texts[i : i + 1000], add_special_tokens=False)
    ]
    return {"seconds": time.monotonic() - begun, "checksum": checksum(counts)}


def checksum(counts: list[int]) -> int:
    """Return a number that another list of counts has hardly ever."""
    total = 0
    for count in counts:
        total = (total * 1_000_003 + count) % (1 << 61)
    return total


def survey_plain(path: Path, folder: Path) -> dict[str, object]:
    """Inspect without a tokenizer."""
    del folder
    from fmtkit import inspect

    begun = time.monotonic()
    found = inspect(path, type="intel")
    return {"seconds": time.monotonic() - begun, "checksum": found.rows}


def survey_tokens(path: Path, folder: Path) -> dict[str, object]:
    """Inspect with a tokenizer and a template: lengths, cutting report, masks, findings."""
    from fmtkit import inspect

    begun = time.monotonic()
    found = inspect(path, type="chatml.intel", tokenizer=str(folder))
    return {"seconds": time.monotonic() - begun, "checksum": found.rows}


def convert(path: Path, folder: Path) -> dict[str, object]:
    """Convert to Parquet, as messages."""
    from fmtkit.options.convert_options import ConvertOptions
    from fmtkit.running.conversions import convert_to

    out = folder.parent / "out.parquet"
    begun = time.monotonic()
    report = convert_to(str(path), out, ConvertOptions(type="intel", overwrite=True))
    return {"seconds": time.monotonic() - begun, "checksum": report.rows_written}


CONTESTS = {
    "exact token lengths": {"fmtkit": count_fmtkit, "tokenizers encode_batch_fast": count_batch},
    "survey": {
        "fmtkit inspect": survey_plain,
        "fmtkit convert": convert,
        "fmtkit inspect --tokenizer": survey_tokens,
    },
}


def one(title: str, name: str, path: Path, folder: Path) -> None:
    """Run a contestant here, and print its figures."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    before = usage.ru_utime + usage.ru_stime
    found = CONTESTS[title][name](path, folder)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found |= {"cpu": usage.ru_utime + usage.ru_stime - before, "mib": usage.ru_maxrss / 1024}
    print(json.dumps(found))


def contest(title: str, path: Path, folder: Path, rounds: int) -> None:
    """Run every contestant in every round and print a table."""
    names = list(CONTESTS[title])
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    rng = random.Random(1)
    for _ in range(rounds):
        for name in rng.sample(names, len(names)):
            command = [sys.executable, __file__, "--one", title, name, str(path), str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
            runs[name].append(json.loads(done.stdout.splitlines()[-1]))
    size = path.stat().st_size / 1e6
    print(f"\n**{title}** ({size:,.0f} MB, {rounds} rounds)\n")
    print("| what | seconds | CPU s | MB/s | peak MiB | times the first's seconds |")
    print("|---|---|---|---|---|---|")
    for name in names:
        seconds, cpu, mib = (
            statistics.median(run[key] for run in runs[name]) for key in ("seconds", "cpu", "mib")
        )
        pairs = zip(runs[name], runs[names[0]], strict=True)
        ratio = statistics.median(run["seconds"] / first["seconds"] for run, first in pairs)
        print(
            f"| {name} | {seconds:.2f} | {cpu:.2f} | {size / seconds:.1f} | {mib:.0f} | {ratio:.2f} |"
        )
    if title == "exact token lengths":
        equal = len({run["checksum"] for found in runs.values() for run in found}) == 1
        print(f"\ncounts equal on every text: {'yes' if equal else 'NO'}")


def main() -> None:
    """Make the data and run the contests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.one:
        title, name, path, folder = settings.one
        one(title, name, Path(path), Path(folder))
        return
    if not REAL.is_dir():
        sys.exit(f"{REAL} is not here: its texts are what is counted")
    lines = sentences()
    with tempfile.TemporaryDirectory() as temporary:
        path, folder = Path(temporary) / "pairs.jsonl", Path(temporary) / "tokenizer"
        write_pairs(path, lines, settings.rows)
        write_tokenizer(folder, lines)
        for title in CONTESTS:
            contest(title, path, folder, settings.rounds)


if __name__ == "__main__":
    main()
