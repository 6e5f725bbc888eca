"""Conditions on a row: SQL expressions over its columns, as polars reads them (`--where`).

Whether a row meets a condition depends on that row alone, and on nothing outside of it. Polars also takes
functions over several rows, subqueries and the clock: what is not listed here is refused before a row is
read.
"""

import io
import json
import operator
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice, product
from typing import Any, NoReturn

import polars as pl

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.escaping import one_line
from fmtkit.core.pickling import PickledByFields

Path = tuple[str, ...]
"""A column of the source, and the keys that lead to a value inside of it."""
Types = tuple[pl.DataType, ...]
"""The types that a column of some rows may have: several only where it holds no value."""
UNKNOWN: Types = (pl.Null(), pl.String(), pl.Int64(), pl.Boolean(), pl.List(pl.String()))
"""Those of a column that is null in all of the rows: some functions take no nulls without a type."""

_INNER = {
    "BinaryExpr": ("left", "right"),
    "Cast": ("expr",),
    "Ternary": ("predicate", "truthy", "falsy"),
}
"""Nodes of polars' expressions that look at one row, and where their operands are."""
_FUNCTIONS: Mapping[str, frozenset[str]] = {
    "": frozenset(
        {
            "Abs", "Atan2", "Ceil", "Coalesce", "Exp", "FillNull", "Floor", "Log", "Log1p",
            "MaxHorizontal", "MinHorizontal", "Sign"
        }
    ),
    "Bitwise": frozenset(
        {
            "CountOnes"
        }
    ),
    "Boolean": frozenset(
        {
            "IsBetween", "IsFinite", "IsIn", "IsInfinite", "IsNan", "IsNotNan", "IsNotNull", "IsNull",
            "Not"
        }
    ),
    "ListExpr": frozenset(
        {
            "Contains", "Get", "Join", "Length", "Max", "Mean", "Min", "Sum"
        }
    ),
    "Pow": frozenset(
        {
            "Cbrt", "Generic", "Sqrt"
        }
    ),
    "Sql": frozenset(
        {
            "Binary", "IsIn", "Round", "ToFloat"
        }
    ),
    "StringExpr": frozenset(
        {
            "ConcatHorizontal", "Contains", "EndsWith", "Find", "LenBytes", "LenChars", "Lowercase",
            "Normalize", "Replace", "Reverse", "Slice", "Split", "StartsWith",
            "StripChars", "StripCharsEnd", "StripCharsStart", "Strptime", "Titlecase", "Uppercase"
        }
    ),
    "TemporalExpr": frozenset(
        {
            "Century", "Day", "Hour", "IsoYear", "Microsecond", "Millennium", "Millisecond", "Minute",
            "Month", "Nanosecond", "OrdinalDay", "Quarter", "Second", "TimeStamp", "ToString", "Week",
            "WeekDay", "Year"
        }
    ),
    "Trigonometry": frozenset(
        {
            "ArcCos", "ArcSin", "ArcTan", "Cos", "Cot", "Degrees", "Radians", "Sin", "Tan"
        }
    ),
}  # fmt: skip
"""Functions of one row, by polars' families."""
_MOST_TRIES = 5**4
_WIDTH = 300
"""Characters of an expression, and of what polars says of it, in a message."""
_FAILURES = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises for an expression, or for values that do not fit it."""
_JOINED = {"And": operator.and_, "Or": operator.or_}
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_QUERY = re.compile(r"\bselect\b|\bread_\w+\s*\(", re.IGNORECASE)
_CLOCK = re.compile(
    r"\b(?:now\s*\(|current_(?:date|time|timestamp)\b|localtime(?:stamp)?\b)", re.IGNORECASE
)
_SEVERAL_ROWS = (
    "it asks for other rows (sum, count, max, OVER, ...), but a row is kept or left out by itself; "
    "greatest and least compare columns of one row"
)
_SUBQUERY = (
    "it has a subquery, but only columns of the row are read; list the values: lang in ('en', 'de')"
)
_EXAMPLE = "write an SQL expression such as score > 3 and lang = 'en', a name that SQL takes in double quotes"


@dataclass(frozen=True)
class Unfit:
    """Why the values of rows cannot be used by a condition, and the column that is to blame, if it is one."""

    reason: str
    column: str | None = None


@dataclass(frozen=True)
class Condition(PickledByFields):
    """An SQL expression that is true or false of a row; NULL counts as false.

    Raises:
        OptionError: where it is first used, if it is no expression, or not one of a single row.
    """

    text: str

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return what it reads, in the order in which it names them."""
        return tuple(self._parsed[1])

    def test(
        self, columns: Sequence[pl.Series], types: Sequence[Types]
    ) -> tuple[pl.Series, dict[int, Unfit]]:
        """Return whether each row meets the condition, and the rows for which that cannot be said.

        Args:
            columns: The values of `paths`.
            types: The types that each of these columns may have.
        """
        fitting = self._fitting(tuple(types))
        if isinstance(fitting, Unfit):
            count = len(columns[0])
            return pl.repeat(False, count, eager=True), dict.fromkeys(range(count), fitting)
        series = [c.cast(dtype) for c, dtype in zip(columns, fitting, strict=True)]
        found: dict[int, Unfit] = {}
        return self._tested(self._frame(series), 0, found), found

    def _tested(self, frame: pl.DataFrame, first: int, found: dict[int, Unfit]) -> pl.Series:
        try:
            return self._result(frame).cast(pl.Boolean).fill_null(value=False)
        except _FAILURES as error:
            if frame.height == 1:
                reason = _reason(error)
                hint = "; TRY_CAST makes it NULL" if reason.startswith("conversion from") else ""
                found[first] = Unfit(reason + hint, self._only_column)
                return pl.Series([False])
        # Some value cannot be cast, say: the others do not depend on it.
        half = frame.height // 2
        before = self._tested(frame[:half], first, found)
        return pl.concat([before, self._tested(frame[half:], first + half, found)])

    @property
    def _only_column(self) -> str | None:
        return ".".join(self.paths[0]) if len(self.paths) == 1 else None

    def _result(self, frame: pl.DataFrame) -> pl.Series:
        return frame.with_columns(self._parsed[0].alias(_RESULT)).get_column(_RESULT)

    def _frame(self, columns: Sequence[pl.Series]) -> pl.DataFrame:
        named = zip(self._parsed[1].values(), columns, strict=True)
        return pl.DataFrame([column.alias(name) for name, column in named])

    def _fitting(self, types: tuple[Types, ...]) -> Sequence[pl.DataType] | Unfit:
        """Return types by which the condition is true, false or NULL, or why there are none."""
        if types not in self._known:
            narrowed = [
                self._unknown[place] if each == UNKNOWN else each
                for place, each in enumerate(types)
            ]
            self._known[types] = self._choice(narrowed) or self._blamed(narrowed)
        return self._known[types]

    @cached_property
    def _known(self) -> dict[tuple[Types, ...], Sequence[pl.DataType] | Unfit]:
        return {}

    @cached_property
    def _unknown(self) -> list[Types]:
        """Return the types that each column may have where it holds no value.

        They are found by the parts of the expression that read no other column: to try all combinations for
        many columns would take too long.
        """
        _, names, alone = self._parsed
        found = []
        for name in names.values():
            parts = [_expression(part) for part in alone.get(name, ())]
            fitting = (
                dtype for dtype in UNKNOWN if all(_takes(part, name, dtype) for part in parts)
            )
            found.append(tuple(fitting) or UNKNOWN)
        return found

    def _choice(self, types: Sequence[Types]) -> Sequence[pl.DataType] | None:
        choices = islice(product(*types), _MOST_TRIES)
        return next((choice for choice in choices if self._why_not(choice) is None), None)

    def _blamed(self, types: Sequence[Types]) -> Unfit:
        """Find the column without which the condition could be tested."""
        for place, path in enumerate(self.paths):
            unknown = self._unknown[place]
            choice = self._choice([*types[:place], unknown, *types[place + 1 :]])
            if choice is not None and types[place] != unknown:
                tried = [*choice[:place], types[place][0], *choice[place + 1 :]]
                name, held, why = ".".join(path), _in_words(types[place][0]), self._why_not(tried)
                is_compared = held == "text" and why is not None and _NO_RESULT not in why
                hint = f"; TRY_CAST({_as_sql(path)} AS DOUBLE) is its number" if is_compared else ""
                return Unfit(f"{name} is {held} here: {why}{hint}", name)
        return Unfit(self._why_not([each[0] for each in types]) or "its types do not fit")

    def _why_not(self, types: Sequence[pl.DataType]) -> str | None:
        """Return why columns of these types do not fit, as a row of nulls shows it."""
        frame = self._frame([pl.Series([None], dtype=dtype) for dtype in types])
        try:
            made = self._result(frame).dtype
        except _FAILURES as error:
            return _reason(error)
        if made in (pl.Boolean, pl.Null):
            return None
        return f"the expression is {_in_words(made)}{_NO_RESULT}"

    @cached_property
    def _parsed(self) -> tuple[pl.Expr, dict[Path, str], dict[str, list[Any]]]:
        """Return the expression over a column for each path, their names, and its parts by `_alone`."""
        bare = _QUOTED.sub(" ", self.text)
        if not bare.strip() and not self.text.strip():
            self.refuse(f"it is empty; {_EXAMPLE}")
        if _QUERY.search(bare):
            self.refuse(_SUBQUERY)
        if clock := _CLOCK.search(bare):
            word = clock[0].rstrip("( ")
            self.refuse(f"{word} is another time in every run; write the date, as text in quotes")
        names: dict[Path, str] = {}
        try:
            tree = json.loads(pl.sql_expr(self.text).meta.serialize(format="json"))
            checked = self._checked(tree, names)
            made, alone = _expression(checked), dict[str, list[Any]]()
            used = _alone(checked, alone)
        except RecursionError:
            self.refuse("it is nested too deeply; list values with IN")
        except _FAILURES as error:
            self.refuse(f"{_reason(error)}; {_EXAMPLE}")
        if not names:
            self.refuse(f"it names no column; {_EXAMPLE}")
        return made, names, alone if len(used) > 1 else {name: [checked] for name in used}

    def _checked(self, node: Any, names: dict[Path, str]) -> Any:
        """Return a node with a column for each path; refuse one that looks at more than the row."""
        if path := _path(node):
            # By number: `meta.score` may be a column beside the column `meta`.
            return {"Column": names.setdefault(path, f"column {len(names)}")}
        kind, body = next(iter(node.items())) if isinstance(node, dict) else (str(node), {})
        if kind == "Literal":
            return _literal(node)
        if kind == "Alias":
            return self._checked(body[0], names)
        if kind in _INNER:
            return {kind: {**body, **{k: self._checked(body[k], names) for k in _INNER[kind]}}}
        if kind != "Function":
            self.refuse(_REFUSED.get(kind, _SEVERAL_ROWS))
        family, name = _function(body["function"])
        if name not in _FUNCTIONS.get(family, ()):
            self.refuse(_SEVERAL_ROWS)
        if name == "Strptime" and '"format": null' in json.dumps(body["function"]):
            self.refuse(
                "it guesses a format of dates by other rows; give it: date(day, '%Y-%m-%d')"
            )
        return {kind: {**body, "input": [self._checked(one, names) for one in body["input"]]}}

    def refuse(self, reason: str) -> NoReturn:
        """Raise OptionError for the expression."""
        raise OptionError(f'--where "{one_line(self.text, _WIDTH)}": {reason}')


