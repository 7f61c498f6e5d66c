# On a machine with Python 3.11, make and pip:
#   make demo   set up, then run the whole method on the embedded model
#   make test   set up, then lint, type-check and test
#   make test-lowest  the fast tests with the lowest versions that pyproject.toml allows
#   make test-newest  the same with the newest, on the package as a release installs it
#   make docs   set up, then build the documentation site into site/
#   make bench     measure everything against its baseline and write docs/performance.md, on an idle machine
#   make bench-adaptive   the hours of measuring that it leaves out; goes on where it was stopped
#   make torture   every attack, and the long versions of tests: damaged files by the thousand, kills at random moments
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest/bin
NEWEST := .venv-newest/bin
EXTRAS := diffusers,workers,text,docs,test
# Of torch the same in both: other builds for CPUs cannot be had everywhere, and those for GPUs are gigabytes.
TORCH ?= torch==2.13.0

# The fast tests: what a release promises, some of the stages, and some for each package that dpstride depends on.
FAST := $(addprefix tests/,test_packaging.py test_denoiser_networks.py test_pipeline.py test_schedule_files.py test_site.py \
	cli/test_cli.py evaluate/test_frechet.py page/test_notebook.py reading/test_hub.py reading/test_images.py \
	samplers solver/test_solver.py statistics/test_files.py training/test_scalars.py racing/test_diffusers_sampler.py \
	$(addprefix integrations/test_,diffusers.py diffusers_scheduler.py dpm_solver.py masked_lm.py openai.py))

.PHONY: demo test test-lowest test-newest docs bench bench-adaptive torture lint format clean

demo: $(VENV)/installed
	$(BIN)/dpstride demo -o demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

test-lowest: .venv-lowest/installed
	OMP_NUM_THREADS=1 $(LOWEST)/pytest $(FAST)

# The package is installed as a release is, by way of an sdist; the environment is new each time, as what is newest changes.
test-newest:
	rm -rf .venv-newest
	$(PYTHON) -m venv .venv-newest
	$(NEWEST)/python -m pip install --quiet --disable-pip-version-check build $(TORCH)
	$(NEWEST)/python -m build --outdir .venv-newest/archives
	wheel=$$(echo .venv-newest/archives/*.whl) && \
	$(NEWEST)/python -m pip install --quiet --disable-pip-version-check "$$wheel[$(EXTRAS)]" $(TORCH)
	OMP_NUM_THREADS=1 DPSTRIDE_RELEASE=1 $(NEWEST)/pytest $(FAST)

docs: $(VENV)/installed-docs
	$(BIN)/python tools/site_pages.py build/pages
	$(BIN)/zensical build --strict --clean
	@echo "site/index.html is the first page; $(BIN)/python -m http.server -d site serves them with search."

torture: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 DPSTRIDE_TORTURE=1 $(BIN)/pytest -n 2 --dist worksteal -m "torture or attack"

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

.venv-lowest/installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	$(LOWEST)/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e ".[$(EXTRAS)]"
	touch $@

clean:
	rm -rf $(VENV) .venv-lowest .venv-newest demo site build .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
