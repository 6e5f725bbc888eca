r"""Equality of two answers: as numbers if each is a number and nothing else, otherwise as normalized text.

The only expressions that are evaluated are numbers as people write them: 1,000, 1{,}000, \frac12,
3\frac{1}{2}, 3.0 \times 10^5, 2^{10}, with a currency, a percent sign, degrees or a unit. Anything else,
such as 2\sqrt{3}, is not a number, and no number is extracted from it.
"""

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from fmtkit.core.data_classes import dataclass

_TEXT, _END, _ROW, _OPEN, _CLOSE, _DOLLAR = "\x04", "\x05", "\x06", "\x02", "\x03", "\x01"
r"""Placeholders for \text{, its }, \\, \{, \} and \$, so that no pattern takes them for syntax."""
_NEAR = 60
"""Characters before a number in which signs of a longer expression are searched."""
_LONGEST = 2000
"""Characters of the longest answer that is normalized; a longer one is compared unchanged."""

_SYMBOLS = str.maketrans(
    {
        **dict.fromkeys("−–—‒﹣－‐", "-"),
        **dict.fromkeys("\u00a0\u2009\u202f\u2002\u2003", " "),
        "×": r"\times ",
        "·": r"\cdot ",
        "⋅": r"\cdot ",
        "π": r"\pi ",
        "∞": r"\infty ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∈": r"\in ",
        "±": r"\pm ",
        "°": r"^\circ ",
        "∅": r"\emptyset ",
        "，": ",",
        "’": "'",
        "⟨": r"\langle ",
        "⟩": r"\rangle ",
    }
)
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_MARKED = re.compile(
    r"\\(?:text(?:bf|it|rm|tt|sf)?|math(?:rm|bf|it|sf)|mbox|operatorname|underline)\*?"
    r"\s*\{([^{}]*)\}"
)
_ARGUMENT = r"\s*(?:\{([^{}]*)\}|(\\[A-Za-z]+|[A-Za-z0-9]))"
_WRITTEN = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"\\(?:left|right|displaystyle|textstyle|limits)(?![A-Za-z])|\\!", ""),
        (r"\\[bB]igg?[lr]?(?![A-Za-z])", ""),
        (r"\\[,;:> ]|~|\\q?quad(?![A-Za-z])", " "),
        (r"\\[()\[\]]|\*\*|`", ""),
        (r"\{([,.])\}", r"\1"),
        (r"\\%", "%"),
        (r"\\\{|\\lbrace(?![A-Za-z])", _OPEN),
        (r"\\\}|\\rbrace(?![A-Za-z])", _CLOSE),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"√(\d+|[A-Za-z])", r"\\sqrt{\1}"),
        (r"\\sqrt\s*(\\[A-Za-z]+|[A-Za-z0-9])", r"\\sqrt{\1}"),
        (rf"\\frac{_ARGUMENT}{_ARGUMENT}", r"\\frac{\1\2}{\3\4}"),
        (r"\^\s*\{\s*\\circ\s*\}|\^\s*\\circ(?![A-Za-z])|\\degrees?(?![A-Za-z])", "°"),
        (r"\\(?:leq|leqslant)(?![A-Za-z])|<=", r"\\le "),
        (r"\\(?:geq|geqslant)(?![A-Za-z])|>=", r"\\ge "),
        (r"\\neq(?![A-Za-z])|!=", r"\\ne "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\varnothing(?![A-Za-z])", r"\\emptyset "),
        (r"\\times(?![A-Za-z])|\\ast(?![A-Za-z])|\*", r"\\cdot "),
        (r"(?<=[,(\[])\s*\+\s*(?=\\infty)", ""),
        (r"\{bmatrix\}", "{pmatrix}"),
        (r"([\^_])\s*\{\s*(\w)\s*\}", r"\1\2"),
        (r"\s+", " "),
    )
)
"""Notations with the same meaning, each with the notation that replaces it."""
_FINAL = re.compile(r"(?:(?<!\.)\.|[,;:]|(?<=[A-Za-z]{2})!) ?\Z")

