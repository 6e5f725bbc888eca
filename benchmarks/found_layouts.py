"""Which layouts are found: the best guess for each real file under a random name, and for each fixture.

    python benchmarks/found_layouts.py [FOLDER]

FOLDER holds files of which a MANIFEST-like mapping is below; without it, or where it is absent, only the
fixtures are asked. Prints found, wrong and none.
"""

import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from fmtkit.inspection.type_guesses import guess
from fmtkit.running import preparation
from fmtkit.sources.opening import open_sources

ROOT = Path(__file__).resolve().parents[1]
REAL = ROOT.parent / "shared" / "data" / "real"
WANTED = {
    "llamafactory_dpo_en_demo.json": {"sharegpt_preference"},
    "llamafactory_kto_en_demo.json": {"messages_label"},
    "llamafactory_alpaca_en_demo.json": {"alpaca"},
    "llamafactory_glaive_toolcall_en_demo.json": {"sharegpt"},
    "gsm8k_test.jsonl": {"gsm8k"},
    "gsm8k_example_model_solutions.jsonl": {"graded"},
    "nemogym_example_single_tool_call.jsonl": {"nemo_gym"},
    "nemogym_math_with_judge.jsonl": {"nemo_gym"},
    "nemogym_mcqa.jsonl": {"nemo_gym"},
    "nemogym_reasoning_gym.jsonl": {"nemo_gym"},
    "tinker_conversations.jsonl": {"openai"},
    "gsm8k_pairs.chatml_intel.jsonl": {"intel"},
    "gsm8k.kto_intel.jsonl": {"intel"},
    "gsm8k_rank_ties.zephyr_nectar.jsonl": {"nectar"},
    "gsm8k.bradley_terry.jsonl": {"icr", "bradley_terry.chat_template"},
    "gsm8k_outcome_steps.stepwise.jsonl": {"stepwise_supervised"},
    # Input and output alone: a file for EBFT and one for fine-tuning look alike.
    "gsm8k.ebft_opencode.jsonl": {"question_answer", "ebft_opencode.transform"},
    "lf_dpo.argilla_chat.jsonl": {"argilla_chat"},
    "lf_dpo.ultra.jsonl": {"ultra"},
}


def verdict(path: Path, wanted: set[str]) -> str:
    """Return found, wrong or none for one file."""
    [source] = open_sources(str(path))
    guesses = guess(preparation.sample_of(source))
    if not guesses:
        return "none"
    return "found" if guesses[0].type in wanted else "wrong"


def main(arguments: list[str]) -> None:
    """Ask every file and print the counts."""
    folder = Path(arguments[0]) if arguments else REAL
    files = {path: WANTED[path.name] for path in sorted(folder.glob("*")) if path.name in WANTED}
    files |= {path: {path.parent.name} for path in sorted(ROOT.glob("fixtures/*/source.jsonl"))}
    counts: dict[str, Counter[str]] = {"real": Counter(), "fixtures": Counter()}
    with tempfile.TemporaryDirectory() as scratch:
        for number, (path, wanted) in enumerate(files.items()):
            copy = Path(scratch) / f"{number:04x}{path.suffix}"
            shutil.copyfile(path, copy)
            found = verdict(copy, wanted)
            kind = "fixtures" if path.name == "source.jsonl" else "real"
            counts[kind][found] += 1
            if found != "found":
                sys.stdout.write(f"{found}: {path}\n")
    sys.stdout.write(json.dumps({kind: dict(found) for kind, found in counts.items()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
