#!/usr/bin/env bash
# Trains on the papersearch task with published settings. Copy it and change what you like; every word behind it goes to
# `agentr1 train`, such as --dry-run, --seed 1 or a setting of verl's. The data once: agentr1 prepare papersearch
set -euo pipefail

ALGO=${ALGO:-steppo}          # any of `agentr1 train --help`
MODEL=${MODEL:-qwen3-4b}     # qwen2.5-1.5b, qwen2.5-3b, qwen3-1.7b, qwen3-4b, each also with +lora; any, with --model DIR
HARDWARE=${HARDWARE:-h100-4}  # h200-1, h100-4, h100-8, h100-8x2
OUT=${OUT:-runs/papersearch-$ALGO}

agentr1 train --preset "$MODEL/papersearch/$ALGO/$HARDWARE" --out "$OUT" "$@"
