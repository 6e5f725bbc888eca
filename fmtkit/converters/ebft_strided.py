"""Texts and conversations as tokens in which blocks are rewritten: strided EBFT."""

from fmtkit.columns import ABSENT, Text, WideMessages, WideShareGPT, first_filled
from fmtkit.columns.documents import Answer, Continuation, Document
from fmtkit.columns.problems import literal
from fmtkit.columns.references import conversation_of, plain, prompt_of
from fmtkit.formats.registry import converter

EITHER = [("conversations", "messages")]


@converter(
    name="ebft_strided_structured.transform",
    aliases=["ebft_strided_structured"],
    any_of=[("question", "prompt", "input"), ("answer", "completion", "output")],
    differs="a row with nothing to train on is rejected; an empty column does not hide another",
)
def structured(
    *,
    input: Text = ABSENT,
    prompt: Text = ABSENT,
    question: Text = ABSENT,
    output: Text = ABSENT,
    completion: Text = ABSENT,
    answer: Text = ABSENT,
) -> Continuation:
    """https://docs.axolotl.ai/docs/ebft.html."""
    return Continuation(
        first_filled(question=question, prompt=prompt, input=input),
        first_filled(answer=answer, completion=completion, output=output),
    )


@converter(
    name="ebft_strided_structured.transform",
    any_of=[("question", "prompt", "input"), ("answer", "completion", "output")],
    differs="a prompt of messages is written by the chat template",
)
def structured_chat(
    *,
    input: WideMessages = ABSENT,
    prompt: WideMessages = ABSENT,
    question: WideMessages = ABSENT,
    output: Text = ABSENT,
    completion: Text = ABSENT,
    answer: Text = ABSENT,
) -> Answer:
    """https://docs.axolotl.ai/docs/ebft.html."""
    return Answer(
        prompt_of(question, prompt, input),
        first_filled(answer=answer, completion=completion, output=output),
    )


@converter(
    name="ebft_strided_chat.transform",
    aliases=["ebft_strided_chat"],
    any_of=EITHER,
    differs="anchors are only in assistant turns; a pad id of 0 stays 0",
)
def every(messages: WideMessages = ABSENT, conversations: WideMessages = ABSENT) -> Document:
    """https://docs.axolotl.ai/docs/ebft.html."""
    return Document(plain(conversation_of(messages, conversations)), literal("every"))


@converter(name="ebft_strided_chat.transform")
def every_sharegpt(conversations: WideShareGPT) -> Document:
    """https://huggingface.co/datasets/RyokoAI/ShareGPT52K."""
    return Document(plain(conversation_of(conversations)), literal("every"))


@converter(
    name="ebft_reasoning.transform_strided",
    any_of=EITHER,
    differs="thinking that is not trained on still holds anchors; any tokenizer's tags are found",
)
def final(
    messages: WideMessages = ABSENT,
    conversations: WideMessages = ABSENT,
    mask_thinking_ce: bool = False,
) -> Document:
    """https://docs.axolotl.ai/docs/ebft.html."""
    trained = literal("answer" if mask_thinking_ce else "last")
    return Document(plain(conversation_of(messages, conversations)), trained)


@converter(name="ebft_reasoning.transform_strided")
def final_sharegpt(conversations: WideShareGPT, mask_thinking_ce: bool = False) -> Document:
    """https://huggingface.co/datasets/RyokoAI/ShareGPT52K."""
    trained = literal("answer" if mask_thinking_ce else "last")
    return Document(plain(conversation_of(conversations)), trained)
