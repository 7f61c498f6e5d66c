# On a machine with Python 3.11, make and pip:
#   make demo   set up, then run the whole method on the embedded model
#   make test   set up, then lint, type-check and test
#   make docs   set up, then build the documentation site into site/
#   make bench     measure everything against its baseline and write docs/performance.md, on an idle machine
#   make bench-adaptive   the hours of measuring that it leaves out; goes on where it was stopped
#   make torture   every attack, and the long versions of tests: damaged files by the thousand, kills at random moments
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test docs bench bench-adaptive torture lint format clean

demo: $(VENV)/installed
	$(BIN)/dpstride demo -o demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html is the first page; $(BIN)/python -m http.server -d site serves them with search."

torture: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 DPSTRIDE_TORTURE=1 $(BIN)/pytest -m "torture or attack"

bench: $(VENV)/installed-dev
	$(BIN)/python benchmarks/page.py

bench-adaptive: $(VENV)/installed-dev
	$(BIN)/python benchmarks/bench_adaptive.py --page

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dpstride needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[diffusers]"
	touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[diffusers,dev,docs]"
	touch $@ $(VENV)/installed $(VENV)/installed-docs

$(VENV)/installed-docs: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) demo site .mypy_cache .ruff_cache .pytest_cache .hypothesis
