"""ShareGPT with a better and a worse reply, one {from, value} each."""

from fmtkit.columns.exports import must_be_one_message, must_end_with_prompt, only_item, sharegpt
from fmtkit.core.tables import Preference
from fmtkit.formats.target_registry import WrittenColumns, target


@target(reads="sharegpt_preference", holds=("system", "turns"))
def preference(table: Preference) -> WrittenColumns:
    """https://huggingface.co/datasets/llamafactory/DPO-En-Zh-20k."""
    return {
        "conversations": sharegpt(must_end_with_prompt(table.prompt)),
        "chosen": only_item(sharegpt(must_be_one_message(table.chosen))),
        "rejected": only_item(sharegpt(must_be_one_message(table.rejected))),
    }
