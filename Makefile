# Every target sets up what it needs: a virtual environment in .venv, made once and again when
# pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Files run in processes side by side: one BLAS thread each.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: run test test-slow test-browser check format reproduce convergence bench clean

run: $(STAMP)
	$(BIN)/postlin evaluate crab --jobs 2 --out results/crab

test: check
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

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

reproduce: $(STAMP)
	$(BIN)/postlin reproduce all --jobs 2 --out results/reproduced

convergence: $(STAMP)
	$(ONE_THREAD) $(BIN)/python benchmarks/convergence.py

bench: $(STAMP)
	$(BIN)/python benchmarks/against_scikit_learn.py

$(STAMP): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $(STAMP)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
