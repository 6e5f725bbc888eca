"""Keys of axolotl that fmtkit knows by name alone: notes, which change no result, and refusals.

A note changes speed or memory only, or has nothing to act on; a refusal changes what is trained and
cannot be done with TRL, PEFT and accelerate. What each means was read in axolotl's schemas.
"""

from fmtkit.training.config.key import Key

_NOTES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "computes these layers by a fused kernel of its own, of another package or of the hub",
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
        "moves or loads weights in another way, which changes memory alone",
        "transformers loads them; the weights are the same",
        ("experimental_skip_move_to_device", "low_cpu_mem_usage", "qlora_sharded_model_loading"),
    ),
    (
        "keeps fewer activations, or moves layers to the host, which changes memory alone",
        "gradient_checkpointing and activation_offloading are honoured",
        ("layer_offloading", "selective_checkpointing"),
    ),
    (
        "passes options to the compiler",
        "torch_compile compiles by those of torch",
        ("deepcompile", "torch_compile_options"),
    ),
    (
        "reads it in commands of its own (quantize, merge-lora, inference), not while it trains",
        "`fmtkit train` trains; there is nothing to do for it",
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
        "sets it itself, or reads what it was called with",
        "fmtkit finds it out",
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
        "transformers stores it next to the tokenizer",
        ("tokenizer_save_jinja_files",),
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
            "bench_dataset",
            "bench_split",
            "do_bench_eval",
            "do_causal_lm_eval",
            "eval_causal_lm_metrics",
            "eval_max_new_tokens",
            "eval_table_size",
            "generate_samples",
            "generation_do_sample",
            "generation_max_new_tokens",
            "generation_prompt_ratio",
            "generation_temperature",
            "generation_top_k",
            "generation_top_p",
            "include_tkps",
            "include_tokens_per_second",
            "lm_eval_batch_size",
            "lm_eval_model",
            "lm_eval_post_train",
            "lm_eval_tasks",
            "num_generation_samples",
            "otel_metrics_host",
            "otel_metrics_port",
            "profiler_steps",
            "profiler_steps_start",
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
        "has the key in its schema, and nothing reads it",
        "nothing reads it here either",
        ("max_prompt_len",),
    ),
    (
        "collects Python's garbage every so many steps",
        "Python collects by itself",
        ("gc_collect_steps",),
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
        (
            "gptq_groupsize",
            "gptq_model_v1",
            "sample_packing_seq_len_multiplier",
            "torchdistx_path",
        ),
    ),
    (
        "has no key of this name and drops it silently",
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
        "nvfp4_merge_aware_start_step",
        "qat",
    ),
    "a patched Llama 4 that transformers cannot load; use the model as it is published": (
        "llama4_linearized_experts",
    ),
    "experts cannot be spread over devices; use fsdp": (
        "expert_parallel_backend",
        "expert_parallel_fallback_on_unsupported",
        "expert_parallel_num_nvl_bytes",
        "expert_parallel_num_rdma_bytes",
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
        "relora_prune_method",
        "relora_prune_ratio",
    ),
    "layers that train change while training, which TRL does not do; use unfrozen_parameters": (
        "lisa_layers_attribute",
        "lisa_n_layers",
        "lisa_step_interval",
    ),
    "pruning while training is not in TRL; leave it out": ("llmcompressor",),
    "positions are not stretched while training; use overrides_of_model_config with rope_parameters": (
        "pose_max_context_len",
        "pose_num_chunks",
        "pose_split_on_token_ids",
        "rope_scaling",
        "use_pose",
    ),
    "attention with other scores is axolotl's own; leave it out": (
        "sage_attention",
        "scaling_softmax",
        "scaling_softmax_bias",
        "scaling_softmax_factor",
    ),
    "it belongs to an optimizer or a schedule of axolotl's own; leave it out, and name one of "
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
    "distillation has methods of its own; use rl: gkd or rl: distillation with a teacher_model": (
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
    "gradients are not filtered; leave it out": ("grokfast_alpha", "grokfast_lamb"),
    "the experts that train are those that the model chooses; leave it out": ("dense_mixer",),
    "name the parameters that train in unfrozen_parameters": (
        "spectrum_model_name",
        "spectrum_top_fraction",
    ),
    "MoRA is not in PEFT; use adapter: lora": ("mora",),
    "training by a service is not what fmtkit does; leave it out": ("hatchery",),
    "the trainers are those of the methods; use rl": ("trainer_cls",),
    "layers of mixed precision are axolotl's own; leave it out": (
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
    "weights of tokens by their number are not in TRL; leave it out": ("liger_use_token_scaling",),
    "the tokenizer's files are used as they are, by vLLM and `fmtkit convert` too; add tokens by `tokens`, "
    "or give a tokenizer_config whose tokens are renamed": ("added_tokens_overrides",),
    "embeddings of tokens are not reset or cut; leave it out": (
        "fix_untrained_tokens",
        "shrink_embeddings",
    ),
    "fmtkit trains text models; images and audio are not supported": (
        "image_resize_algorithm",
        "image_size",
        "processor_kwargs",
        "role_boundaries",
    ),
    "checkpoints are saved by save_steps; use that": ("dynamic_checkpoint", "save_first_step"),
    "keep keys out of files; set SWANLAB_API_KEY": ("swanlab_api_key",),
    "messages are not sent to Lark; leave it out": (
        "swanlab_lark_secret",
        "swanlab_lark_webhook_url",
    ),
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
