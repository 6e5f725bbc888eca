"""Keys about the method: which one, and the terms of its loss."""

from fmtkit.core.runner import DEFAULT
from fmtkit.training.config.key import Key

KEYS: tuple[Key, ...] = (
    Key(
        "rl",
        "method",
        "fmtkit",
        f"the method; default: {DEFAULT}",
        aliases=("method",),
    ),
    Key("reward_model", "bool", "fmtkit", "train a reward model (the method `reward`)"),
    Key(
        "process_reward_model",
        "bool",
        "fmtkit",
        "train a step-wise reward model (the method `prm`)",
    ),
    Key(
        "rl_beta",
        "amount",
        "trainer",
        "strength of the penalty for deviating from the reference; in orpo, weight of the odds ratio",
        "beta",
        ("beta", "dpo_beta", "kto_beta"),
    ),
    Key(
        "loss_type",
        "text or texts",
        "trainer",
        "the loss, or several of them (dpo)",
        aliases=("dpo_loss_type",),
    ),
    Key(
        "loss_weights",
        "numbers",
        "trainer",
        "weights of several losses (dpo)",
        aliases=("dpo_loss_weights",),
    ),
    Key(
        "label_smoothing",
        "fraction",
        "trainer",
        "assumed share of wrong labels",
        aliases=("dpo_label_smoothing",),
    ),
    Key(
        "dpo_use_weighting", "bool", "trainer", "weight pairs by their probability", "use_weighting"
    ),
    Key(
        "dpo_use_logits_to_keep",
        "bool",
        "nothing",
        "TRL always computes only the logits of the replies",
        axolotl="computes only the logits of the replies",
    ),
    Key(
        "dpo_padding_free",
        "bool",
        "trainer",
        "concatenate the rows of a batch instead of padding them",
        "padding_free",
    ),
    Key("dpo_norm_loss", "bool", "refused", "use loss_type: sigmoid_norm"),
    Key(
        "dpo_use_liger_kernel",
        "bool",
        "nothing",
        "TRL itself fuses the head and the log-probabilities",
        axolotl="computes DPO's loss with a fused kernel",
    ),
    Key(
        "dpo_generate_during_eval",
        "bool",
        "refused",
        "TRL's DPO no longer samples; leave it out",
    ),
    Key(
        "rpo_alpha",
        "number",
        "refused",
        (
            "TRL no longer has rpo_alpha; write loss_type: [sigmoid, sft] and loss_weights: "
            "[1.0, "
            "ALPHA]"
        ),
    ),
    Key("orpo_alpha", "amount", "trainer", "orpo: weight of the odds ratio", "beta"),
    Key(
        "kto_desirable_weight",
        "amount",
        "trainer",
        "kto, bco: weight of desirable replies",
        "desirable_weight",
        ("desirable_weight",),
    ),
    Key(
        "kto_undesirable_weight",
        "amount",
        "trainer",
        "kto, bco: weight of undesirable replies",
        "undesirable_weight",
        ("undesirable_weight",),
    ),
    Key("alpha", "number", "trainer", "alphapo: shape of the reward", aliases=("alphapo_alpha",)),
    Key(
        "margin",
        "bool",
        "nothing",
        "a `margin` column is used if the data has one",
        axolotl="has no such key; TRL reads a column of that name",
    ),
    Key(
        "lmbda",
        "fraction",
        "trainer",
        "gkd: share of batches that the model generates itself",
        aliases=("gkd_lmbda",),
    ),
    Key(
        "assistant_only_loss",
        "bool",
        "trainer",
        "sft: train only on the replies; set by train_on_inputs",
    ),
    Key(
        "completion_only_loss",
        "bool",
        "trainer",
        "sft: train only on the completions; set by train_on_inputs",
    ),
    Key("reward_model_path", "text", "fmtkit", "ppo, nash_md, xpo: the reward model", is_path=True),
)
