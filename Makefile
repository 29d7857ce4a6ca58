# `make demo` and `make test` work from a fresh clone: each sets up .venv by itself.
PYTHON ?= python3
BIN := .venv/bin
PROGRAM := .venv/.program
READY := .venv/.ready
CORE := .venv-core

.PHONY: demo test lint types unit core bench docs wheels clean

demo: $(PROGRAM)
	@if test -f runs/demo/config.json; then $(BIN)/scornn resume runs/demo; \
	else $(BIN)/scornn train copying --until recall=0.99 --until loss=0.001 --out runs/demo; fi
	$(BIN)/scornn report runs/demo --out runs/demo/report.html
	@echo "Open runs/demo/report.html in a browser."

test: lint types unit core

lint: $(READY)
	$(BIN)/ruff check src tests docs
	$(BIN)/ruff format --check src tests docs

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/pytest -n auto --dist worksteal

# The layers where nothing but torch and numpy is installed.
core: $(CORE)/.ready
	$(CORE)/bin/python -m pytest -n auto --dist worksteal -q tests/ops tests/test_functional.py tests/test_optim.py \
		$(addprefix tests/nn/test_, $(addsuffix .py, scornn models stream linear_memory memory_block))

bench: $(READY)
	$(BIN)/scornn bench

docs: $(READY)
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html in a browser."

# Every platform from this machine: scripts/wheels.py.
wheels: $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt --group wheels
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/wheels.py
	for wheel in dist/*manylinux*.whl; do $(BIN)/auditwheel show $$wheel || exit 1; done
	$(BIN)/twine check --strict dist/*

$(CORE)/.ready: $(READY)
	test -x $(CORE)/bin/python || $(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python -m pip install -q -c constraints.txt pip
	$(CORE)/bin/python -m pip install -q -c constraints.txt --group test .
	touch $(CORE)/.ready

clean:
	rm -rf .venv $(CORE) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache

$(PROGRAM): pyproject.toml constraints.txt $(wildcard CMakeLists.txt csrc/*)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt pip
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[program]'
	touch $(PROGRAM)

$(READY): pyproject.toml constraints.txt $(wildcard CMakeLists.txt csrc/*)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt pip
	$(BIN)/python -m pip install -q -c constraints.txt --group dev -e '.[all]'
	touch $(PROGRAM) $(READY)