_RESULT = "the result"
_NO_RESULT = ", not true or false"
_REFUSED = {
    "SubPlan": _SUBQUERY,
    "Selector": "* and COLUMNS stand for several columns; name each of them",
}


def _literal(node: dict[str, Any]) -> dict[str, Any]:
    """Return a literal; of a decimal a floating-point number.

    Polars compares a decimal with a text as texts, without an error, and JSON has no decimals.
    """
    scalar = node["Literal"].get("Scalar") if isinstance(node["Literal"], dict) else None
    decimal = scalar.get("Decimal") if isinstance(scalar, dict) else None
    if decimal is None:
        return node
    digits, _, scale = decimal
    return {"Literal": {"Dyn": {"Float": int(digits) / 10 ** int(scale)}}}


def _path(node: Any) -> Path | None:
    """Return the column that a node is, or the value inside of one."""
    if not isinstance(node, dict):
        return None
    if "Column" in node:
        return (node["Column"],)
    body = node.get("Function", {})
    family, name = _function(body["function"]) if body else ("", "")
    if (family, name) != ("StructExpr", "FieldByName"):
        return None
    outer = _path(body["input"][0])
    return None if outer is None else (*outer, body["function"][family][name])


def _expression(node: Any) -> pl.Expr:
    # Polars reads back about 40 levels; long chains of AND and OR have more.
    body = node.get("BinaryExpr", {})
    if body.get("op") in _JOINED:
        joined: pl.Expr = _JOINED[body["op"]](_expression(body["left"]), _expression(body["right"]))
        return joined
    return pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")


