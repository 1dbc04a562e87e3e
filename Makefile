# Everything a person or a machine runs here. `make demo` and `make test` need nothing to be set up before.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile
STAMP := $(VENV)/.installed
KEEP ?=
PICTURE ?=
MINUTES ?= 10
SEED ?=

# An installed package has its bytecode; hundreds of processes that compile it again would only cost time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-real bench bench-age test test-real test-nightly test-faults lint unit explore map trace mutants format lock flags commands properties reference site release-dry-run plugin-archive chart image sdks lab-up lab-down lab-status clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: $(STAMP)  ## Make .venv with exactly what the lock file names

$(STAMP): requirements.lock requirements-uv.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python >= 3.11 is needed; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 ..."; exit 1; }
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV) || \
	  { echo "a virtual environment cannot be made: on Debian and Ubuntu install python3-venv"; exit 1; }
	@# uv takes seconds where pip takes most of a minute. Where it finds no way to the packages, pip may know one.
	@# Neither compiles: Python does so with what is imported, and all of it takes half a minute.
	@echo "installing the locked dependencies into $(VENV)"
	@$(PIP) --require-hashes -r requirements-uv.lock && \
	  $(VENV)/bin/uv pip install --quiet --python $(RUN) --require-hashes -r requirements.lock || \
	  { echo "uv could not: pip does (about a minute)"; $(PIP) --require-hashes -r requirements.lock; }
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## The whole story in half a minute, with Python only (KEEP=1 waits for Ctrl-C; PICTURE=file.svg)
	@$(VENV)/bin/eurekube demo $(if $(KEEP),--keep) $(if $(PICTURE),--picture $(PICTURE))

demo-real: setup  ## The same on real servers, which are built once (KEEP=1 leaves them up; PICTURE=file.svg)
	@$(RUN) -m lab.demo $(if $(KEEP),--keep) $(if $(PICTURE),--picture $(PICTURE))

# mypy uses one core only, so the tests run beside it.
test: setup  ## Lint, types, import rules and all tests that need Python only
	@$(MAKE) --no-print-directory -j 2 lint unit
	@echo "not run here: the tests on real servers (make test-real)"

lint: setup  ## Lint, types, import rules and spelling
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(RUN) -m scripts.type_check
	@$(VENV)/bin/lint-imports
	@$(VENV)/bin/codespell

unit: setup  ## The tests that need Python only
	@$(RUN) -m pytest -n 3 --dist worksteal --eureka=dev --nightly=leave-out tests/unit tests/registries tests/explore \
	  tests/contract tests/interop

explore: setup  ## Random faults of stacks and operator on a model of Eureka (MINUTES=60, SEED=42, JOBS=2)
	@$(RUN) -m tests.explore --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(JOBS),--jobs $(JOBS))

trace: setup  ## How many functions one event passes, from the watch to Eureka's answer (CALLS=1 prints each)
	@$(RUN) -m scripts.event_trace $(if $(CALLS),--calls)

map: setup  ## Which files usual changes must touch, by making each of them in a copy
	@$(RUN) -m tests.map --each

mutants: setup  ## Take back one safety rule after the other: does its test fail? (ONLY="brake swept")
	@$(RUN) -m tests.mutants $(ONLY)

test-real: setup  ## The tests on real servers: contract, system, interop and proof
	@$(RUN) -m lab fetch --tests
	@$(RUN) -m pytest -m "alone and not faults" --nightly=leave-out tests/system
	@$(RUN) -m scripts.real_tests --nightly=leave-out
	@echo "not run here: what tests/nightly.toml names (make test-nightly), and faults (make test-faults)"

test-nightly: setup  ## The tests that make test and make test-real leave out: further forms of what these prove
	@$(RUN) -m lab fetch --tests --nightly
	@$(RUN) -m pytest -m "alone and not faults" --nightly=only tests/system
	@$(RUN) -m scripts.real_tests --nightly=only

test-faults: setup  ## Faults on real servers: one by one, then a storm of them (MINUTES=60, SEED=42)
	@$(RUN) -m lab fetch
	@$(RUN) -m pytest -m faults tests/faults tests/system
	@$(RUN) -m tests.faults --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

format: setup  ## Format the code
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

lock:  ## Pin the dependencies again (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --group dev --all-extras pyproject.toml --output-file requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --extra kubernetes --constraint requirements.lock pyproject.toml --output-file requirements-plugin.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --group operator --constraint requirements.lock --output-file requirements-operator.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --group site --output-file requirements-site.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-deps \
	  --group site-diagrams --output-file requirements-site-diagrams.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  --group setup --output-file requirements-uv.lock

image: setup  ## Build the operator's image with docker, podman or buildah
	@PYTHON=$(RUN) scripts/build-image

flags: setup  ## Write docs/reference/flags.md from the operator's settings
	@$(RUN) -m scripts.reference flags

commands: setup  ## Write docs/reference/cli.md from the commands
	@$(RUN) -m scripts.reference commands

properties: setup  ## Write the table of docs/reference/pulumi.md and the schema from the descriptions of the properties
	@$(RUN) -m scripts.reference properties
	@$(RUN) -m scripts.provider_schema

sdks: setup  ## Generate the SDK of each language and compile it with its example (ONLY="go java")
	@$(RUN) -m scripts.sdks $(ONLY)

reference: flags commands properties  ## Write all that docs/ has from the code: tables, pages, pictures
	@$(RUN) -m scripts.generated_pages
	@$(RUN) -m scripts.pulumi_tests

site: setup  ## Build the documentation as a site, into site/ (REPOSITORY_URL=https://... for links to files)
	@$(RUN) -m scripts.site
	@test -x .venv-site/bin/zensical || $(PYTHON) -m venv .venv-site
	@.venv-site/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-site.lock
	@rm -rf build/site-diagrams
	@.venv-site/bin/python -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps \
	  --dest build/site-diagrams -r requirements-site-diagrams.lock
	@.venv-site/bin/zensical build --strict --clean
	@$(RUN) -m scripts.site_scripts
	@$(RUN) -m scripts.site_links

release-dry-run: setup  ## Make all that a release publishes, into build/release/, and publish nothing
	@$(RUN) -m scripts.release

plugin-archive: setup  ## Make the archive of the Pulumi plugin for this system and Python, with its libraries, into build/plugins
	@$(RUN) -m hatchling build -t wheel -d build/plugins
	@$(RUN) -m scripts.plugin_archives --here build/plugins/eurekube_provider-*.whl

chart: setup  ## Write the README of the operator's chart, the files that it packs, and the kustomize base
	@$(RUN) -m scripts.chart_reference

bench: setup  ## Measure everything, or ONLY=P2,P8x3 (REPEAT=3: each three times; QUICK=1: little, to see that it runs)
	@$(RUN) -m bench $(if $(ONLY),--only $(ONLY)) $(if $(REPEAT),--repeat $(REPEAT)) $(if $(QUICK),--quick)

bench-age: setup  ## How many commits touched what each benchmark measures since its record
	@$(RUN) -m bench.age

lab-up: setup  ## Start real servers: Eureka on 8761, a Kubernetes API on 6443
	@$(RUN) -m lab up

lab-down: setup  ## Stop them
	@$(RUN) -m lab down

lab-status: setup  ## Show whether they run
	@$(RUN) -m lab status

clean:  ## Remove what was made here; the cache of programs stays
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .venv-site dist build site .cache
