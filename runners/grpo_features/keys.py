"""Keys of `trl` for replay, re-rolling, dynamic sampling and batches without a signal."""

from fmtkit.training.config.key import Key, inside

KEYS: tuple[Key, ...] = inside(
    "trl",
    Key(
        "replay_buffer_size",
        "natural",
        "rl",
        "number of groups with a signal to keep, to replace groups without one",
    ),
    Key(
        "replay_recompute_logps",
        "bool",
        "rl",
        "recompute the old log-probabilities of replayed groups",
        acts_with="trl.replay_buffer_size",
    ),
    Key(
        "reroll_start_fraction",
        "fraction",
        "rl",
        "share of the run after which failed prompts are tried again",
    ),
    Key(
        "reroll_max_groups",
        "count",
        "rl",
        "maximum number of failed prompts in a batch",
        acts_with="trl.reroll_start_fraction",
    ),
    Key(
        "dynamic_sampling",
        "bool",
        "rl",
        "replace prompts whose answers all got the same reward by fresh ones, as in DAPO",
    ),
    Key(
        "dynamic_sampling_max_gen_batches",
        "count",
        "rl",
        "maximum rounds of generation for one batch, including the first (10)",
        acts_with="trl.dynamic_sampling",
    ),
    Key(
        "dynamic_sampling_metric",
        "texts",
        "rl",
        "names of the rewards that must differ; default: all except shaping rewards",
        acts_with="trl.dynamic_sampling",
    ),
    Key(
        "skip_zero_advantage_batches",
        "bool",
        "rl",
        "skip micro-batches without a signal; default: true where another key needs fmtkit's trainer",
    ),
)
