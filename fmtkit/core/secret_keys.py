"""What looks like a secret in a text: keys and tokens by their public forms, private keys, passwords in URLs.

Each kind begins with, or holds, a text that is searched first; its pattern is then tried at that place only,
so that a text takes linear time whatever it holds. The forms are those that the services publish, as
https://github.com/gitleaks/gitleaks/blob/master/config/gitleaks.toml collects them.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from fmtkit.core.data_classes import dataclass

HIDDEN = "*"
"""What is shown for each character of a secret, so that places in the text stay what they are."""
LEAST = 12
"""Characters of the shortest text with a secret in it."""
AHEAD = 1_000
"""Characters after a cut that show whether a secret begins before it."""
VARIED = 6
"""Different characters that a secret has at least: `sk-xxxxxxxx` is a placeholder."""


@dataclass(frozen=True)
class Form:
    """A kind of secret; the first group of its pattern is what is secret."""

    kind: str
    marks: tuple[str, ...]
    """Each secret has one of them, and `pattern` fits where it begins."""
    pattern: str
    apart: bool = True
    """Whether no letter or digit may come before it."""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """Return the pattern, compiled where it is first tried: a start would compile 20 of them."""
        return re.compile(self.pattern)


_WORD = r"[A-Za-z0-9_-]"
_BREAK = r"""(?:\\{1,8}[nr]|[\s"'+]){0,64}+"""
"""What stands between the lines of a key: blanks, escapes of JSON in JSON, or the ends of quoted texts."""
FORMS = (
    Form(
        "API key",
        ("sk-",),
        # With a digit soon: words with hyphens have none.
        rf"sk-(?=[A-Za-z_-]{{0,60}}[0-9])({_WORD}{{20,}})",
    ),
    Form(
        "GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"(?:gh[pousr]|github_pat)_([A-Za-z0-9_]{30,})",
        apart=False,
    ),
    Form("GitLab token", ("glpat-",), rf"glpat-({_WORD}{{20,}})"),
    Form("Hugging Face token", ("hf_",), r"hf_([A-Za-z0-9]{30,})"),
    Form("AWS key", ("AKIA", "ASIA"), r"A[KS]IA([A-Z0-9]{16})(?![A-Za-z0-9])"),
    Form(
        "AWS key",
        ("secret_access_key", "SecretAccessKey", "SECRET_ACCESS_KEY"),
        (r"(?i:secret_?access_?key)\\?[\"']?\s{0,8}[:=]\s{0,8}\\?[\"']?([A-Za-z0-9/+]{40})"),
        apart=False,
    ),
    Form("Google key", ("AIza",), rf"AIza({_WORD}{{35}})"),
    Form(
        "Slack token",
        ("xox", "xapp-"),
        r"(?:xox[abeoprs]|xapp)-([A-Za-z0-9-]{10,})",
        apart=False,
    ),
    Form(
        "Stripe key",
        ("sk_live_", "rk_live_"),
        r"[sr]k_live_([A-Za-z0-9]{16,})",
        apart=False,
    ),
    Form("Stripe key", ("sk_test_", "rk_test_"), r"[sr]k_test_([A-Za-z0-9]{16,})"),
    Form("Groq key", ("gsk_",), r"gsk_([A-Za-z0-9]{40,})"),
    Form("SendGrid key", ("SG.",), rf"SG\.({_WORD}{{16,}}\.{_WORD}{{32,}})"),
    Form("Vault token", ("hvs.", "hvb."), rf"hv[sb]\.({_WORD}{{60,}})"),
    Form("DigitalOcean token", ("dop_v1_", "doo_v1_"), r"do[op]_v1_([a-f0-9]{64})"),
    Form("Google OAuth secret", ("GOCSPX-",), rf"GOCSPX-({_WORD}{{24,}})"),
    Form("npm token", ("npm_",), r"npm_([A-Za-z0-9]{36,})"),
    Form("PyPI token", ("pypi-Ag",), rf"pypi-({_WORD}{{50,}})"),
    Form(
        "JSON web token",
        ("eyJ",),
        rf"eyJ({_WORD}{{10,300}}+\.eyJ{_WORD}{{10,}}+\.{_WORD}{{10,}})",
    ),
    Form(
        "bearer token",
        ("Bearer ", "bearer ", "BEARER "),
        r"(?i:bearer) {1,8}(?=[A-Za-z._~+/=-]{0,60}[0-9])([A-Za-z0-9._~+/=-]{16,})",
    ),
    Form(
        "private key",
        ("-----BEGIN ",),
        # Headers, and lines of base64; their ends may be JSON's.
        (
            r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY[A-Z ]{0,10}-----"
            + _BREAK
            + r"(?:[A-Za-z-]{3,20}: [^\n\\]{0,100}"
            + _BREAK
            + r"){0,4}"
            r"((?:" + _BREAK + r"[A-Za-z0-9+/=]{16,}+)++"
            r"(?:" + _BREAK + r"[A-Za-z0-9+/=]{1,15}(?=[\\\s\"']))?)"
        ),
        apart=False,
    ),
    Form(
        "password in a URL",
        ("://",),
        r"://[^\s/:@'\"<>\\]{0,100}+:([^\s/@'\"<>\\]{1,200}+)@",
        apart=False,
    ),
)
MARKS = tuple(dict.fromkeys(mark for form in FORMS for mark in form.marks))
"""What a text with a secret has at least one of."""
_ESCAPES = frozenset({r"\n", r"\r", r"\t"})
_VISIBLE = re.compile(r"\S")


@dataclass(frozen=True, order=True)
class Secret:
    """The place of a secret in a text, without the prefix that shows its kind, and its kind."""

    start: int
    end: int
    kind: str


def secrets_in(text: str) -> list[Secret]:
    """Return what looks like a secret, in the order of the text."""
    if len(text) < LEAST:
        return []
    return sorted(
        found for form in FORMS for mark in form.marks for found in _found(text, form, mark)
    )


def hidden(text: str) -> str:
    """Return a text of the same length, in which secrets are stars.

    >>> hidden("export TOKEN=hf_abcdefghijklmnopqrstuvwxyz01234567")
    'export TOKEN=hf_**********************************'
    """
    spans = spans_of(secrets_in(text))
    if not spans:
        return text
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], _VISIBLE.sub(HIDDEN, text[start:end])]
        at = end
    return "".join([*parts, text[at:]])


