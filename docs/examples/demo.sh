#!/bin/sh
# Converts the samples beside this file, good rows and bad ones, into demo/ and shows what came of them.
set -eu
cd "$(dirname "$0")"
out=../../demo
rm -rf "$out"
mkdir -p "$out"

say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }

say fmtkit convert support_pairs.jsonl --type chatml.intel -o "$out/pairs.parquet"
echo
echo "The rows that could not be converted, each with its line and reason:"
cat "$out/pairs.quarantine.jsonl"
echo
echo "The report, for scripts:"
cat "$out/pairs.report.json"

say fmtkit convert ranked_answers.jsonl --type zephyr.nectar --option pairs=all -o "$out/ranked.jsonl"
head -n 2 "$out/ranked.jsonl"

say fmtkit convert chats.jsonl --type llama3.argilla_chat -o "$out/chats"
ls "$out/chats" "$out/chats/data"

say fmtkit convert tool_calls.jsonl --type openai -o "$out/tools.jsonl"
head -n 1 "$out/tools.jsonl"

say fmtkit inspect gsm8k_pairs.jsonl.gz --type chatml.intel --tokenizer tokenizer

# Findings are an exit code too: 1. Here they are what we want to see.
say fmtkit validate feedback.jsonl --type intel --method kto || true
