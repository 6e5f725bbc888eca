"""Keys of the online methods: sampling, rewards, the vLLM server, EBFT, NeMo Gym and verifiers."""

from fmtkit.training.config.key import Key

_TRUTH: dict[object, object] = {True: "group", False: "none"}
_ASYNC = "vllm server or a rollout_func"

_TRL: tuple[Key, ...] = (
    Key(
        "max_prompt_length",
        "count",
        "refused",
        (
            "TRL no longer truncates prompts; rows longer than sequence_len are dropped by the "
            "conversion"
        ),
    ),
    Key(
        "scale_rewards",
        "bool or text",
        "trainer",
        "divide advantages by the standard deviation of the rewards: group, batch, none",
        values=_TRUTH,
    ),
    Key(
        "backend",
        "enum:sync|async",
        "rl",
        "async: TRL's AsyncGRPOTrainer, on GPUs with a vLLM server; only grpo",
    ),
    Key(
        "reward_funcs",
        "functions",
        "rl",
        "module.function, FILE.py:function, or a reward model; with options: {NAME: {option: value}}",
    ),
    Key("reward_num_workers", "count", "rl", "processes that run reward functions"),
    Key("reward_timeout", "amount", "rl", "maximum seconds for a call of a reward function (600)"),
    Key(
        "max_retries",
        "natural",
        "rl",
        "retries of a failed call of a reward, a rollout function, an environment or a NeMo Gym (0)",
    ),
    Key(
        "max_failed_share",
        "fraction",
        "rl",
        "share of a batch's samples that may fail and are then masked (0: the first failure ends the run)",
    ),
    Key(
        "rollout_timeout",
        "amount",
        "rl",
        "maximum seconds for a call of the rollout function (1800)",
    ),
    Key(
        "environment_timeout",
        "amount",
        "rl",
        "maximum seconds for one call of an environment (600)",
    ),
    Key("rollout_func", "text", "rl", "module.function that generates the answers"),
    Key("environment_factory", "text or object", "rl", "class of an environment with tools"),
    Key("tools", "texts", "rl", "module.function of each tool"),
    Key(
        "use_liger_loss",
        "bool",
        "nothing",
        "TRL itself fuses the head and the log-probabilities",
        axolotl="computes GRPO's loss with a fused kernel",
    ),
    Key(
        "vllm_mode",
        "enum:server|colocate",
        "trainer",
        "vLLM as a separate server, or inside the training process (colocate); default: server",
    ),
    Key(
        "vllm_request_timeout",
        "number",
        "rl",
        "maximum seconds for one request to vLLM (1800); a frozen server is detected earlier",
    ),
    Key(
        "vllm_guided_decoding_regex",
        "text",
        "trainer",
        "regular expression that the answers must match",
        "vllm_structured_outputs_regex",
        ("trl.vllm_structured_outputs_regex",),
    ),
    Key(
        "vllm_importance_sampling_cap",
        "amount",
        "trainer",
        "upper bound of the importance sampling ratio",
        "vllm_importance_sampling_clip_max",
        ("trl.vllm_importance_sampling_clip_max",),
    ),
    Key("use_data_producer", "bool", "rl", "set automatically by the features that need it"),
    Key(
        "async_prefetch",
        "bool",
        "rl",
        f"generate the next answers while training; needs a {_ASYNC}",
    ),
    Key("prefetch_depth", "count", "rl", "batches to generate ahead of time"),
    Key("vllm_sync_interval", "count", "rl", "steps between transfers of the weights to vLLM"),
    Key("vllm_lora_sync", "bool", "rl", "transfer only the adapter to vLLM, not all weights"),
    Key(
        "vllm_sync",
        "enum:nccl|file",
        "rl",
        "how all weights reach a vLLM server: nccl, or as files (for a CPU, or one GPU for both)",
    ),
    Key("streaming_partial_batch", "bool", "rl", "score groups as soon as they are complete"),
    Key(
        "streaming_min_groups",
        "count",
        "rl",
        "groups to score at once",
        acts_with="trl.streaming_partial_batch",
    ),
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
        "skip micro-batches without a signal; default: true",
    ),
)

