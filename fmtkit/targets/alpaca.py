"""Stanford Alpaca: one instruction and its output, sometimes with a system prompt."""

from fmtkit.columns.exports import question, system_text, text_of_reply
from fmtkit.columns.problems import literal
from fmtkit.core.tables import Completion, Preference, Unpaired
from fmtkit.formats.target_registry import WrittenColumns, target


@target(reads="alpaca", holds=("system",), system="first")
def completion(table: Completion) -> WrittenColumns:
    """https://huggingface.co/datasets/tatsu-lab/alpaca."""
    return {
        "instruction": question(table.prompt),
        "input": literal(""),
        "output": text_of_reply(table.completion),
        "system": system_text(table.prompt),
    }


@target(reads="alpaca", holds=("system",), system="first")
def preference(table: Preference) -> WrittenColumns:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md, preference dataset."""
    return {
        "instruction": question(table.prompt),
        "input": literal(""),
        "chosen": text_of_reply(table.chosen),
        "rejected": text_of_reply(table.rejected),
        "system": system_text(table.prompt),
    }


@target(reads="alpaca", holds=("system",), system="first")
def unpaired(table: Unpaired) -> WrittenColumns:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md, KTO dataset."""
    return {
        "instruction": question(table.prompt),
        "input": literal(""),
        "output": text_of_reply(table.completion),
        "kto_tag": table.label,
        "system": system_text(table.prompt),
    }
