"""Remake tests/axolotl/prepared: the rows beside it, prepared by axolotl's own strategies.

`python tests/axolotl/remake.py AXOLOTL/src` where axolotl's source lies, with its dependencies importable;
nothing of axolotl is needed by the tests, which read what it has written. Prepared with 067b021 (2026-07-24).
"""

import os
import shutil
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parent
TEXTS = (
    "the a of red green blue river stone apple water fire question answer which why because sum "
)


def tokenizers() -> None:
    """Write two tokenizers: one that ends with the template's end, one with a BOS and an EOS of its own."""
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer, LlamaConfig

    from fmtkit.training import demo

    rows = [file.read_text() for file in sorted((HERE / "rows").glob("*.jsonl"))]
    for name in ("ends", "own"):
        folder = HERE / "tokenizers" / name
        shutil.rmtree(folder, ignore_errors=True)
        template = (HERE.parents[1] / "templates" / "chatml.jinja").read_text()
        demo.make(folder, [TEXTS * 20, *rows], vocabulary=420, bos=name == "own", template=template)
        if name == "own":
            made = AutoTokenizer.from_pretrained(folder)
            made.add_special_tokens({"eos_token": "<|end_of_text|>"})
            made.backend_tokenizer.post_processor = TemplateProcessing(
                single="<|begin_of_text|> $A",
                special_tokens=[("<|begin_of_text|>", made.bos_token_id)],
            )
            made.save_pretrained(folder)
        for file in folder.glob("*.safetensors"):
            file.unlink()
        LlamaConfig(vocab_size=421, hidden_size=32, num_hidden_layers=1).save_pretrained(folder)


def prepare(config: Path) -> None:
    """Prepare the datasets of a config as `axolotl preprocess` does, into a folder of its name."""
    from axolotl.utils.data import prepare_datasets, prepare_preference_datasets
    from axolotl.utils.dict import DictDefault
    from transformers import AutoTokenizer

    keys = yaml.safe_load(config.read_text())
    out = HERE / "prepared" / config.stem
    shutil.rmtree(out, ignore_errors=True)
    cfg = DictDefault(
        {
            "seed": 42,
            "shuffle_merged_datasets": True,
            "train_on_inputs": False,
            "val_set_size": 0,
            "dataset_num_proc": 1,
            "is_preprocess": True,
            "micro_batch_size": 1,
            "batch_size": 1,
            "num_epochs": 1,
            "tokenizer_config": keys["base_model"],
            "tokenizer_type": "AutoTokenizer",
            "dataset_prepared_path": str(out),
            **keys,
        }
    )
    from axolotl.utils.schemas.enums import RLType

    if cfg.rl:
        cfg.rl = RLType(cfg.rl)
    tokenizer = AutoTokenizer.from_pretrained(cfg.base_model)
    if cfg.rl:
        prepare_preference_datasets(cfg, tokenizer)
    else:
        prepare_datasets(cfg, tokenizer)
    # The hash of its settings names the folder that axolotl writes; here the config does.
    (written,) = [path.parent for path in out.glob("*/state.json")]
    for path in written.iterdir():
        path.rename(out / path.name)
    written.rmdir()
    for lock in (*out.glob("*.lock"), *out.glob("*ready*")):
        lock.unlink()


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    os.environ |= {"AXOLOTL_DO_NOT_TRACK": "1", "AXOLOTL_IS_PREPROCESS": "1", "HF_HUB_OFFLINE": "1"}
    os.chdir(HERE)
    tokenizers()
    for config in sorted((HERE / "configs").glob("*.yaml")):
        if len(sys.argv) < 3 or config.stem in sys.argv[2:]:
            prepare(config)
