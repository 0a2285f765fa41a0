#!/usr/bin/env bash
# launch.sh TASK [ALGORITHM [ARGUMENT...]]: train with published settings; copy it and change what you like.
#
#   TASK       alfworld, gsm8k, gsm8k-tool, hotpotqa, papersearch, scienceworld, webshop or webshop-small, or the id of
#              any environment, such as AgentR1/TableQA-v0. The data comes once from `agentr1 prepare TASK`, of
#              gsm8k-tool from `agentr1 prepare gsm8k`; webshop-small takes `--data FOLDER` with
#              items_shuffle_1000.json and items_ins_v2_1000.json; scienceworld has its own
#   ALGORITHM  any of `agentr1 train --help`, steppo by default
#   ARGUMENT   further ones of `agentr1 train`, such as --dry-run, --seed 1 or a setting of verl's
#
#   MODEL=qwen3-4b   qwen2.5-1.5b, qwen2.5-3b, qwen3-1.7b or qwen3-4b, each also with +lora; of an id a folder or a name
#   HARDWARE=h100-4  h200-1, h100-2, h100-4, h100-8 or h100-8x2; of an id one machine with eight GPUs
#   RELEASE=         /published, or /published@capo: the released run
#   OUT=runs/TASK-ALGORITHM
set -euo pipefail

(($#)) || { sed -n 's/^#\( \|$\)//p' "$0"; exit 2; }
task=$1
algo=${2:-steppo}
shift $(($# < 2 ? $# : 2))
out=${OUT:-runs/${task##*/}-$algo}
if [[ $task == */* ]]; then
    exec agentr1 train --env "$task" --algo "$algo" --preset gpu-8 --model "${MODEL:-Qwen/Qwen3-4B}" --out "$out" "$@"
fi
exec agentr1 train --preset "${MODEL:-qwen3-4b}/$task/$algo/${HARDWARE:-h100-4}${RELEASE:-}" --out "$out" "$@"
