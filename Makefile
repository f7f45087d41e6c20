# Two commands do everything on a fresh machine: make demo, and make test.
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/pip --disable-pip-version-check --quiet
ARGS ?=

REF ?= 85ee777
# A worker that dies ends the run: one that takes its place may wait forever for a test after its last.
PYTEST := $(VENV)/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# Hundreds of processes begin in a run of the tests: none of them is to compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install dev demo test deep check bench bench-against wheel wheel-client nightly oracle simulate chaos upstream serve pictures lock sbom advisories clean

help:  ## show this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 15

$(VENV)/.installed: pyproject.toml requirements-embedded.lock
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes --requirement requirements-embedded.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	$(PIP) install --require-hashes --requirement requirements-dev.lock
	@touch $@

install: $(VENV)/.installed  ## make the virtual environment .venv with the command berth

dev: $(VENV)/.installed-dev  ## the same with all that the tests need

demo: install  ## place a real cluster's trace, explain a decision, serve the API (ARGS=--exit: stop then)
	$(VENV)/bin/berth demo $(ARGS)

test: $(VENV)/.installed-dev  ## what must hold, with real Kafka and Postgres, but for make deep (ARGS: for pytest)
	TEST_DEPTH=$${TEST_DEPTH:-test} $(PYTEST) -m "not deep" $(ARGS)

deep: $(VENV)/.installed-dev  ## what make test leaves out: days on real servers, all commands of the documents
	$(PYTEST) -m deep $(ARGS)

check: $(VENV)/.installed-dev  ## before each push: style, types, and a tenth of the tests that need no server
	TEST_DEPTH=check $(PYTEST) -m "not wide and not deep" \
		tests/test_tidy.py tests/unit tests/oracle tests/property tests/conformance tests/simulation $(ARGS)

bench: $(VENV)/.installed-dev  ## measure the whole way of an event on real servers, then the engine (ARGS: for e2e)
	$(VENV)/bin/berth bench e2e $(ARGS)
	$(VENV)/bin/berth bench engine

bench-against: $(VENV)/.installed-dev  ## measure this build and an earlier one in turns (REF=85ee777, ARGS: for e2e, --runs)
	$(VENV)/bin/python -m benchmarks.against $(REF) $(ARGS)

wheel:  ## build the wheel, install it in an environment of its own, and run the demo from there
	rm -rf build && $(PYTHON) -m venv build/venv
	build/venv/bin/pip --disable-pip-version-check --quiet install --require-hashes --requirement requirements-embedded.lock
	git rev-parse HEAD >services/COMMIT 2>/dev/null || rm -f services/COMMIT
	build/venv/bin/pip --disable-pip-version-check --quiet wheel --no-deps --no-build-isolation --wheel-dir build/wheel .
	rm -f services/COMMIT
	build/venv/bin/pip --disable-pip-version-check --quiet install --no-deps build/wheel/*.whl
	state=$$(mktemp -d) && chmod 755 $$state && cd / && env -u PYTHONPATH BERTH_DIR=$$state $(CURDIR)/build/venv/bin/berth demo --exit && rm -rf $$state

wheel-client:  ## build the client's wheel, and use it in an environment that has nothing else of berth
	rm -rf build/client && $(PYTHON) -m venv build/client/venv
	build/client/venv/bin/pip --disable-pip-version-check --quiet install --require-hashes --requirement requirements-client.lock
	build/client/venv/bin/pip --disable-pip-version-check --quiet wheel --no-deps --no-build-isolation --wheel-dir build/client ./berth
	rm -rf berth/build berth/*.egg-info
	build/client/venv/bin/pip --disable-pip-version-check --quiet install --no-deps build/client/berth_client-*.whl
	cd / && env -u PYTHONPATH $(CURDIR)/build/client/venv/bin/python -c 'from berth.client import AsyncClient, Client'

nightly: $(VENV)/.installed-dev  ## all seeds, examples and days: hours
	TEST_DEPTH=nightly $(MAKE) test deep
	$(MAKE) oracle simulate
	$(VENV)/bin/python -m tests.security.worst_second --tries 300 --seed 0

oracle: $(VENV)/.installed-dev  ## 10,000 seeded clusters against the oracle, on all cores (ARGS: number, first seed)
	$(VENV)/bin/python -m tests.oracle.nightly $(ARGS)

simulate chaos upstream: SEEDS ?= $(or $(if $(filter simulate,$@),2000),$(if $(filter chaos,$@),20),0:10000)

simulate: $(VENV)/.installed-dev  ## days on virtual time with crashes, cuts and lies, audited from outside (SEEDS=2000)
	$(VENV)/bin/python -m tests.simulation.run --seeds $(SEEDS) $(ARGS)

chaos: $(VENV)/.installed-dev  ## real servers and processes that die, stand still and are cut off, audited (SEEDS=20)
	$(VENV)/bin/python -m tests.chaos.run --seeds $(SEEDS) $(ARGS)

upstream: $(VENV)/.installed-dev  ## seeded scenarios against kube-scheduler's own code, which needs Go (SEEDS=FIRST:LAST)
	$(VENV)/bin/python -m tests.upstream.nightly $(SEEDS) $(ARGS)

serve: install  ## worker, relay and API on the embedded default, until Ctrl-C
	$(VENV)/bin/berth up $(ARGS)

pictures: $(VENV)/.installed-dev  ## take the pictures of the console again (docs/pictures/console-*.png); needs Chromium
	$(VENV)/bin/python -m docs.build.console_pictures

build/supply/.installed: ops/supply/tools.lock
	$(PYTHON) -m venv build/supply
	build/supply/bin/pip --disable-pip-version-check --quiet install --require-hashes --requirement $<
	@touch $@

LOCK = build/supply/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header $(ARGS)

lock: build/supply/.installed  ## pin every package, with hashes (ARGS=--upgrade: the newest that pyproject.toml allows)
	$(LOCK) pyproject.toml --extra build --output-file requirements.lock
	$(LOCK) pyproject.toml --extra build --extra embedded --constraint requirements.lock --output-file requirements-embedded.lock
	$(LOCK) pyproject.toml --extra dev --extra embedded --extra parquet --extra plots --extra search --constraint requirements.lock --output-file requirements-dev.lock
	$(LOCK) berth/pyproject.toml --extra build --extra kafka --constraint requirements.lock --output-file requirements-client.lock
	$(LOCK) ops/supply/tools.in --output-file ops/supply/tools.lock

sbom: install build/supply/.installed  ## list what the images are made of: build/sbom.cdx.json, build/sbom-all-in-one.cdx.json
	build/supply/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
		--output-file build/sbom.cdx.json requirements.lock
	build/supply/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
		--output-file build/sbom-all-in-one.cdx.json requirements-embedded.lock
	$(VENV)/bin/python -P -m ops.supply.bundled build/sbom-all-in-one.cdx.json

advisories: build/supply/.installed  ## ask for known vulnerabilities of the pinned packages, where a database answers
	rm -f build/advisories.json
	build/supply/bin/pip-audit --requirement requirements-embedded.lock --require-hashes --disable-pip --format json \
		--progress-spinner off --output build/advisories.json || true
	$(PYTHON) -P ops/supply/advisories.py build/advisories.json

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
