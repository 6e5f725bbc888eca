#!/bin/sh
# Convert, inspect, train: a tiny model from nothing, with DPO and LoRA on a CPU, in about a minute.
set -eu
cd "$(dirname "$0")/../.."
data=docs/examples/colours.jsonl

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

echo
echo "A model of random weights, and a tokenizer trained on the data: nothing is downloaded."
say python -m fmtkit.training.demo runs/tiny "$data"

say fmtkit convert "$data" --type chatml.intel -o runs/pairs.parquet --overwrite
say fmtkit inspect "$data" --type chatml.intel --tokenizer runs/tiny --show-mask 1

say fmtkit train docs/examples/dpo.yaml
echo
echo "The training metrics, step by step (runs/dpo-demo/report.html draws it):"
grep -o '"step": [0-9]*\|"loss": [-0-9.e]*\|"rewards/margins": [-0-9.e]*' runs/dpo-demo/metrics.jsonl |
    awk '/step/ { step = $2 } /"loss"/ { loss = $2 }
         /margins/ && step % 8 == 0 { printf "  step %3d   loss %.4f   reward margin %.3f\n", step, loss, $2 }'
