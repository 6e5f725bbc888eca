"""The template and the masks with which `fmtkit train` would read rows."""

from dataclasses import replace

from fmtkit.core import runner
from fmtkit.core.errors import OptionError, TokenizerError
from fmtkit.core.tables import STEP_SEPARATOR, UNRENDERED
from fmtkit.counting.anchors import read_rule
from fmtkit.formats.type_options import is_true
from fmtkit.formats.typenames import TypeName
from fmtkit.masks.masking import Masking
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.rendering import template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.tokenizers.turn_rule import AS_MASKED, KEPT, Kept, OriginRule


def template_of(
    name: TypeName, table: str, tokenizer: Tokenizer | None, options: InspectOptions
) -> tuple[ChatTemplate | None, list[str]]:
    """Return the template with which rows are rendered, and notes on what is missing."""
    notes = []
    if tokenizer is None:
        notes.append("without --tokenizer lengths are in characters, and there are no masks")
    if options.chat_template:
        found = template_sources.find_model_template(
            options.chat_template, tokenizer=options.tokenizer
        )
        return _for_training(options.chat_template, found), notes
    if name.template:
        family = template_sources.find_family(name.template)
        family = family.with_tokens(tokenizer.special_tokens) if tokenizer else family
        return _for_training(name.template, family), notes
    if tokenizer is None:
        return None, notes
    try:
        tokenizer.needs_chat_template()
    except TokenizerError as error:
        lacks = [f"{error}; until then lengths count only the contents"]
        return None, notes if table in UNRENDERED else [*notes, *lacks]
    return template_sources.find_model_template(
        template_sources.TOKENIZER_DEFAULT, tokenizer=options.tokenizer
    ), notes


def _for_training(name: str, found: ChatTemplate) -> ChatTemplate:
    """Return the template that a run gives the tokenizer: the variant that marks replies, if there is one."""
    if found.training is None or name == template_sources.TOKENIZER_DEFAULT:
        return found
    return replace(found, source=found.training)


def masking_of(name: TypeName, options: InspectOptions) -> Masking:
    """Return the settings of masks from the type's options and the flags.

    Raises UnknownNameError for an unknown method, OptionError for masks by origin of another than sft.
    """
    method = options.method or name.method
    if method is not None:
        runner.find(method)
    by_origin = OriginRule(
        options.mask_template_tokens, options.ignore_empty_think, _kept(options.keep_reasoning)
    )
    if by_origin != AS_MASKED and method is not None and runner.find(method).mask != "completion":
        raise OptionError(
            f"mask_template_tokens, ignore_empty_think and keep_reasoning are for sft, not for {method}"
        )
    return Masking(
        method,
        options.train_on_inputs,
        options.assistant_only,
        step_separator=str(options.options.get("step_separator", STEP_SEPARATOR)),
        train_on_last_step_only=is_true(options.options, "train_on_last_step_only"),
        by_origin=by_origin,
        anchors=read_rule(options.ebft),
    )


def _kept(given: str | None) -> Kept | None:
    """Return what `keep_reasoning` says; raise OptionError for another word."""
    for known in KEPT:
        if given == known:
            return known
    if given is not None:
        raise OptionError(f"keep_reasoning is last or all, not {given!r}")
    return None
