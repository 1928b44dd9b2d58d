# The few commands that people need. `make gpu OUT=dir` needs a GPU and no network.

PYTHON ?= python3
OUT ?= build/gpu-results
MACHINE ?= gpu

GPU_SITE := $(CURDIR)/build/gpu
BENCHMARKS := timing_scope_overhead timing_scope_parts cpp_scopes timing_import timing_accuracy \
  timing_timeline nvtx_overhead trace_write trace_ring trace_summary graphs_launch \
  graphs_callable graphs_training graphs_decode graphs_breaks kernels_attribution \
  benchmark_accuracy benchmark_verdicts

.PHONY: build sdist wheels test lint gpu gpu-build gpu-test docs docs-site notebook clean

build:
	$(PYTHON) -m pip install '.[test]'

# Into dist/. `make wheels WHEELS='--python 3.12'` builds one; docs/packaging.md says how.
sdist:
	$(PYTHON) .ci/wheels.py sdist

wheels:
	$(PYTHON) .ci/wheels.py wheels $(WHEELS)

test:
	$(PYTHON) -m pytest -n auto

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	find include src tests benchmarks docs -name '*.cpp' -o -name '*.hpp' -o -name '*.h' | \
	  xargs clang-format --dry-run -Werror

gpu-build:
	rm -rf $(GPU_SITE)
	$(PYTHON) -m pip install --no-build-isolation --no-deps --target $(GPU_SITE) .
	mkdir -p $(OUT)

# `make gpu-test TESTS=tests/gpu/trace/test_trace.py` runs some of them.
gpu-test: gpu-build
	PYTHONPATH=$(GPU_SITE) PYTHONUNBUFFERED=1 $(PYTHON) -m pytest -m gpu -q --junitxml=$(OUT)/pytest.xml $(TESTS)

# Builds into a folder of its own, tests, measures; fails if a test or a benchmark failed, but
# measures all the same.
gpu: gpu-build
	@export PYTHONPATH=$(GPU_SITE) PYTHONUNBUFFERED=1; status=0; \
	$(PYTHON) -m pytest -m gpu -q --junitxml=$(OUT)/pytest.xml || status=1; \
	for name in $(BENCHMARKS); do \
	  echo "== $$name"; \
	  $(PYTHON) benchmarks/$$name.py --json $(OUT)/$$name.$(MACHINE).json || status=1; \
	done; \
	exit $$status

docs:
	$(PYTHON) -m sphinx -W --keep-going -b html docs docs/_build/html

# Builds these pages as one version into docs/_build/site, beside those that are there; the folder
# can be opened, or copied to a web server. `make docs-site SITE="--version 1.2 --out DIR"`.
docs-site:
	$(PYTHON) docs/build_site.py $(SITE)

# Runs docs/notebook.ipynb with the installed gpuprof and keeps its output; best on a GPU.
notebook:
	cd docs && $(PYTHON) -c 'from nbclient.cli import main; main()' --inplace notebook.ipynb
	rm -f docs/notebook.json.gz

clean:
	rm -rf build dist docs/_build .pytest_cache .mypy_cache .ruff_cache
