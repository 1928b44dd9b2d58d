# The tests with JAX and Ray, in an environment of their own beside .venv's packages, because both
# are large and bring other packages along.
source .ci/common.sh

python=.venv/bin/python
[ -x "$python" ] || { echo "needs .venv: run the step 'tests' first" >&2; exit 1; }
if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
  echo "left out: JAX and Ray are pinned for Python 3.11 only"
  exit 0
fi
folder=$CI_OUT/libraries
where='import sysconfig; print(sysconfig.get_path("purelib"))'
"$python" -m venv --clear --without-pip "$folder"
"$python" -c "$where" >"$("$folder/bin/python" -c "$where")/venv.pth"
"$folder/bin/python" -m pip install -q jax==0.10.2 jaxlib==0.10.2 ray==2.60.0
export RAY_AUTH_MODE=disabled # else Ray writes a token into the home folder
"$folder/bin/python" -m pytest -rs tests/integrations/test_{jax,ray,pages}.py 2>&1 |
  tee "$CI_OUT/libraries.log"
if grep -q '^SKIPPED.*\(JAX\|Ray\)' "$CI_OUT/libraries.log"; then
  echo "a test was skipped, though JAX and Ray are installed" >&2
  exit 1
fi
