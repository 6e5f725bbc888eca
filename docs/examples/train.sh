#!/bin/sh
# Convert, inspect, train: a tiny model from nothing, on a CPU, in about a minute.
set -eu
data=docs/examples/colours.jsonl
python -m fmtkit.training.demo runs/tiny "$data"
fmtkit convert "$data" --type chatml.intel -o runs/pairs.parquet --overwrite
fmtkit inspect "$data" --type chatml.intel --tokenizer runs/tiny
fmtkit train docs/examples/dpo.yaml
tail -n 1 runs/dpo-demo/metrics.jsonl
