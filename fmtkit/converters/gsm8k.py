"""GSM8K: a question, and a worked answer with the number after ####."""

from fmtkit.columns import Text
from fmtkit.columns.conversations import messages_of
from fmtkit.columns.problems import Problem
from fmtkit.core.tables import Prompt
from fmtkit.formats.registry import converter


@converter(keeps=True)
def prompt(question: Text, answer: Text) -> Prompt:
    """https://huggingface.co/datasets/openai/gsm8k."""
    number = answer.value.str.extract(r"(?s).*####\s*(\S.*?)\s*\z")
    missing = Problem("value_error", "answer", number.is_null(), "answer has nothing after ####")
    return Prompt(messages_of(user=question), answer=answer.with_value(number, missing))