def _alone(node: Any, found: dict[str, list[Any]]) -> set[str]:
    """Return the columns of a checked node; add its largest parts that have one, where it has several."""
    ((kind, body),) = node.items()
    if kind == "Column":
        return {body}
    parts = body["input"] if kind == "Function" else [body[key] for key in _INNER.get(kind, ())]
    names = [_alone(part, found) for part in parts]
    together = set().union(*names)
    if len(together) > 1:
        for part, own in zip(parts, names, strict=True):
            if len(own) == 1:
                found.setdefault(next(iter(own)), []).append(part)
    return together


def _takes(expression: pl.Expr, name: str, dtype: pl.DataType) -> bool:
    """Return whether an expression can be computed of nulls of a type."""
    frame = pl.DataFrame([pl.Series(name, [None], dtype=dtype)])
    try:
        frame.with_columns(expression.alias(_RESULT))
    except _FAILURES:
        return False
    return True


def _function(tag: Any) -> tuple[str, str]:
    """Return family and name of a function, as polars writes it: a text, or an object of one key."""
    if isinstance(tag, str):
        return "", tag
    ((family, inner),) = tag.items()
    name = (
        inner
        if isinstance(inner, str)
        else next(iter(inner), "")
        if isinstance(inner, dict)
        else ""
    )
    return (family, name) if family in _FUNCTIONS or family == "StructExpr" else ("", family)


def _as_sql(path: Path) -> str:
    """Return a path as an expression names it."""
    return ".".join(key if re.fullmatch(r"[A-Za-z_]\w*", key) else f'"{key}"' for key in path)


def _reason(error: BaseException) -> str:
    """Return what polars says, without the plan in which it happened."""
    said = re.split(r"\n+(?:This error occurred|Resolved plan|Try increasing)", str(error))[0]
    return one_line(" ".join(_COLUMN.sub("", said).split()).rstrip("."), _WIDTH)


_COLUMN = re.compile(r" in column 'column \d+'")


def _in_words(dtype: pl.DataType) -> str:
    if dtype == pl.String:
        return "text"
    if dtype == pl.Boolean:
        return "true or false"
    if dtype.is_numeric():
        return "a number"
    return "a list" if isinstance(dtype, pl.List) else f"of type {dtype}"
