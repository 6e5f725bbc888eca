"""Keys of axolotl that fmtkit knows only by name: notes, which change no result, and refusals.

Keys with a note change only speed or memory, or have no effect; refused keys change what is trained and
cannot be honoured with TRL, PEFT and accelerate. What each means was read in axolotl's schemas.
"""

from fmtkit.training.config.key import Key

_NOTES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "computes these layers with its own fused kernel, one of another package or one from the hub",
        "the same function is computed without that kernel",
        (
            "chunked_cross_entropy_num_chunks",
            "cut_cross_entropy",
            "dsv4_shared_mlp_lora_kernel",
            "expert_backend",
            "flash_attn_cross_entropy",
            "flash_attn_d512",
            "flash_attn_fuse_mlp",
            "flash_optimum",
            "flex_attn_compile_kwargs",
            "fused_attn_kernel",
            "gemma4_hybrid_attn_impl",
            "large_head_attention",
            "liger_rms_norm_gated",
            "liger_swiglu",
            "lora_embedding_kernel",
            "lora_mlp_kernel",
            "lora_o_kernel",
            "lora_qkv_kernel",
            "moe_bnb_fast",
            "moe_dequant_chunk_size",
            "moe_grouped_backend",
            "sdpa_varlen",
            "tiled_mlp",
            "tiled_mlp_num_shards",
            "tiled_mlp_use_original_mlp",
            "unsloth_cross_entropy_loss",
            "use_dsv4_kernels",
            "use_glm_dsa_kernels",
            "use_scattermoe",
            "use_sonicmoe",
        ),
    ),
    (
        "moves or loads weights in a different way, which changes only memory",
        "transformers loads the weights; they are the same",
        ("experimental_skip_move_to_device", "low_cpu_mem_usage", "qlora_sharded_model_loading"),
    ),
    (
        "keeps fewer activations, or moves layers to the CPU, which changes only memory",
        "use gradient_checkpointing or activation_offloading",
        ("layer_offloading", "selective_checkpointing"),
    ),
    (
        "passes options to the compiler",
        "torch_compile uses torch's default options",
        ("deepcompile", "torch_compile_options"),
    ),
    (
        "reads it in its own commands (quantize, merge-lora, inference), not while it trains",
        "`fmtkit train` has no use for it",
        (
            "gradio_max_new_tokens",
            "gradio_server_name",
            "gradio_server_port",
            "gradio_share",
            "gradio_temperature",
            "gradio_title",
            "merge_method",
            "quantization",
        ),
    ),
    (
        "sets it itself, or reads it from its command line",
        "fmtkit determines it",
        (
            "axolotl_config_path",
            "capabilities",
            "device",
            "env_capabilities",
            "is_falcon_derived_model",
            "is_llama_derived_model",
            "is_mistral_derived_model",
            "is_preprocess",
            "is_qwen_derived_model",
            "total_supervised_tokens",
        ),
    ),
    (
        "chooses how the tokenizer's template is stored",
        "transformers saves it with the tokenizer",
        ("tokenizer_save_jinja_files",),
    ),
    (
        "checks that the checkpoint is quantized with GPTQ",
        "transformers reads this from the checkpoint",
        ("gptq",),
    ),
    (
        "writes tables and metrics while evaluating, or serves them to a collector",
        "metrics.jsonl has the metrics of the run; the weights are the same",
        (
            "bench_dataset",
            "bench_split",
            "do_bench_eval",
            "do_causal_lm_eval",
            "eval_causal_lm_metrics",
            "eval_max_new_tokens",
            "eval_table_size",
            "generation_do_sample",
            "generation_prompt_ratio",
            "generation_top_k",
            "generation_top_p",
            "include_tkps",
            "include_tokens_per_second",
            "lm_eval_batch_size",
            "lm_eval_model",
            "lm_eval_post_train",
            "lm_eval_tasks",
            "otel_metrics_host",
            "otel_metrics_port",
            "profiler_steps",
            "profiler_steps_start",
            "use_otel_metrics",
        ),
    ),
    (
        "logs samples, a description or checkpoints to SwanLab by its own callbacks",
        "transformers' callback logs only the metrics; the weights are the same",
        (
            "swanlab_completion_log_interval",
            "swanlab_completion_max_buffer",
            "swanlab_description",
            "swanlab_log_completions",
            "swanlab_log_model",
        ),
    ),
    (
        "sets how rows are read and packed during training",
        "rows are converted once and packed by TRL; the same rows are trained on",
        (
            "batch_flattening",
            "num_dataset_shards_to_save",
            "preprocess_iterable",
            "pretrain_multipack_attn",
            "pretrain_multipack_buffer_size",
            "pretraining_sample_concatenation",
            "sample_packing_mp_start_method",
            "streaming_multipack_buffer_size",
            "total_num_tokens",
        ),
    ),
    (
        "has the key in its schema but does not read it",
        "fmtkit does not read it either",
        ("max_prompt_len",),
    ),
    (
        "runs Python's garbage collector every few steps",
        "Python collects garbage automatically",
        ("gc_collect_steps",),
    ),
    ("wraps the model for several processes", "the launcher decides", ("ddp",)),
    (
        "no longer has the key in its schema, and drops it",
        "nothing reads it",
        (
            "gptq_groupsize",
            "gptq_model_v1",
            "sample_packing_seq_len_multiplier",
            "torchdistx_path",
        ),
    ),
)
"""What axolotl does with the keys, why fmtkit does not need them, and the keys."""
_REFUSED: dict[str, tuple[str, ...]] = {
    "bitsandbytes does not quantize 3-D expert weights, so they would be trained unquantized; leave it "
    "out, or train dense layers": ("quantize_moe_experts",),
    "TRL has no quantization-aware training; quantize the trained model instead": (
        "nvfp4_merge_aware",
        "nvfp4_merge_aware_start_step",
        "qat",
    ),
    "a patched Llama 4 that transformers cannot load; use the model as it is published": (
        "llama4_linearized_experts",
    ),
    "TRL has no expert parallelism; use fsdp": (
        "expert_parallel_backend",
        "expert_parallel_fallback_on_unsupported",
        "expert_parallel_num_nvl_bytes",
        "expert_parallel_num_rdma_bytes",
        "expert_parallel_size",
        "expert_parallel_token_capacity",
    ),
    "only axolotl has fp4 activations; leave it out": ("dsv4_fp4_grouped_mode",),
    "diffusion language models have a different objective; fmtkit trains causal language models": (
        "diffusion",
    ),
    "fmtkit does not reinitialize weights; use a model with random weights": ("reinit_weights",),
    "TRL has no 1.58-bit layers; leave it out": ("use_onebitllms",),
    "only axolotl has the entropy-weighted loss; loss_type: dft is similar": (
        "eaft_alpha",
        "eaft_k",
        "use_eaft",
    ),
    "TRL does not restart adapters; train in rounds with merge_lora and lora_model_dir": (
        "jagged_restart_anneal_steps",
        "jagged_restart_steps",
        "jagged_restart_warmup_steps",
        "relora_cpu_offload",
        "relora_prune_method",
        "relora_prune_ratio",
    ),
    "TRL does not change the trained layers during training; use unfrozen_parameters": (
        "lisa_layers_attribute",
        "lisa_n_layers",
        "lisa_step_interval",
    ),
    "TRL does not prune during training; leave it out": ("llmcompressor",),
    "positions are not scaled during training; use overrides_of_model_config with rope_parameters": (
        "pose_max_context_len",
        "pose_num_chunks",
        "pose_split_on_token_ids",
        "rope_scaling",
        "use_pose",
    ),
    "only axolotl has attention with these scores; leave it out": (
        "sage_attention",
        "scaling_softmax",
        "scaling_softmax_bias",
        "scaling_softmax_factor",
    ),
    "it belongs to an optimizer or a schedule that only axolotl has; leave it out, and name one of "
    "transformers": (
        "dion_lr",
        "dion_momentum",
        "dion_rank_fraction",
        "dion_rank_multiple_of",
        "lr_div_factor",
        "qgalore_cos_threshold",
        "qgalore_gamma_proj",
        "qgalore_proj_bits",
        "qgalore_proj_group_size",
        "qgalore_proj_quant",
        "qgalore_proj_type",
        "qgalore_queue_size",
        "qgalore_rank",
        "qgalore_scale",
        "qgalore_update_proj_gap",
    ),
    "distillation has its own methods; use rl: gkd or rl: distillation with a teacher_model": (
        "kd_alpha",
        "kd_beta",
        "kd_ce_alpha",
        "kd_normalize_topk",
        "kd_online_server",
        "kd_online_server_base_url",
        "kd_online_timeout",
        "kd_online_topk",
        "kd_temperature",
        "kd_temperature_min",
        "kd_trainer",
    ),
    "TRL does not filter gradients; leave it out": ("grokfast_alpha", "grokfast_lamb"),
    "only the experts that the router selects are trained; leave it out": ("dense_mixer",),
    "list the parameters to train in unfrozen_parameters": (
        "spectrum_model_name",
        "spectrum_top_fraction",
    ),
    "MoRA is not in PEFT; use adapter: lora": ("mora",),
    "fmtkit does not train by a remote service; leave it out": ("hatchery",),
    "the method determines the trainer; use rl": ("trainer_cls",),
    "only axolotl has layers of mixed precision; leave it out": (
        "dsv4_bf16_all",
        "dsv4_fp8_lora_kernel",
        "dsv4_fp8_nonexpert_mode",
        "embeddings_skip_upcast",
        "fp32_norm_classes",
        "fp32_norms",
        "gemma4_fp8_nonexpert",
        "gemma4_nf4_nonexpert",
        "nonexpert_quantization",
        "peft_autocast_adapter_dtype",
    ),
    "TRL does not weight tokens by their number; leave it out": ("liger_use_token_scaling",),
    "the tokenizer's files are used unchanged, also by vLLM and `fmtkit convert`; add tokens with `tokens`, "
    "or give a tokenizer_config with renamed tokens": ("added_tokens_overrides",),
    "token embeddings are not reset or removed; leave it out": (
        "fix_untrained_tokens",
        "shrink_embeddings",
    ),
    "every reply of rows with images is trained on, where the template marks it; leave it out": (
        "role_boundaries",
    ),
    "checkpoints are saved every save_steps steps; use that key": (
        "dynamic_checkpoint",
        "save_first_step",
    ),
    "keep API keys out of files; set SWANLAB_API_KEY": ("swanlab_api_key",),
    "fmtkit sends no messages to Lark; leave it out": (
        "swanlab_lark_secret",
        "swanlab_lark_webhook_url",
    ),
    "axolotl has removed it; use sequence_len and sample_packing": ("max_packed_sequence_len",),
    "axolotl has removed it; use liger_rms_norm": ("flash_attn_rms_norm",),
    "FP8 training is not in TRL; use bf16": ("fp8", "fp8_enable_fsdp_float8_all_gather"),
    "Ray does not start training runs; use num_processes or accelerate_config": (
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
