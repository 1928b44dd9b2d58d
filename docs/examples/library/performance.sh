#!/usr/bin/env bash
# Usage: performance.sh save|compare
set -euo pipefail
store=git:refs/gpuprof
command=${COMMAND:-"python -m pytest -q -m gpu_benchmark"}

gpuprof sync origin --storage "$store"
case $1 in
save)
    $command --gpu-benchmark-storage="$store" --gpu-benchmark-save=main
    gpuprof sync origin --storage "$store"
    ;;
compare)
    $command --gpu-benchmark-json=new.json
    if git show-ref --quiet --verify refs/gpuprof/runs; then
        gpuprof compare main new.json --storage "$store" --format markdown >comment.md
    else
        echo "No run of the main branch is saved yet: there is nothing to compare with." >comment.md
    fi
    ;;
esac
