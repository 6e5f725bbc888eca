"""Messages for the model's own chat template, under names that the options give."""

from fmtkit.columns import ABSENT, Messages, Text, Tools, WideMessages, WideReply, WideTurns
from fmtkit.columns.conversations import split_pair, with_question
from fmtkit.columns.preference_cut import cut_pair, whole, whole_with, without_answer
from fmtkit.core.tables import Preference
from fmtkit.formats.registry import converter


@converter(
    name="chat_template.default",
    aliases=["chat_template"],
    wide=True,
    differs="replies are cut by message, not by searching for their text; tool calls and tools are "
    "kept; an answer at the end of `messages` does not leak into the prompt",
)
def default(
    messages: WideTurns, chosen: WideReply, rejected: WideReply, tools: Tools = ABSENT
) -> Preference:
    """https://docs.axolotl.ai/docs/rlhf.html#chat_template.default."""
    context = without_answer(messages, chosen)
    return cut_pair(
        whole_with(context, chosen, "chosen"), whole_with(context, rejected, "rejected"), tools
    )


@converter(
    name="chat_template.argilla_chat",
    wide=True,
    differs="the conversations must answer the same turns; tool calls and tools are kept",
)
def argilla_chat(chosen: WideMessages, rejected: WideMessages, tools: Tools = ABSENT) -> Preference:
    """https://huggingface.co/datasets/argilla/ultrafeedback-binarized-preferences-cleaned."""
    return cut_pair(whole(chosen, "chosen"), whole(rejected, "rejected"), tools)


@converter(
    name="chat_template.argilla",
    aliases=["chat_template.load"],
    differs="`prompt` counts only where the lists hold no user turn; roles are read, not "
    "guessed from the turns' places",
)
def argilla(
    chosen: Messages, rejected: Messages, prompt: Text = ABSENT, system: Text = ABSENT
) -> Preference:
    """https://docs.axolotl.ai/docs/rlhf.html#orpo."""
    better = with_question(prompt, chosen, "chosen")
    return split_pair(better, with_question(prompt, rejected, "rejected"), system)
