# The tests with JAX, Ray, FastAPI and what else runs beside gpuprof, in an environment of their own
# beside .venv's packages, because they are large and bring other packages along.
source .ci/common.sh

venv_python "JAX, Ray and FastAPI are"
folder=$CI_OUT/libraries
need_uv
beside_venv "$folder"
install "$folder/bin/python" jax==0.10.2 jaxlib==0.10.2 ray==2.60.0 fastapi==0.165.0 httpx==0.28.1 \
  gevent==26.9.0 coverage==7.17.5 debugpy==1.8.22 "dask[distributed]==2026.8.0"
export RAY_AUTH_MODE=disabled # else Ray writes a token into the home folder
"$folder/bin/python" -m pytest -rs tests/integrations/test_{jax,server,pages}.py \
  tests/compat/test_neighbours.py 2>&1 |
  tee "$CI_OUT/libraries.log"
if grep -q '^SKIPPED.*\(JAX\|Ray\|FastAPI\|neighbour\)' "$CI_OUT/libraries.log"; then
  echo "a test was skipped, though all of them are installed" >&2
  exit 1
fi
