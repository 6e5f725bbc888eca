"""Objects that a configuration adds to a trainer by their named paths, as it names them.

The plan checks them (`planning.extensions`), the training process makes them (`building.extensions`).
"""

from collections.abc import Mapping
from dataclasses import field

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError

CALLBACKS, OPTIMIZER, METRICS = "callbacks", "optimizer", "compute_metrics"
OF_TRAINER = ("trainer", "ref_model", "accelerator")
"""Parameters of callbacks that are filled from the trainer, where no argument is given for them."""
OF_OPTIMIZER = ("params", "lr")
"""Parameters of an optimizer that the trainer fills: the model's weights, and `learning_rate`."""
_CLASS, _GIVEN = "class", "kwargs"


@dataclass(frozen=True)
class Named:
    """An object that is made of a class or a function, by its named path and with arguments.

    An argument may be such an object too: {class: transformers.GenerationConfig, kwargs: {...}}.
    """

    path: str
    given: Mapping[str, object] = field(default_factory=dict)


def read_named(key: str, value: object) -> tuple[Named, ...]:
    """Read a key's value: a name, or a list of names and of {class, kwargs}; raise OptionError for others."""
    listed = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(_named(key, one) for one in listed)


def _named(key: str, value: object) -> Named:
    if isinstance(value, str):
        return Named(value)
    if isinstance(value, Mapping) and isinstance(value.get(_CLASS), str):
        given = value.get(_GIVEN) or {}
        if isinstance(given, Mapping) and value.keys() <= {_CLASS, _GIVEN}:
            return Named(str(value[_CLASS]), {str(k): _argument(key, v) for k, v in given.items()})
    raise OptionError(
        f"{key}: {value!r}: write module.Class, or {{class: module.Class, kwargs: ...}}"
    )


def _argument(key: str, value: object) -> object:
    return _named(key, value) if isinstance(value, Mapping) and _CLASS in value else value
