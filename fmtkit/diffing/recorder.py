"""Runs in a trainer's own Python: lets the trainer prepare rows, and writes the resulting ids and labels.

`python -I recorder.py REQUEST.json`. One file that needs only the standard library and the trainer, since
fmtkit is not installed there. It writes JSON lines: facts of the trainer, then the sequences of each row with
the number of the row they came from, then the rows that the trainer refused, then an end line.
"""

import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import json
import os
import sys
import tempfile
import types

ROW = "fmtkit_row"
"""The column that says which row a prepared row came from."""
PROBES = ("a b", "Hello, world!\n", "  two  spaces", "1234567890", "naïve 日本 🍎", " ")
"""Texts by whose ids the settings of two tokenizers are compared."""
PACKAGES = ("trl", "axolotl", "llamafactory", "transformers", "tokenizers", "datasets", "torch")
REFUSED = 20
"""From this many refused rows on the trainer is said to refuse the dataset."""


def main(path):
    """Answer a request, or write the error that ended it."""
    with open(path, encoding="utf-8") as file:
        request = json.load(file)
    for name in request.get("stubs", ()):
        sys.modules[name] = _stub(name)
    with open(request["out"], "w", encoding="utf-8") as out:

        def write(**line):
            out.write(json.dumps(line) + "\n")

        try:
            trainer = TRAINERS[request["trainer"]](request)
            write(facts={"versions": _versions(), **trainer.facts()})
            rows = 0
            for row in _recorded(trainer, write):
                write(**row)
                rows += 1
            for note in trainer.notes:
                write(note=note)
            write(end=rows)
        except Exception as error:  # noqa: BLE001 - whatever stopped the trainer is what fmtkit tells
            write(error=_told(error))


def _recorded(trainer, write):
    """Yield what becomes of all rows; where that fails, halve them until the rows at fault are alone."""
    if trainer.rows is None:
        yield from trainer.record(None)
        return
    refused, recorded, waiting = 0, 0, [range(len(trainer.rows))]
    while waiting:
        part = waiting.pop()
        try:
            found = list(trainer.record(part))
        except Exception as error:
            if len(part) > 1:
                middle = len(part) // 2
                waiting += [part[middle:], part[:middle]]
                continue
            refused += 1
            if refused >= REFUSED or (not recorded and not waiting):
                raise
            write(refused=_told(error), row=trainer.number(part[0]))
            continue
        recorded += len(found)
        yield from found


def _told(error):
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:1000]