_WHOLE = r"(?:0|[1-9]\d{0,99})"
_SIMPLE = (
    r"(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d{1,99})?"
    r"|[1-9]\d{0,2}(?: \d{3})+(?:[.,]\d{1,99})?"
    r"|[1-9]\d{0,2}(?:'\d{3})+(?:\.\d{1,99})?"
    r"|[1-9]\d?(?:,\d{2})+,\d{3}(?:\.\d{1,99})?"
    r"|[1-9]\d{0,2}(?:\.\d{3})+,\d{1,99}"
    r"|[1-9]\d{0,2}(?:\.\d{3}){2,}"
    rf"|{_WHOLE}(?:\.\d{{0,99}})?(?:[eE][-+]?\d{{1,3}})?|\.\d{{1,99}}(?:[eE][-+]?\d{{1,3}})?)"
)
"""1234.5, 1,234.5, 1 234.5, 1'234.5, 1,23,456, 1.234,5, 1.234.567, 1e3, .5; 1,23 may be two numbers."""
_EXPONENT = (
    r"\s?\^\s?(?:(?P<{0}>\d)|\{{\s?(?P<{0}_>[-+]?\d{{1,3}})\s?\}}|(?P<{0}__>\d{{2,3}}))(?!\d)"
)
_NUMBER = re.compile(
    r"(?P<sign>[-+]?)\s?(?P<currency>[\x01€£¥₹]?)\s?(?P<inner>[-+]?)\s?(?:"
    rf"(?P<mixed>{_WHOLE})\s?\\frac\{{\s?(?P<over>{_WHOLE})\s?\}}\{{\s?(?P<under>{_WHOLE})\s?\}}"
    rf"|(?P<mixed_>{_WHOLE}) (?P<over_>{_WHOLE})/(?P<under_>{_WHOLE})"
    rf"|\\frac\{{\s?(?P<above>[-+]?{_SIMPLE})\s?\}}\{{\s?(?P<below>[-+]?{_SIMPLE})\s?\}}"
    rf"|(?P<factor>{_SIMPLE})\s?\\cdot\s?10{_EXPONENT.format('tens')}"
    rf"|(?P<base>{_SIMPLE}){_EXPONENT.format('power')}"
    rf"|(?P<above_>{_SIMPLE})\s?/\s?(?P<below_>{_SIMPLE})"
    rf"|(?P<simple>{_SIMPLE})"
    r")(?P<unit>.*)",
    re.DOTALL,
)
_UNIT = re.compile(
    r"[A-Za-z]+(?:[ -][A-Za-z]+){0,4}(?:\s?\^\s?[23])?(?:\s?/\s?[A-Za-z]+(?:\s?\^\s?[23])?)?\.?"
)
_MARKED_UNIT = re.compile(rf"(?:\s|/|\^\s?[23]|{_TEXT}[^{_TEXT}{_END}]*{_END})+")
_SYMBOL_UNITS = frozenset({"%", "$", "€", "£", "¥", "₹", "°", "°C", "°F"})
_SHORT_UNITS = frozenset(
    """
    mm cm dm m km in ft yd mi mg g kg lb lbs oz s ms sec min h hr hrs l ml mph kph hz khz mhz ghz j kj
    n kw w kv v a mol pa kpa usd eur gbp c f deg rad day men cup egg car pen bag box boy cat dog
    """.split()  # noqa: SIM905 - sixty lines otherwise
)
"""Units of one to three letters; another word so short may be a variable."""
_FILLING = frozenset({"per", "old", "the", "a"})
_OTHER_NUMBER = re.compile(
    r"\b(?:hundred|thousand|million|billion|trillion|dozen|score|gross|half|halve|third|fourth"
    r"|quarter|fifth|sixth|seventh|eighth|ninth|ten|tenth|hundredth|thousandth|millionth|one"
    r"|squared|cubed|factorial|root|and|or|to|of|plus|minus|mod|modulo|remainder|below|negative"
    r"|infinity|over|point|pi|sin|cos|tan|log|ln|exp|sqrt|base|more|less|fewer|short|debt|loss"
    r"|am|pm|noon|midnight|bc|ad|not|times|into|divided|multiplied|raised|but|then)s?\b"
)
"""Words after a number that make another number of it, or more than a number."""
_SAME_UNIT = {
    **dict.fromkeys(("dollar", "usd"), "$"),
    **dict.fromkeys(("euro", "eur"), "€"),
    **dict.fromkeys(("percent", "per cent", "percentage"), "%"),
    **dict.fromkeys(("degree", "deg"), "°"),
    "foot": "ft",
    "feet": "ft",
    "inche": "in",
    "inch": "in",
    "meter": "m",
    "metre": "m",
    "centimeter": "cm",
    "centimetre": "cm",
    "kilometer": "km",
    "kilometre": "km",
    "hour": "h",
    "hr": "h",
    "minute": "min",
    "second": "s",
    "sec": "s",
    "gram": "g",
    "kilogram": "kg",
    "pound": "lb",
    "mile": "mi",
    "liter": "l",
    "litre": "l",
}

