# Every target sets up what it needs: a virtual environment in .venv, made once and again when
# pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Files run in processes side by side: one BLAS thread each.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: run test test-slow check format convergence bench clean

run: $(STAMP)
	$(BIN)/python examples/crab.py

test: check
	$(ONE_THREAD) $(BIN)/pytest -q -n 2 -m "not slow" --cov

test-slow: $(STAMP)
	$(ONE_THREAD) $(BIN)/pytest -q -n 2 -m slow

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

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
