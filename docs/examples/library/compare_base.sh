#!/usr/bin/env bash
# Usage: compare_base.sh [BASE [OPTIONS OF gpuprof ab...]]
set -euo pipefail
base=${1:-origin/main}
command=${COMMAND:-".venv/bin/python -m pytest -q -m gpu_benchmark --gpu-benchmark-json={out}"}
requirements=${REQUIREMENTS:-".tools/wheels/gpuprof-*.whl pytest"}

work=$(mktemp -d)
clean_up() {
    git worktree remove --force "$work/base" || true
    git worktree remove --force "$work/head" || true
    rm -rf "$work"
}
trap clean_up EXIT

git worktree add --quiet --detach "$work/base" "$(git merge-base "$base" HEAD)"
git worktree add --quiet --detach "$work/head" HEAD
for side in base head; do
    python3 -m venv "$work/$side/.venv"
    "$work/$side/.venv/bin/python" -m pip install --quiet "$work/$side" $requirements
done

gpuprof ab "$command" "$command" --cwd-a "$work/base" --cwd-b "$work/head" \
    --format markdown "${@:2}" | tee -a "${GITHUB_STEP_SUMMARY:-/dev/null}"
