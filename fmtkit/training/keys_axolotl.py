"""Keys of axolotl that fmtkit knows by name alone: notes, which change no result, and refusals.

A note changes speed or memory only, or has nothing to act on; a refusal changes what is trained and
cannot be done with TRL, PEFT and accelerate. What each means was read in axolotl's schemas.
"""

from fmtkit.training.key import Key

_NOTES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "computes these layers by a fused kernel of its own, of another package or of the hub",
        "the same function is computed without that kernel",
        (
            "cut_cross_entropy",
            "flash_attn_cross_entropy",
            "flash_attn_fuse_mlp",
            "flash_optimum",
            "flex_attn_compile_kwargs",
            "fused_attn_kernel",
            "gemma4_hybrid_attn_impl",
            "liger_rms_norm_gated",
            "lora_embedding_kernel",
            "lora_mlp_kernel",
            "lora_o_kernel",
            "lora_qkv_kernel",
            "tiled_mlp",
            "tiled_mlp_num_shards",
            "unsloth_cross_entropy_loss",
            "use_dsv4_kernels",
            "use_glm_dsa_kernels",
            "use_scattermoe",
            "use_sonicmoe",
        ),
    ),
    (
        "moves or loads weights in another way, which changes memory alone",
        "transformers loads them; the weights are the same",
        ("experimental_skip_move_to_device", "low_cpu_mem_usage"),
    ),
    (
        "checks that the checkpoint is one of GPTQ",
        "the checkpoint says so itself, and transformers reads it",
        ("gptq",),
    ),
    (
        "writes tables and metrics while evaluating, or serves them to a collector",
        "metrics.jsonl has the run's; the weights are the same",
        (
            "do_causal_lm_eval",
            "eval_causal_lm_metrics",
            "eval_max_new_tokens",
            "eval_table_size",
            "otel_metrics_host",
            "otel_metrics_port",
            "use_otel_metrics",
        ),
    ),
    (
        "logs samples, a description or checkpoints to SwanLab by callbacks of its own",
        "transformers' callback logs the metrics alone; the weights are the same",
        (
            "swanlab_completion_log_interval",
            "swanlab_completion_max_buffer",
            "swanlab_description",
            "swanlab_log_completions",
            "swanlab_log_model",
        ),
    ),
    (
        "sets how rows are read and packed while training",
        "rows are converted once and packed by TRL; the same rows train",
        (
            "pretrain_multipack_attn",
            "sample_packing_seq_len_multiplier",
            "streaming_multipack_buffer_size",
            "total_num_tokens",
        ),
    ),
    ("wraps the model for several processes", "the launcher decides", ("ddp",)),
    (
        "freezes the towers of images and audio of a multimodal model",
        "rows of text give them no gradient",
        ("freeze_mm_modules",),
    ),
    (
        "had the key once; its schema has no such key now, and drops it",
        "nothing reads it",
        ("gptq_groupsize", "gptq_model_v1", "torchdistx_path"),
    ),
    (
        "has no key of this name and drops it without a word",
        "no key of this name is known to axolotl or TRL; look for a typing error",
        (
            "adam_eps",
            "context_parapllel_size",
            "eta_min",
            "full_finetune",
            "gptq_disable_exllama",
            "test_value",
        ),
    ),
)
"""What axolotl does with a key, why nothing of it is needed here, and the keys."""
_REFUSED: dict[str, tuple[str, ...]] = {
    "bitsandbytes leaves 3-D expert weights as they are, so that they would train unquantized; leave it "
    "out, or train dense layers": ("quantize_moe_experts",),
    "quantization-aware training is not in TRL; quantize the trained model instead": (
        "nvfp4_merge_aware",
        "qat",
    ),
    "a patched Llama 4 that transformers cannot load; use the model as it is published": (
        "llama4_linearized_experts",
    ),
    "experts cannot be spread over devices; use fsdp": (
        "expert_parallel_num_nvl_bytes",
        "expert_parallel_size",
        "expert_parallel_token_capacity",
    ),
    "fp4 activations are axolotl's own; leave it out": ("dsv4_fp4_grouped_mode",),
    "diffusion language models have another objective; fmtkit trains causal ones": ("diffusion",),
    "random weights are not loaded; give a model that has them": ("reinit_weights",),
    "1.58-bit layers are not in TRL; leave it out": ("use_onebitllms",),
    "the entropy-weighted loss is axolotl's own; loss_type: dft is a near one": (
        "eaft_alpha",
        "eaft_k",
        "use_eaft",
    ),
    "restarts of the adapter are not in TRL; train in rounds with merge_lora and lora_model_dir": (
        "jagged_restart_anneal_steps",
        "jagged_restart_steps",
        "jagged_restart_warmup_steps",
        "relora_cpu_offload",
        "relora_prune_ratio",
    ),
    "layers that train change while training, which TRL does not do; use unfrozen_parameters": (
        "lisa_layers_attribute",
        "lisa_n_layers",
        "lisa_step_interval",
    ),
    "pruning while training is not in TRL; leave it out": ("llmcompressor",),
    "axolotl has removed it; use sequence_len and sample_packing": ("max_packed_sequence_len",),
    "axolotl has removed it; use liger_rms_norm": ("flash_attn_rms_norm",),
    "FP8 training is not in TRL; use bf16": ("fp8", "fp8_enable_fsdp_float8_all_gather"),
    "runs are not started by Ray; use num_processes or accelerate_config": (
        "ray_num_workers",
        "ray_run_name",
        "resources_per_worker",
        "use_ray",
    ),
}

KEYS: tuple[Key, ...] = (
    *(
        Key(name, "any", "nothing", about, axolotl=does)
        for does, about, names in _NOTES
        for name in names
    ),
    *(
        Key(name, "any", "refused", about, idle=(False, None, 1))
        if name == "expert_parallel_size"
        else Key(name, "any", "refused", about)
        for about, names in _REFUSED.items()
        for name in names
    ),
)
