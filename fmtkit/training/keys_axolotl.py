"""Keys of axolotl that fmtkit knows by name alone: notes, which change no result, and refusals.

A note changes speed or memory only, or has nothing to act on; a refusal changes what is trained and
cannot be done with TRL, PEFT and accelerate. What each means was read in axolotl's schemas.
"""

from fmtkit.training.key import Key

_NOTES: dict[str, tuple[str, ...]] = {
    "a fused kernel of axolotl's own: the same result without it": (
        "flash_attn_cross_entropy",
        "flash_attn_fuse_mlp",
        "flash_optimum",
        "flex_attn_compile_kwargs",
        "fused_attn_kernel",
        "gemma4_hybrid_attn_impl",
        "liger_layer_norm",
        "liger_rms_norm_gated",
        "tiled_mlp",
        "use_dsv4_kernels",
        "use_glm_dsa_kernels",
        "use_scattermoe",
        "use_sonicmoe",
    ),
    "it would end a run whose loss explodes; one that goes well is the same": (
        "loss_watchdog_patience",
        "loss_watchdog_threshold",
    ),
    "how weights are loaded, which changes memory alone": (
        "experimental_skip_move_to_device",
        "low_cpu_mem_usage",
    ),
    "tables and metrics of axolotl's while evaluating; the weights are the same": (
        "do_causal_lm_eval",
        "eval_causal_lm_metrics",
        "eval_max_new_tokens",
        "eval_table_size",
        "otel_metrics_host",
        "otel_metrics_port",
        "use_otel_metrics",
    ),
    "how axolotl reads and packs its data; the same rows train": (
        "pretrain_multipack_attn",
        "sample_packing_seq_len_multiplier",
        "streaming_multipack_buffer_size",
        "total_num_tokens",
    ),
    "the launcher decides": ("ddp",),
}
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
}

KEYS: tuple[Key, ...] = (
    *(Key(name, "any", "nothing", about) for about, names in _NOTES.items() for name in names),
    *(
        Key(name, "any", "refused", about, idle=(False, None, 1))
        if name == "expert_parallel_size"
        else Key(name, "any", "refused", about)
        for about, names in _REFUSED.items()
        for name in names
    ),
)