def _stub(name):
    """Return an empty module for a package that the trainer imports and does not need for rows of text."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    return module


def _versions():
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def facts_of_vocabulary(vocabulary, special, encode, encode_all) -> dict:
    """Return digests by which two tokenizers are compared across versions of transformers.

    `encode` is called with a text and whether the tokenizer's own special tokens are put around it,
    `encode_all` with texts: the words of the vocabulary, which tell merges that one tokenizer lacks.
    """
    words = json.dumps(sorted(vocabulary.items())).encode()
    texts = [word.replace("Ġ", " ").replace("▁", " ") for word in sorted(vocabulary)]
    merged = hashlib.sha256()
    for first in range(0, len(texts), 10_000):
        merged.update(json.dumps(encode_all(texts[first : first + 10_000])).encode())
    return {
        "merged": merged.hexdigest(),
        "vocabulary": hashlib.sha256(words).hexdigest(),
        "size": len(vocabulary),
        "special": special,
        "probes": [encode(text, around) for around in (False, True) for text in PROBES],
    }


def _tokenizer_facts(tokenizer):
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = tokenizer.get_vocab() if backend is None else backend.get_vocab(False)

    def encode_all(texts):
        if backend is None:
            return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        return [one.ids for one in backend.encode_batch(texts, add_special_tokens=False)]

    return facts_of_vocabulary(
        vocabulary,
        {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad", "unk")},
        lambda text, around: list(tokenizer(text, add_special_tokens=around)["input_ids"]),
        encode_all,
    )


def _keep_row_numbers():
    """Make `Dataset.map` keep the row number where a trainer replaces all columns.

    A function over batches may return another number of rows than it got: it is given one row at a time.
    """
    from datasets import Dataset

    plain = Dataset.map

    def keeping(self, function=None, *args, **given):
        removed = given.get("remove_columns") or ()
        removed = [removed] if isinstance(removed, str) else list(removed)
        # `filter` is a map to indices, whose features it gives.
        is_filter = given.get("features") is not None and ROW not in given["features"]
        if ROW not in self.column_names or function is None or is_filter:
            return plain(self, function, *args, **given)
        given["num_proc"] = None
        if not given.get("batched"):
            given["remove_columns"] = [name for name in removed if name != ROW] or None
            return plain(self, function, *args, **given)
        if ROW not in removed:
            return plain(self, function, *args, **given)

        def numbered(batch, *more, **named):
            made = dict(function(batch, *more, **named))
            rows = len(next(iter(made.values()))) if made else 0
            return {**made, ROW: [batch[ROW][0]] * rows}

        return plain(self, numbered, *args, **{**given, "batch_size": 1})

    Dataset.map = keeping
    for name in ("select_columns", "remove_columns"):
        setattr(Dataset, name, _with_row_numbers(getattr(Dataset, name), name == "select_columns"))


def _with_row_numbers(plain, selects):
    """Return a method of datasets that drops columns, and keeps the number of rows."""

    def keeping(self, column_names, *args, **given):
        names = [column_names] if isinstance(column_names, str) else list(column_names)
        if selects and ROW in self.column_names:
            names = [*names, *([] if ROW in names else [ROW])]
        elif not selects:
            names = [name for name in names if name != ROW]
        return plain(self, names, *args, **given)

    return keeping


def _tiny_model(folder, tokenizer, head="causal"):
    """Write a tiny model with the tokenizer's vocabulary: preparing rows needs no other."""
    import transformers

    names = {
        "causal": "LlamaForCausalLM",
        "score": "LlamaForSequenceClassification",
        "steps": "LlamaForTokenClassification",
    }
    labels = {"score": {"num_labels": 1}, "steps": {"num_labels": 2}}.get(head, {})
    config = transformers.LlamaConfig(
        vocab_size=max(tokenizer.get_vocab().values()) + 1,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **labels,
    )
    getattr(transformers, names[head])(config).save_pretrained(folder)
    return folder


def _load_tokenizer(request):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(request["tokenizer"])
    if request.get("special_tokens"):
        tokenizer.add_special_tokens(request["special_tokens"])
    if request.get("template") is not None:
        tokenizer.chat_template = request["template"]
    return tokenizer


def _plain(values):
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _last(ids):
    """Return the labels of a sequence that is scored at its last token."""
    return [-100] * (len(ids) - 1) + ids[-1:]


def _sequences(batch):
    """Return the sequences of one row, collated alone, with the tokens of each that are trained."""
    names = [prefix for prefix in ("chosen_", "rejected_") if f"{prefix}input_ids" in batch]
    if names:
        found = []
        for prefix in names:
            mask = _plain(batch[f"{prefix}attention_mask"])[0]
            ids = _kept(_plain(batch[f"{prefix}input_ids"])[0], mask)
            given = batch.get(f"{prefix}labels")
            labels = _last(ids) if given is None else _kept(_plain(given)[0], mask)
            found.append((ids, labels))
        return found
    all_ids = _plain(batch["input_ids"])
    masks = _plain(batch["attention_mask"]) if "attention_mask" in batch else [None] * len(all_ids)
    given = batch.get("labels", batch.get("completion_labels"))
    trained = batch.get("completion_mask")
    found = []
    for number, (ids, mask) in enumerate(zip(all_ids, masks)):
        kept = _kept(ids, mask)
        if given is not None:
            labels = _kept(_plain(given)[number], mask)
        elif trained is not None:
            flags = _kept(_plain(trained)[number], mask)
            labels = [token if flag else -100 for token, flag in zip(kept, flags)]
        else:
            labels = _last(kept)
        found.append((kept, labels))
    return found


def _kept(values, mask):
    if mask is None:
        return values
    return [value for value, attended in zip(values, mask) if attended]


