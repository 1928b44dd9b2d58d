# Style, formatting, types. Each tool is set up in pyproject.toml, .clang-format or .clang-tidy. All
# of them run, so that one run shows everything.
source .ci/common.sh
need_debian g++
need_tools
PATH=$tools/bin:$PATH
failed=()

check() {
  echo "-- $1"
  "${@:2}" || failed+=("$1")
}

# The files of the unity build, so that headers are read once for many of them.
tidy() {
  configure "$CI_OUT/lint" -DCMAKE_BUILD_TYPE=Release
  sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$CI_OUT/lint/compile_commands.json" |
    xargs -P 2 -n 1 clang-tidy -p "$CI_OUT/lint" --quiet 2>/dev/null
}

# With the stubs that a build makes.
types() {
  [ -x .venv/bin/python ] || { python3 -m venv .venv && .venv/bin/pip install -q '.[test]'; }
  .venv/bin/python .ci/stubs.py && mypy
}

mapfile -t sources < <(find include src tests benchmarks docs -name '*.cpp' -o -name '*.hpp' -o -name '*.h')

folders=(python src tests benchmarks docs .ci)
check 'ruff check' ruff check --quiet "${folders[@]}"
check 'ruff format' ruff format --quiet --diff "${folders[@]}"
check 'mypy' types
check 'clang-format' clang-format --dry-run -Werror "${sources[@]}"
check 'clang-tidy' tidy
[ ${#failed[@]} = 0 ] || { printf 'found something: %s\n' "${failed[*]}" >&2; exit 1; }