_NAMED = re.compile(
    r"(?P<name>(?:\\(?:alpha|beta|gamma|delta|theta|lambda|mu|sigma|phi|varphi|omega|rho|tau)"
    r"|[A-Za-z]{1,8})(?:_(?:\w|\{\w+\}))?'{0,3}|[A-Za-z]\(\w(?:,\w)*\)|\([a-z](?:,[a-z])+\)"
    rf"|m?\\angle ?[A-Z]{{1,3}}|{_TEXT}[^{_TEXT}{_END}]+{_END})"
    r"\s?(?:=|\\in(?![A-Za-z]))(?P<value>[^=<>]+)",
    re.DOTALL,
)
_LETTER = re.compile(r"\(?(?P<letter>[A-J])\)?[.):]?|\((?P<small>[a-j])\)")
_CHOSEN = re.compile(
    r"(?i:(?:the )?(?:option|choice|answer) )?\(?(?P<letter>[A-J])"
    r"(?:\)?[.):]?|[).:] ?\S(?!.*\b[A-J]\)).*)|\(?(?P<small>[a-df-hj])\)?[.):]?",
    re.DOTALL,
)
_WORD = re.compile(
    r"(?<![\\A-Za-z])(?:[^\W\d_]{3,}|no|am|pm|it|is|in|of|to)(?![A-Za-z])", re.IGNORECASE
)
_FRACTION = re.compile(r"(?<![\w^}])\\frac\{([^{}]+)\}\{([^{}]+)\}(?![\w\\(^])")
_EXPRESSION = re.compile(
    r"(?!.*(?<![\d.])0\d)(?:[^A-Za-z\\=:<>;°\x04]|\\[A-Za-z]+|(?<![A-Za-z])[A-Za-z](?![A-Za-z])"
    r"|(?<![A-Za-z ])[A-Za-z]{2}(?![A-Za-z])"
    r"|(?:sin|cos|tan|log|exp|sqrt|[a-z]?matrix)(?![A-Za-z]))+",
    re.DOTALL,
)
"""An expression: no words, no relations, no ratios and no times of day."""
_VARIABLE = re.compile(r"(?<![\\A-Za-z])(?![ei](?![A-Za-z]))[A-Za-z]{1,2}(?![A-Za-z])")
_GOES_ON_BEFORE = re.compile(
    r"(?:[-+*/^<>≤≥±~≈√×·\\(]|\\[A-Za-z]+|\d,?|\d\S* to|\b(?:or|not|no|minus|negative|times))\Z",
    re.IGNORECASE,
)
_GOES_ON_AFTER = re.compile(rf"[-+*/^<>≤≥±×·\\!]|[a-z]\b|{_OTHER_NUMBER.pattern}")


@dataclass(frozen=True)
class Quantity:
    """A number and its unit ("" for none)."""

    value: Fraction
    unit: str = ""

    def is_near(self, other: "Quantity", tolerance: Fraction = Fraction(0)) -> bool:
        """Return whether this equals `other`, the reference, within `tolerance` relative to it.

        If both have a unit, it must be the same. A percentage also equals its hundredth part.
        """
        if self.unit and other.unit and self.unit != other.unit:
            return False
        values = [self.value]
        if (self.unit == "%") != (other.unit == "%"):
            values.append(self.value / 100 if self.unit == "%" else self.value * 100)
        return any(abs(value - other.value) <= abs(other.value) * tolerance for value in values)


def is_same(answer: str, reference: str) -> bool:
    r"""Return whether an answer equals the reference, as a number or as normalized text.

    Args:
        answer: The answer, without the words around it.
        reference: The correct answer.

    Returns:
        Whether they are equal; False if that is uncertain.

    Example:
        >>> is_same(r"\frac12", "0.5")
        True
    """
    sides = _values(answer, reference)
    return sides is not None and (_is_value(*sides) or _is_choice(*sides))