def _line(row, sequences, label=None):
    return {
        "row": row,
        "ids": [ids for ids, _ in sequences],
        "labels": [labels for _, labels in sequences],
        "label": label,
    }


class Trl:
    """TRL's own trainer: what its dataset preparation and its collator make of the rows."""

    KEEPS = {"packing": False, "padding_free": False, "dataset_num_proc": None}
    """Arguments that would hide the rows, or prepare them in other processes."""

    def __init__(self, request):
        import datasets

        _keep_row_numbers()
        self.request, self.notes = request, []
        self.tokenizer = _load_tokenizer(request)
        with open(request["rows"], encoding="utf-8") as file:
            self.rows = [json.loads(line) for line in file]
        self.nested = [
            name
            for name in {name: None for row in self.rows for name in row}
            if self._is_nested(name)
        ]
        if self.nested and not hasattr(datasets, "Json"):
            self.notes.append(
                "this version of datasets has one struct for all tools and calls: absent keys are null"
            )
        self.class_, self.arguments = (self._named(request[name]) for name in ("class", "config"))
        fields = self.arguments.__dataclass_fields__
        self.settings = {k: v for k, v in request["settings"].items() if k in fields}
        unknown = sorted({*request["settings"]} - {*fields})
        if unknown:
            self.notes.append(f"{self.arguments.__name__} has no {', '.join(unknown)}")
        self.model = _tiny_model(request["work"] + "/model", self.tokenizer, request["head"])
        self.tokenizer.save_pretrained(self.model)

    def _is_nested(self, name):
        """Return whether a column has objects in its objects, as tools and calls are."""
        given = (row[name] for row in self.rows if isinstance(row.get(name), list))
        items = (item for values in given for item in values if isinstance(item, dict))
        return any(isinstance(value, (dict, list)) for item in items for value in item.values())

    def _dataset(self, rows):
        """Return rows as a dataset; where it can, with objects of any keys, as they are in JSON."""
        import datasets

        made = datasets.Dataset.from_list(rows)
        if not self.nested or not hasattr(datasets, "Json"):
            return made
        features = made.features.copy()
        features.update({name: datasets.List(datasets.Json()) for name in self.nested})
        return datasets.Dataset.from_list(rows, features=features)

    @staticmethod
    def _named(path):
        module, _, name = path.partition(":")
        return getattr(importlib.import_module(module), name)

    def facts(self):
        """Return what is known before any row."""
        return {"tokenizer": _tokenizer_facts(self.tokenizer)}

    def number(self, place):
        """Return the number of the row at a place."""
        return self.rows[place][ROW]

    def record(self, part):
        """Yield the lines of some rows."""
        trainer = self._trainer(self._dataset([self.rows[number] for number in part]))
        kept = trainer.train_dataset
        for number in range(len(kept)):
            example = dict(kept[number])
            row = example.pop(ROW)
            label = example.get("label")
            sequences = _sequences(trainer.data_collator([example]))
            yield _line(row, sequences, label if isinstance(label, bool) else None)

    def _trainer(self, rows):
        try:
            return self._made(rows, self.settings)
        except (ValueError, RuntimeError) as error:
            if not self.settings.get("assistant_only_loss") or "generation" not in str(error):
                raise
        # Said once: without marks in the template TRL trains on prompts too.
        self.settings = {**self.settings, "assistant_only_loss": False}
        self.notes.append(
            "TRL cannot mask this template, which has no {% generation %} marks: it trains on all tokens"
        )
        return self._made(rows, self.settings)

    def _made(self, rows, settings):
        fields = self.arguments.__dataclass_fields__
        more = {k: v for k, v in self.KEEPS.items() if k in fields}
        given = {
            "output_dir": self.request["work"] + "/out",
            "per_device_train_batch_size": 2,
            "report_to": [],
            "bf16": False,
            **more,
            **settings,
        }
        if "use_cpu" in fields:
            given["use_cpu"] = True
        model = self.model
        if "experimental" in self.class_.__module__:
            from transformers import AutoModelForCausalLM

            model = AutoModelForCausalLM.from_pretrained(model)
        return self.class_(
            model,
            args=self.arguments(**given),
            train_dataset=rows,
            processing_class=self.tokenizer,
        )


