"""One text and the text that follows it, with a label where there is one."""

from fmtkit.columns.exports import question, text_of_reply
from fmtkit.core.tables import Completion, Unpaired
from fmtkit.formats.target_registry import WrittenColumns, target


@target(reads="completion")
def completion(table: Completion) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-completion, standard format."""
    return {"prompt": question(table.prompt), "completion": text_of_reply(table.completion)}


@target(reads="prompt_pairs")
def unpaired(table: Unpaired) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#unpaired-preference, standard format."""
    return {
        "prompt": question(table.prompt),
        "completion": text_of_reply(table.completion),
        "label": table.label,
    }


@target(reads="passthrough", text=True)
def completion_text(table: Completion) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-completion, of rendered rows."""
    return {"prompt": table.prompt, "completion": table.completion}


@target(reads="passthrough", text=True)
def unpaired_text(table: Unpaired) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#unpaired-preference, of rendered rows."""
    return {"prompt": table.prompt, "completion": table.completion, "label": table.label}
