"""Keys of `verifiers`."""

from fmtkit.training.config.key import Key, inside

KEYS: tuple[Key, ...] = inside(
    "verifiers",
    Key("environment", "text", "verifiers", "name of the environment, or of its taskset"),
    Key("arguments", "object", "verifiers", "arguments with which the environment is loaded"),
    Key(
        "dir",
        "text",
        "verifiers",
        "folder of the Python environment that has verifiers",
        is_path=True,
    ),
    Key("max_samples", "count", "verifiers", "maximum number of rows of the environment's dataset"),
    Key(
        "max_turn_tokens",
        "count",
        "verifiers",
        "maximum tokens of one turn; default: all that are left",
    ),
    Key("start_timeout", "number", "verifiers", "maximum seconds to load the environment"),
    Key("run_timeout", "number", "verifiers", "maximum seconds for one episode"),
)