def expressions(answer: str, reference: str) -> tuple[str, str] | None:
    """Return two answers as LaTeX for a verifier of expressions; None if they are not both expressions.

    Numbers are compared by `is_same`; words, units, times and equations are not expressions, and a
    tuple is not a set.
    """
    sides = _values(answer, reference)
    if sides is None or all(_quantity(side) is not None for side in sides):
        return None
    value, wanted = map(_without_unit, sides)
    if not (_is_expression(value) and _is_expression(wanted)):
        return None
    numbers = [side for side in (value, wanted) if _quantity(side) is not None]
    if numbers and any(map(_VARIABLE.search, (value, wanted))):
        return None
    if _items(value)[0] != _items(wanted)[0] or not _same_case(value, wanted):
        return None
    return _latex(value), _latex(wanted)


def expression(text: str) -> str | None:
    """Return an answer as LaTeX for a verifier of values; None for words and equations."""
    value = _without_unit(_sides(_plain(text))[1])
    return _latex(value) if _is_expression(value) else None


def quantity_of(text: str) -> Quantity | None:
    """Return the number, with its unit, if a string is a number and nothing else; otherwise None."""
    return _quantity(_sides(_plain(text))[1])


def number_of(text: str) -> Fraction | None:
    """Return the value of a string that is a number (1,234.5, $3, 50%, 1/2, -2e3), or None."""
    found = quantity_of(text)
    return None if found is None else found.value


def last_number(text: str) -> str | None:
    """Return the last number of a string, with its unit; None if it is part of a longer expression."""
    words = text.split()
    at = next((i for i in range(len(words) - 1, -1, -1) if re.search(r"\d", words[i])), None)
    if at is None or _GOES_ON_BEFORE.search(" ".join(words[max(at - 2, 0) : at])[-_NEAR:]):
        return None
    word = re.sub(r"\A([\"'])(.*)\1\Z", r"\2", words[at].strip("*_`").rstrip(".,;:?)*_`"))
    if quantity_of(word) is None or ".." in words[at]:
        return None
    after = words[at + 1] if at + 1 < len(words) else ""
    if not after or re.search(r"[.,;:?!)]\W*\Z", words[at]):
        return word
    if _GOES_ON_AFTER.match(after.lower()):
        return None
    named = f"{word} {after.rstrip('.,;:?!*_)')}"
    return word if quantity_of(named) is None else named


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    """Return a string with one notation for each thing, and with its spaces and capitals."""
    plain = text.strip()
    if len(plain) > _LONGEST:
        return plain
    plain = _unicode(plain).replace("\\\\", _ROW).replace("\\$", _DOLLAR)
    plain = plain.replace("$", " " if plain.count("$") % 2 == 0 else _DOLLAR)
    for _ in range(3):
        plain = _MARKED.sub(_unmarked, plain)
    for pattern, written in _WRITTEN:
        plain = pattern.sub(written, plain)
    plain = _FINAL.sub("", plain.strip())
    return plain[1:-1].strip() if re.fullmatch(r"\{[^{}]*\}", plain) else plain


