# The command that the README gives for running the tests, word for word.
source .ci/common.sh
# What Perfetto's engine and its user interface run in: without them those tests are skipped.
need_debian nodejs chromium-headless-shell

command=$(awk '/^```sh$/ {inside = 1; next} /^```/ {inside = 0} inside && /-m pytest/' README.md)
if [ "$(wc -l <<<"$command")" != 1 ] || [ -z "$command" ]; then
  printf 'README.md must have one command with "-m pytest", found:\n%s\n' "$command" >&2
  exit 1
fi
echo "$command"
# What the command installs is there already, for pip takes a minute; it still looks through it all.
need_uv
requirements test >"$CI_OUT/test-requirements.txt"
python3 -m venv .venv
install .venv/bin/python -r "$CI_OUT/test-requirements.txt"
bash -euo pipefail -c "$command" 2>&1 | tee "$CI_OUT/pytest.log"
tail -n 1 "$CI_OUT/pytest.log" >"$CI_OUT/pytest-summary"
