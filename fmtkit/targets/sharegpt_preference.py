"""ShareGPT with a better and a worse reply, one {from, value} each."""

from fmtkit.columns.exports import asking, only_item, sharegpt, single
from fmtkit.core.tables import Preference
from fmtkit.formats.target_registry import Rows, target


@target(reads="sharegpt_preference", holds=("system", "turns"))
def preference(table: Preference) -> Rows:
    """https://huggingface.co/datasets/llamafactory/DPO-En-Zh-20k."""
    return {
        "conversations": sharegpt(asking(table.prompt)),
        "chosen": only_item(sharegpt(single(table.chosen))),
        "rejected": only_item(sharegpt(single(table.rejected))),
    }