def beginning(text: str, length: int) -> str:
    """Return the first characters, hidden before the cut: the beginning of a key does not look like one."""
    return hidden(text[: length + AHEAD])[:length]


def spans_of(secrets: Iterable[Secret]) -> list[tuple[int, int]]:
    """Return the ranges that secrets cover; those that overlap are one, since a key may contain another."""
    spans: list[tuple[int, int]] = []
    for secret in secrets:
        if spans and secret.start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(secret.end, spans[-1][1]))
        else:
            spans.append((secret.start, secret.end))
    return spans


def _found(text: str, form: Form, mark: str) -> Iterator[Secret]:
    at = text.find(mark)
    while at >= 0:
        match = None
        if not form.apart or _is_apart(text, at):
            match = form.regex.match(text, at)
        if match is not None and _is_secret(match[1], form):
            yield Secret(match.start(1), match.end(1), form.kind)
        at = text.find(mark, match.end() if match else at + len(mark))


def _is_apart(text: str, at: int) -> bool:
    """Return whether no word goes on at a place; the letter of an escape of JSON belongs to none."""
    return not text[at - 1 : at].isalnum() or text[at - 2 : at] in _ESCAPES


def _is_secret(text: str, form: Form) -> bool:
    """Return whether a text is more than a placeholder; a password may be short."""
    if form.kind == "password in a URL":
        return not text.startswith(("$", "{", HIDDEN, "<", "%", ":"))
    return len(set(text[:200])) >= VARIED
