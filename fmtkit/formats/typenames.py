"""How a type's name is read: TYPE = [TEMPLATE.]SOURCE[:STYLE], with the names that axolotl's users know."""

from collections.abc import Mapping
from dataclasses import field

from fmtkit.columns.instructions import style_of
from fmtkit.core import runner
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.formats import registry

MODEL_TEMPLATE_SOURCES = frozenset({"chat_template", "bradley_terry"})
"""Sources `NAME.something` that are rendered with the model's own template, not a text family."""
METHOD_PREFIXES = {"bradley_terry": "reward"}
SUFFIXES = (".load", ".transform", ".default")
STYLE = "style"
"""The option that a name says after a colon."""

_AS_SEGMENTS = "write its rows as segments of type input_output"
REFUSED: Mapping[str, str] = {
    "_synthetic": "rows of random tokens hold nothing to train on; name a source",
    "creative_acr.load_answer": f"its prompts are axolotl's own long texts; {_AS_SEGMENTS}",
    "creative_acr.load_critique": f"its prompts are axolotl's own long texts; {_AS_SEGMENTS}",
    "creative_acr.load_revise": f"its prompts are axolotl's own long texts; {_AS_SEGMENTS}",
    "llama2_chat": "write type: chat_template, and Llama 2's template as chat_template_jinja",
    "messages.chat": "write type: chat_template, which reads the same rows",
    "metharme": "it learns three EOS tokens after a reply; for one write type: {field_instruction: "
    "prompt, field_output: generation, format: '{instruction}', no_input_format: '{instruction}'}",
    "pretrain": "fmtkit is for post-training; give text as type completion",
    "pygmalion": f"its markers stand in the text, and each reply has an EOS; {_AS_SEGMENTS}",
    "reflection": f"its prompt is a long text of axolotl's own; {_AS_SEGMENTS}",
}
"""Types of axolotl that are not converted -> why, and what to write instead."""


@dataclass(frozen=True)
class TypeName:
    """What a type's name stands for."""

    type: str
    source: str
    """Name of the converters; for a user's function, `FILE.function`."""
    template: str | None = None
    """Text family or path of a .jinja file; None where the name has none."""
    model_template: bool = False
    """Whether the source is rendered with the model's template (--chat-template, the tokenizer's)."""
    method: str | None = None
    function: bool = False
    """Whether the source is a user's function."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The options that the name gives: the style of a prompt's text."""

    @property
    def reading(self) -> str:
        """Return in words how the name is read."""
        if self.function:
            return f"the function {self.source} of the user"
        if self.template:
            return f"source {self.source} rendered with template {self.template}"
        if self.model_template:
            return f"source {self.source} rendered with the model's chat template"
        return f"source {self.source}, as messages"


def read(name: str, *, functions: bool = False) -> TypeName:
    """Read a type's name; `functions` says that FILE.function is allowed (a config or a plugin names it).

    Shipped names win over files. Raises UnknownNameError with a did-you-mean.
    """
    found = _exact(name) or _suffixed(name) or _styled(name) or _method(name) or _templated(name)
    if found is not None:
        return found
    if functions and "." in name and name not in REFUSED:
        return TypeName(name, name, function=True)
    bare = name.partition(":")[0].removesuffix(".load")
    why = REFUSED.get(bare) or REFUSED.get(f"{bare}.chat")
    if why is not None:
        raise OptionError(f"type {name} is not converted: {why}")
    raise _unknown(name)


def _exact(name: str) -> TypeName | None:
    if not registry.is_known(name):
        return None
    family = name.partition(".")[0]
    method = METHOD_PREFIXES.get(family)
    return TypeName(name, name, model_template=family in MODEL_TEMPLATE_SOURCES, method=method)


def _suffixed(name: str) -> TypeName | None:
    for suffix in SUFFIXES:
        stem = name.removesuffix(suffix)
        if stem != name and registry.is_known(stem):
            found = _exact(stem)
            assert found is not None
            return TypeName(name, found.source, found.template, found.model_template, found.method)
    return None


def _styled(name: str) -> TypeName | None:
    stem, colon, style = name.partition(":")
    if not colon or not registry.is_known(stem):
        return None
    if not any(STYLE in converter.options for converter in registry.converters_named(stem)):
        raise OptionError(f"type {name}: {stem} has no styles; write {stem}")
    style_of(style)
    return TypeName(name, stem, options={STYLE: style})


def _method(name: str) -> TypeName | None:
    prefix, _, rest = name.partition(".")
    if prefix not in METHOD_PREFIXES or not rest:
        return None
    found = _exact(rest) or _templated(rest)
    if found is None:
        return None
    return TypeName(
        name, found.source, found.template, found.model_template, METHOD_PREFIXES[prefix]
    )


def _templated(name: str) -> TypeName | None:
    if ".jinja" in name:
        stem, _, source = name.partition(".jinja")
        source = source.removeprefix(".") or "default"
        if registry.is_known(source):
            return TypeName(name, source, template=f"{stem}.jinja")
        raise _unknown_source(name, source)
    template, _, source = name.partition(".")
    if not is_template(template):
        return None
    source = source or "default"
    if registry.is_known(source):
        return TypeName(name, source, template=template)
    raise _unknown_source(name, source)


def is_template(name: str) -> bool:
    """Return whether a template of that name can be found."""
    from fmtkit.rendering import template_sources

    return template_sources.is_known(name)


def _unknown_source(name: str, source: str) -> UnknownNameError:
    error = UnknownNameError("source", source, registry.names())
    error.args = (f"{error.args[0]} (in type {name!r})",)
    return error


def _said(name: str, advice: str) -> UnknownNameError:
    error = UnknownNameError("type", name, ())
    error.args = (f"no type named {name!r}; {advice}",)
    return error


def _unknown(name: str) -> UnknownNameError:
    from fmtkit.rendering import template_sources

    head, dot, rest = name.partition(".")
    templates = template_sources.names()
    if name in runner.names():
        return _said(
            name,
            f"{name} is a training method, and a type says how the rows are laid out, such as "
            f"chatml.intel: `fmtkit inspect SOURCE` finds it; --method {name} says what for",
        )
    if name in templates:
        return _said(name, f"{name} is a template: write {name}.SOURCE, such as {name}.intel")
    # A version has a point too: qwen2.5.intel.
    for template, source in ((head, rest), name.rpartition(".")[::2]):
        if not dot or not registry.is_known(source):
            continue
        near = template_sources.near_name(template)
        if near is not None and template_sources.is_of_tokenizer(near):
            return _said(
                name,
                f"{near} is the template of that model's own tokenizer: write {source}, with "
                "--chat-template tokenizer_default --tokenizer ORG/MODEL",
            )
        if near is not None:
            return _said(name, f"did you mean '{near}.{source}'?")
    return UnknownNameError(
        "type", name, registry.names(), "; `fmtkit types` and `fmtkit templates` list them"
    )