def _unicode(text: str) -> str:
    """Return a string with Unicode digits, fractions and signs as ASCII and LaTeX."""
    if text.isascii():
        return text
    text = re.sub("⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: f"^{{{m[0].translate(_SUPERSCRIPT)}}}", text)
    return "".join(map(_ascii, text.translate(_SYMBOLS)))


def _ascii(character: str) -> str:
    if character.isascii():
        return character
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    above, slash, below = unicodedata.normalize("NFKC", character).partition("⁄")
    if slash and below:
        return rf"\frac{{{above}}}{{{below}}}"
    # Only full-width forms: NFKC would also make 102 of 10².
    return chr(ord(character) - 0xFEE0) if 0xFF01 <= ord(character) <= 0xFF5E else character


def _unmarked(match: re.Match[str]) -> str:
    r"""Return the content of \text{}, marked as words unless it begins with a digit or has no letter."""
    inside = match[1].replace(_TEXT, "").replace(_END, "")
    is_words = re.search(r"[^\W\d_]", inside) and not re.match(r"\s*[-+]?[\d\x01]", inside)
    return _TEXT + inside + _END if is_words else f"{{{inside}}}"


def _sides(plain: str) -> tuple[str, str]:
    """Return the name and the value of `x = 5`; the name is empty if there is none."""
    match = _NAMED.fullmatch(plain)
    return ("", plain) if match is None else (match["name"], match["value"].strip())


def _values(answer: str, reference: str) -> tuple[str, str] | None:
    """Return the parts of two answers to compare; None for values of different variables."""
    (name, value), (wanted_name, wanted) = _sides(_plain(answer)), _sides(_plain(reference))
    if name and wanted_name and _canonical(name) != _canonical(wanted_name):
        return None
    return value, wanted


def _is_value(value: str, wanted: str) -> bool:
    found, number = _quantity(value), _quantity(wanted)
    if found is not None and number is not None:
        return found.is_near(number)
    same = _canonical(value)
    return bool(same) and (same == _canonical(wanted) or _is_collection(value, wanted))


@lru_cache(maxsize=4096)
def _quantity(plain: str) -> Quantity | None:
    match = _NUMBER.fullmatch(plain) if len(plain) <= _LONGEST else None
    if match is None or (match["sign"] and match["inner"]):
        return None
    unit = _unit(match["unit"], match["currency"])
    value = None if unit is None else _value(match)
    if unit is None or value is None:
        return None
    return Quantity(-value if "-" in (match["sign"], match["inner"]) else value, unit)


def _value(match: re.Match[str]) -> Fraction | None:
    """Return the matched number without its sign; None if it has no value, such as 1/0."""

    def either(name: str) -> str | None:
        return match[name] or match[f"{name}_"]

    whole, over, under = map(either, ("mixed", "over", "under"))
    if whole and over and under:
        # An improper fraction after a number is a factor of it.
        proper = 0 < int(over) < int(under) and whole != "0"
        return int(whole) + Fraction(int(over), int(under)) if proper else None
    above, below = either("above"), either("below")
    if above and below:
        divisor = _simple(below)
        return _simple(above) / divisor if divisor else None
    for name, factor, base in (("tens", match["factor"], "10"), ("power", "1", match["base"])):
        exponent = either(name) or match[f"{name}__"]
        if exponent:
            return _power(_simple(factor), _simple(base), int(exponent))
    return _simple(match["simple"])


def _power(factor: Fraction, base: Fraction, exponent: int) -> Fraction | None:
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size * abs(exponent) > 1 << 16 or (not base and exponent <= 0):
        return None
    return factor * base**exponent


def _simple(text: str) -> Fraction:
    digits = re.sub("[ ']", "", text)
    european = re.fullmatch(r"[-+]?\d{1,3}(?:\.\d{3})+,\d+|[-+]?\d{1,3}(?:\.\d{3}){2,}", digits)
    if european or re.search(r" \d{3},\d+\Z", text):
        return Fraction(digits.replace(".", "").replace(",", "."))
    return Fraction(digits.replace(",", ""))


def _unit(rest: str, currency: str) -> str | None:
    """Return the normalized unit of a number; None if the text around the number is not a unit."""
    sign = currency.replace(_DOLLAR, "$")
    words = _words(rest).replace(_DOLLAR, "$")
    if not words:
        return sign
    named = words.replace("° ", "°")
    if named not in _SYMBOL_UNITS:
        marked = _TEXT in rest
        if (marked and not _MARKED_UNIT.fullmatch(rest)) or not _UNIT.fullmatch(words):
            return None
        if _OTHER_NUMBER.search(words.lower()) or not _are_units(words, rest):
            return None
        named = _singular(words)
    return named if sign in ("", named) else None


def _are_units(words: str, rest: str) -> bool:
    r"""Return whether words are units; a letter is one only in \text{}, since 5m or 5 xy may be products."""
    marked = _TEXT in rest
    attached = not marked and not rest.startswith(" ")
    named = [word.lower() for word in re.findall("[A-Za-z]+", words)]
    return all(
        (word in _SHORT_UNITS or word.rstrip("s") in _SHORT_UNITS) and (marked or len(word) > 1)
        for word in named
        if (len(word) < 4 or attached) and (word not in _FILLING or len(named) == 1)
    )


def _singular(words: str) -> str:
    """Return the normalized name of a unit, in the singular."""
    shown = re.sub(r"\s?([/^])\s?", r"\1", words.rstrip(". "))
    # MW and mW are two units, Hours and hours are one.
    lower = shown if len(shown) < 3 else shown.lower()

    def one(match: re.Match[str]) -> str:
        word = match[0]
        single = word[:-1] if len(word) > 3 and word.endswith("s") else word
        return _SAME_UNIT.get(word, _SAME_UNIT.get(single, single))

    return _SAME_UNIT.get(lower) or re.sub("[A-Za-z]+", one, lower)


@lru_cache(maxsize=4096)
def _canonical(plain: str) -> str:
    """Return a string without insignificant spaces; words in lower case, variables unchanged."""
    text = re.sub(r"(?<!\.)\.\Z", "", _words(plain))
    text = re.sub(r"(\\[A-Za-z]+) (?![A-Za-z])", r"\1", text)
    text = re.sub(r" (?![^\W_])|(?<![^\W_]) ", "", text)
    text = re.sub(r"(?<=\d) (?=[A-Za-z](?![A-Za-z]))", "", text)
    text = _FRACTION.sub(_slashed, text)
    return _WORD.sub(lambda match: match[0].casefold(), text)


def _slashed(match: re.Match[str]) -> str:
    r"""Return \frac{a}{b} as a/b, with brackets where precedence needs them."""
    above, below = match[1], match[2]
    is_sum = re.search(r"(?<=.)[-+]", above) is not None
    is_atom = re.fullmatch(r"\\?[A-Za-z]+|\d+", below) is not None
    return f"{f'({above})' if is_sum else above}/{below if is_atom else f'({below})'}"


def _words(plain: str) -> str:
    r"""Return a plain text without the marks of \text{}."""
    return " ".join(plain.replace(_TEXT, " ").replace(_END, " ").split())


def _is_collection(value: str, wanted: str) -> bool:
    """Return whether two tuples, intervals, sets or lists have equal items, in order except in sets."""
    (kind, items), (wanted_kind, wanted_items) = _items(value), _items(wanted)
    if kind != wanted_kind or len(items) != len(wanted_items) or not items:
        return False
    if kind == _OPEN + _CLOSE:
        return _are_paired(items, wanted_items, _is_item)
    return all(map(_is_item, items, wanted_items))


def _are_paired(items: list[str], others: list[str], fits: Callable[[str, str], bool]) -> bool:
    left = list(others)
    for item in items:
        found = next((other for other in left if fits(item, other)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _is_item(item: str, other: str) -> bool:
    found, number = _quantity(item), _quantity(other)
    if found is not None and number is not None:
        return found.is_near(number)
    return _canonical(item) == _canonical(other)


def _items(plain: str) -> tuple[str, list[str]]:
    """Return the brackets of a collection ("" for a bare list) and its items; no items if it is none."""
    text, kind = plain, ""
    if text[:1] in {"(", "[", _OPEN} and text[-1:] in {")", "]", _CLOSE}:
        kind, text = text[0] + text[-1], text[1:-1]
    items = [item.strip() for item in text.split(",")]
    if re.search(r"[()\[\]\x02\x03=]", text) or not all(items) or len(items) > 100:
        return kind, []
    return kind, items if len(items) > 1 or kind == _OPEN + _CLOSE else []


def _is_choice(value: str, wanted: str) -> bool:
    """Return whether both are the same letter of a choice: A, (A), A., option A, or "A) and its text"."""
    reference, chosen = _LETTER.fullmatch(_words(wanted)), _CHOSEN.fullmatch(_words(value))
    if reference is None or chosen is None:
        return False
    letter = (reference["letter"] or reference["small"]).upper()
    return bool((chosen["letter"] or chosen["small"]).upper() == letter)


def _without_unit(plain: str) -> str:
    r"""Return an expression without a unit in \text{} at its end."""
    start = plain.find(_TEXT)
    if start < 1 or _unit(plain[start:], "") is None:
        return plain
    return plain[:start].strip()


def _is_expression(plain: str) -> bool:
    balanced = plain.count("{") == plain.count("}")
    return balanced and len(plain) <= _LONGEST and _EXPRESSION.fullmatch(plain) is not None


def _same_case(value: str, wanted: str) -> bool:
    """Return whether no name differs only in case: x and X are two variables."""
    here, there = set(re.findall("[A-Za-z]+", value)), set(re.findall("[A-Za-z]+", wanted))
    return {name.lower() for name in here - there}.isdisjoint(map(str.lower, there - here))


def _latex(plain: str) -> str:
    """Return a string with LaTeX's escapes instead of their placeholders."""
    return plain.replace(_ROW, r"\\").replace(_OPEN, r"\{").replace(_CLOSE, r"\}")
