"""Stanford Alpaca: an instruction, sometimes an input to it, and the output; earlier turns, if any."""

from fmtkit.columns import ABSENT, Exchanges, Flag, Text, first_given, one_filled
from fmtkit.columns.conversations import after, chosen_over, messages_of, with_context
from fmtkit.core.tables import Completion, Preference, Unpaired
from fmtkit.formats.registry import converter

OUTPUTS = ("response", "output")


@converter(any_of=[OUTPUTS])
def completion(
    instruction: Text,
    output: Text = ABSENT,
    response: Text = ABSENT,
    input: Text = ABSENT,
    system: Text = ABSENT,
    history: Exchanges = ABSENT,
) -> Completion:
    """https://huggingface.co/datasets/tatsu-lab/alpaca; an input follows on a new line.

    `history` holds earlier questions and answers, as in LLaMA-Factory's alpaca format. GPTeacher and
    others call the output `response`.
    """
    prompt = messages_of(system=system, user=with_context(instruction, input))
    reply = one_filled({"response": response, "output": output})
    return Completion(after(history, prompt), messages_of(assistant=reply))


@converter()
def preference(
    instruction: Text,
    chosen: Text,
    rejected: Text,
    input: Text = ABSENT,
    system: Text = ABSENT,
    history: Exchanges = ABSENT,
) -> Preference:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md, preference dataset."""
    prompt = messages_of(system=system, user=with_context(instruction, input))
    return chosen_over(after(history, prompt), chosen, rejected)


@converter(any_of=[OUTPUTS, ("kto_tag", "label")])
def unpaired(
    instruction: Text,
    output: Text = ABSENT,
    response: Text = ABSENT,
    kto_tag: Flag = ABSENT,
    label: Flag = ABSENT,
    input: Text = ABSENT,
    system: Text = ABSENT,
    history: Exchanges = ABSENT,
) -> Unpaired:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md, KTO dataset."""
    prompt = messages_of(system=system, user=with_context(instruction, input))
    liked = first_given(kto_tag=kto_tag, label=label)
    reply = one_filled({"response": response, "output": output})
    return Unpaired(after(history, prompt), messages_of(assistant=reply), liked)
