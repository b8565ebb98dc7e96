# Every target sets up what it needs: a virtual environment in .venv, made once and again when
# pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
BENCH := .venv-bench
QUIET := --quiet --disable-pip-version-check
# Files run in processes side by side: one BLAS thread each.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: run test test-slow test-browser coverage check docs format reproduce convergence truth bench clean

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

# The report in headless Chromium; where there is none these tests are skipped by `make test`.
test-browser: $(STAMP)
	command -v chromium || (apt-get update && apt-get install --yes chromium)
	$(BIN)/pytest -q tests/test_report.py

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Open docs/_build/html/index.html. The gallery's scripts run in the build; warnings are errors.
docs: $(STAMP)
	$(ONE_THREAD) $(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

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
	rm -rf .venv $(BENCH) $(BENCH)-jax .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage docs/_build docs/auto_gallery docs/generated