class Axolotl:
    """axolotl's own loading of a config's datasets, and for preference data the trainer that it builds."""

    REQUIRED = {
        "learning_rate": 1e-5,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "num_epochs": 1,
    }
    """Keys that axolotl requires and on which no token depends."""

    def __init__(self, request):
        os.environ["AXOLOTL_DO_NOT_TRACK"] = "1"
        os.environ["AXOLOTL_IS_PREPROCESS"] = "1"
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import datasets
        from axolotl.cli.config import load_cfg

        _keep_row_numbers()
        self.request, self.notes, self.rows = request, [], None
        self.keys = {**self.REQUIRED, **request["keys"]}
        self.keys.update(
            dataset_num_proc=1,
            dataset_prepared_path=request["work"] + "/prepared",
            output_dir=request["work"] + "/out",
            shuffle_merged_datasets=False,
            sample_packing=False,
            eval_sample_packing=False,
            val_set_size=0,
        )
        if self.keys.get("rl") == "kto":
            self.keys.setdefault("remove_unused_columns", False)
        self.lines = None
        if request.get("rows"):
            with open(request["rows"], encoding="utf-8") as file:
                self.lines = self.rows = list(file)
        self.number_sources(datasets, request.get("limit"))
        self.load_cfg = load_cfg
        self.cfg = load_cfg(self._written(), is_preprocess=True)

    @staticmethod
    def number_sources(datasets, limit):
        """Make `load_dataset` number the rows that it reads, and read only the first ones."""
        plain, seen = datasets.load_dataset, [0]

        def numbered(*args, **given):
            loaded = plain(*args, **given)
            if not isinstance(loaded, datasets.Dataset) or ROW in loaded.column_names:
                return loaded
            first, seen[0] = seen[0], seen[0] + len(loaded)
            if limit is not None:
                loaded = loaded.select(range(min(limit, len(loaded))))
                seen[0] = first + len(loaded)
            return loaded.add_column(ROW, list(range(first, first + len(loaded))))

        datasets.load_dataset = numbered
        for name, module in list(sys.modules.items()):
            if name.startswith("axolotl.") and getattr(module, "load_dataset", None) is plain:
                module.load_dataset = numbered

    def _written(self):
        import yaml

        path = self.request["work"] + "/axolotl.yaml"
        with open(path, "w", encoding="utf-8") as file:
            yaml.safe_dump(self.keys, file)
        return path

    def facts(self):
        """Return what is known before any row."""
        from axolotl.loaders import load_tokenizer

        self.tokenizer = load_tokenizer(self.cfg)
        return {"tokenizer": _tokenizer_facts(self.tokenizer)}

    def number(self, place):
        """Return the number of the row at a place."""
        return json.loads(self.lines[place])[ROW]

    def record(self, part):
        """Yield the lines of some rows of ours, or of all rows of the config's own sources."""
        from axolotl.utils.data import prepare_datasets, prepare_preference_datasets

        folder = tempfile.mkdtemp(dir=self.request["work"])
        if part is not None:
            path = folder + "/rows.jsonl"
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(self.lines[number] for number in part)
            for entry in self.keys["datasets"]:
                entry["path"] = path
        self.keys["dataset_prepared_path"] = folder + "/prepared"
        cfg = self.load_cfg(self._written(), is_preprocess=True)
        # Not by its command line, which shows a random row and fails where few are left.
        prepare = prepare_preference_datasets if cfg.rl else prepare_datasets
        rows = prepare(cfg, self.tokenizer)[0]
        if cfg.rl and "input_ids" not in rows.column_names:
            yield from self._trained(cfg, rows)
            return
        for example in rows:
            yield _line(example.get(ROW), self._of_example(example))

    @staticmethod
    def _of_example(example):
        if "chosen_ids" in example:
            sides = example["chosen_ids"], example["rejected_ids"]
            return [(ids, _last(ids)) for ids in sides]
        return [(example["input_ids"], example["labels"])]

    def _trained(self, cfg, rows):
        """Yield what the trainer that axolotl builds makes of texts of pairs or replies."""
        from axolotl.core.builders import HFRLTrainerBuilder
        from transformers import AutoModelForCausalLM

        folder = _tiny_model(self.request["work"] + "/model", self.tokenizer)
        self.tokenizer.save_pretrained(folder)
        builder = HFRLTrainerBuilder(
            cfg, AutoModelForCausalLM.from_pretrained(folder), self.tokenizer, None
        )
        builder.train_dataset = rows
        trainer = builder.build(1)
        for example in trainer.train_dataset:
            row, label = example.pop(ROW, None), example.get("label")
            sequences = _sequences(trainer.data_collator([example]))
            yield _line(row, sequences, label if isinstance(label, bool) else None)


