"""Questions of a benchmark: the turns of one user, to each of which a model has to reply first."""

from fmtkit.columns import Texts
from fmtkit.columns.dialogs import dialog
from fmtkit.core.tables import Prompt
from fmtkit.formats.registry import converter


@converter(keeps=True)
def prompt(turns: Texts) -> Prompt:
    """https://github.com/lm-sys/FastChat, mt_bench/question.jsonl; the first turn is the prompt.

    Later turns ask about a reply that is not there: rows that have some are counted.
    """
    first = turns.with_value(turns.value.list.first())
    return Prompt(dialog(user=first.warn("unread_turns", turns.value.list.len() > 1)))
