"""Keys of `ebft`."""

from fmtkit.training.config.key import Key, inside

KEYS: tuple[Key, ...] = inside(
    "ebft",
    Key("mode", "enum:structured|strided", "ebft", "whole answers, or blocks inside documents"),
    Key(
        "feature_layers", "numbers", "ebft", "layers whose features are used, as depths from 0 to 1"
    ),
    Key(
        "embed_method",
        "enum:last_token|mean_pooling|completion_mean|concat",
        "ebft",
        "how features are pooled",
    ),
    Key("use_whitening", "bool", "ebft", "whiten the features of a group"),
    Key("alignment_coef", "number", "ebft", "weight of the similarity to the reference"),
    Key("diversity_coef", "number", "ebft", "weight of the similarity of answers to each other"),
    Key("ce_coef", "number", "ebft", "weight of the cross entropy on the reference"),
    Key(
        "adaptive_max_tokens",
        "bool",
        "ebft",
        "limit the length of answers by that of their references",
    ),
    Key("gt_length_multiplier", "number", "ebft", "factor of that limit"),
    Key("stride", "count", "ebft", "strided: tokens between blocks"),
    Key("context_length", "count", "ebft", "strided: first block's position"),
    Key("generate_max_len", "count", "ebft", "strided: tokens of a block"),
    Key("n_samples_per_prompt", "count", "ebft", "strided: samples of a block"),
    Key("temperature", "number", "ebft", "strided: temperature of sampling"),
    Key("top_p", "number", "ebft", "strided: top-p of sampling"),
    Key("rl_coef", "number", "ebft", "strided: weight of the policy term"),
    Key(
        "advantage_estimator",
        "enum:rloo|group_norm|grpo|reinforce",
        "ebft",
        "baseline of the rewards",
    ),
    Key(
        "min_completion_prefix",
        "natural",
        "ebft",
        "strided: tokens of the reply before the first block",
    ),
    Key(
        "mask_thinking_ce",
        "bool",
        "ebft",
        "leave reasoning out of the cross entropy",
        option="mask_thinking_ce",
    ),
    Key("diversity_baseline", "enum:group|loo", "ebft", "baseline of the diversity term"),
    Key("whitening_space", "enum:feature|sample", "ebft", "where features are whitened"),
    Key(
        "multi_turn_train",
        "enum:all|first",
        "ebft",
        "which answers of a conversation are trained on",
    ),
)