class LlamaFactory:
    """LLaMA-Factory's own loading: its converter, its template and its processor of the stage."""

    def __init__(self, request):
        os.environ["DISABLE_VERSION_CHECK"] = "1"
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        from llamafactory.data import get_template_and_fix_tokenizer
        from llamafactory.hparams import get_train_args
        from llamafactory.model import load_tokenizer

        _keep_row_numbers()
        self.request, self.notes = request, []
        with open(request["rows"], encoding="utf-8") as file:
            self.rows = [json.loads(line) for line in file]
        self.settings = {
            "do_train": True,
            "finetuning_type": "full",
            "report_to": "none",
            "overwrite_cache": True,
            "preprocessing_num_workers": 1,
            "model_name_or_path": self._model(request),
            "dataset": "rows",
            "output_dir": request["work"] + "/out",
            "use_cpu": True,
            **request["settings"],
        }
        self.folder = request["work"]
        self._write(range(len(self.rows)))
        arguments = get_train_args({**self.settings, "dataset_dir": self.folder})
        self.model, self.data, self.training = arguments[:3]
        self.loaded = load_tokenizer(self.model)
        self.tokenizer = self.loaded["tokenizer"]
        if request.get("template") is not None and self.data.template is None:
            self.tokenizer.chat_template = request["template"]
        self.template = get_template_and_fix_tokenizer(self.tokenizer, self.data)
        if self.data.template is None:
            self.notes.append(
                "LLaMA-Factory was given no template of its own and took apart the chat template; "
                "--with template=NAME names one of its own"
            )

    @staticmethod
    def _model(request):
        """Return a folder with the tokenizer and a small model's config: LLaMA-Factory reads both."""
        tokenizer = _load_tokenizer(request)
        folder = _tiny_model(request["work"] + "/model", tokenizer)
        tokenizer.save_pretrained(folder)
        return folder

    def facts(self):
        """Return what is known before any row."""
        return {"tokenizer": _tokenizer_facts(self.tokenizer)}

    def _write(self, part):
        with open(self.folder + "/rows.json", "w", encoding="utf-8") as file:
            json.dump([self.rows[number] for number in part], file)
        with open(self.folder + "/dataset_info.json", "w", encoding="utf-8") as file:
            json.dump({"rows": {"file_name": "rows.json", **self.request["dataset"]}}, file)

    def number(self, place):
        """Return the number of the row at a place."""
        return self.rows[place][ROW]

    def record(self, part):
        """Yield the lines of some rows."""
        from llamafactory.data import get_dataset

        self.folder = tempfile.mkdtemp(dir=self.request["work"])
        self._write(part)
        self.data.dataset_dir = self.folder
        rows = get_dataset(
            self.template,
            self.model,
            self.data,
            self.training,
            stage=self.settings["stage"],
            **self.loaded,
        )["train_dataset"]
        for example in rows:
            if "chosen_input_ids" in example:
                sequences = [
                    (example[f"{side}_input_ids"], example[f"{side}_labels"])
                    for side in ("chosen", "rejected")
                ]
                if self.request["head"] == "score":
                    sequences = [(ids, _last(ids)) for ids, _ in sequences]
            else:
                sequences = [(example["input_ids"], example["labels"])]
            yield _line(example[ROW], sequences, example.get("kto_tags"))


TRAINERS = {"trl": Trl, "axolotl": Axolotl, "llama-factory": LlamaFactory}

if __name__ == "__main__":
    main(sys.argv[1])
