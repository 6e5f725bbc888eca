"""Keys of `vllm`: the server of a run, and the vLLM inside a trainer."""

from fmtkit.training.config.key import Key, inside

KEYS: tuple[Key, ...] = inside(
    "vllm",
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