_VLLM: tuple[Key, ...] = (
    Key("host", "text", "vllm", "address to listen on"),
    Key("port", "count", "vllm", "port to listen on"),
    Key(
        "tensor_parallel_size",
        "count",
        "vllm",
        "devices over which each copy of the model is split",
    ),
    Key("data_parallel_size", "count", "vllm", "copies of the model"),
    Key("gpu_memory_utilization", "fraction", "vllm", "share of the GPU memory to use"),
    Key("dtype", "text", "vllm", "dtype of the weights"),
    Key("max_model_len", "count", "vllm", "maximum context length in tokens"),
    Key("enable_prefix_caching", "bool", "vllm", "reuse the KV cache of equal prefixes"),
    Key("enforce_eager", "bool", "vllm", "no CUDA graphs"),
    Key("enable_reasoning", "bool", "refused", "vLLM has replaced it by reasoning_parser"),
    Key("reasoning_parser", "text", "vllm", "parser of reasoning content"),
    Key(
        "serve_module",
        "text",
        "nothing",
        "`fmtkit vllm-serve` starts vLLM's own server",
        axolotl="picks the script that starts the server",
    ),
    Key(
        "worker_extension_cls",
        "text",
        "refused",
        "the server is an unmodified `vllm serve`; leave it out",
    ),
    Key(
        "device",
        "text",
        "nothing",
        "vLLM chooses its device",
        axolotl="tells its server which device to use",
    ),
)

_EBFT: tuple[Key, ...] = (
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
    Key("mask_thinking_ce", "bool", "ebft", "leave reasoning out of the cross entropy"),
    Key("diversity_baseline", "enum:group|loo", "ebft", "baseline of the diversity term"),
    Key("whitening_space", "enum:feature|sample", "ebft", "where features are whitened"),
    Key(
        "multi_turn_train",
        "enum:all|first",
        "ebft",
        "which answers of a conversation are trained on",
    ),
)

_NEMO_GYM: tuple[Key, ...] = (
    Key("nemo_gym_enabled", "bool", "nemo_gym", "take rewards from a NeMo Gym server"),
    Key("nemo_gym_dir", "text", "nemo_gym", "folder to which relative paths refer"),
    Key("nemo_gym_auto_clone", "bool", "refused", "install it: pip install nemo-gym"),
    Key("nemo_gym_auto_start", "bool", "nemo_gym", "start the servers"),
    Key("nemo_gym_config_paths", "texts", "nemo_gym", "configuration files of the servers"),
    Key("nemo_gym_head_port", "count", "nemo_gym", "port of the head server"),
    Key(
        "nemo_gym_server_timeout", "number", "nemo_gym", "maximum seconds for the servers to start"
    ),
    Key("nemo_gym_verify_timeout", "number", "nemo_gym", "maximum seconds for scoring one answer"),
    Key("nemo_gym_run_timeout", "number", "nemo_gym", "maximum seconds for one rollout"),
    Key(
        "nemo_gym_datasets",
        "objects",
        "nemo_gym",
        "datasets, each with path, server_name and max_samples",
    ),
    Key("nemo_gym_model_name", "text", "nemo_gym", "name of the model in requests"),
    Key(
        "nemo_gym_multi_turn",
        "bool",
        "nemo_gym",
        "let the Gym's agent run multi-turn conversations",
    ),
    Key("nemo_gym_max_turns", "count", "nemo_gym", "maximum number of turns in a conversation"),
)

_VERIFIERS: tuple[Key, ...] = (
    Key("environment", "text", "verifiers", "name of the environment, or of its taskset"),
    Key("arguments", "object", "verifiers", "arguments with which the environment is loaded"),
    Key("dir", "text", "verifiers", "folder of the Python environment that has verifiers"),
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


def _inside(section: str, keys: tuple[Key, ...]) -> tuple[Key, ...]:
    """Return the keys with the section before their names."""
    from dataclasses import replace

    return tuple(replace(key, name=f"{section}.{key.name}") for key in keys)


KEYS: tuple[Key, ...] = (
    *_inside("trl", _TRL),
    *_inside("vllm", _VLLM),
    *_inside("ebft", _EBFT),
    *_NEMO_GYM,
    *_inside("verifiers", _VERIFIERS),
)
