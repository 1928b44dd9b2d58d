# The tests that want torch, with its CPU build, on the one Python version whose wheel is pinned.
source .ci/common.sh

python=.venv/bin/python
[ -x "$python" ] || { echo "needs .venv: run the step 'tests' first" >&2; exit 1; }
if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
  echo "left out: torch is pinned for Python 3.11 only"
  exit 0
fi
.venv/bin/pip install -q torch==2.13.0
status=0
"$python" -m pytest -m torch || status=$?
[ "$status" = 5 ] && { echo "no test wants torch"; status=0; }
exit "$status"
