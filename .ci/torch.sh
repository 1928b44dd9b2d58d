# The tests that want torch, with its CPU build, on the one Python version whose wheel is pinned.
source .ci/common.sh

venv_python "torch is"
torch=torch==2.13.0
.venv/bin/pip install -q --no-compile "$torch"
status=0
# A thread for each of torch's pools would be two more than there are cores.
export OMP_NUM_THREADS=1
# Only files with the word have the marker; to import the others takes each worker ten seconds.
mapfile -t files < <(grep -rl --include='test_*.py' torch tests | grep -v ^tests/integrations/ | sort)
"$python" -m pytest -n 2 -m torch "${files[@]}" || status=$?
[ "$status" = 5 ] && { echo "no test wants torch"; status=0; }
[ "$status" = 0 ] || exit "$status"

# The frameworks that train torch models, in an environment of their own beside .venv's packages:
# one of theirs is a plugin of pytest's. Torch is .venv's; no other build of it is fetched.
trainers=$CI_OUT/trainers
need_uv
beside_venv "$trainers"
echo "torch; sys_platform == 'never'" >"$trainers/overrides.txt"
UV_OVERRIDE=$trainers/overrides.txt install "$trainers/bin/python" accelerate==1.15.0 \
  lightning==2.6.6 pytorch-lightning==2.6.6 transformers==5.17.0
export HF_HUB_OFFLINE=1
"$trainers/bin/python" -m pytest -m torch -p no:anyio tests/integrations 2>&1 |
  tee "$CI_OUT/integrations.log"
if grep -q '^SKIPPED.*\(Lightning\|transformers\|accelerate\|torch is\)' "$CI_OUT/integrations.log"; then
  echo "a test of a framework was skipped, though all of them are installed" >&2
  exit 1
fi
