# Two commands need nothing but Python 3.11 (or newer) and make:   make train   |   make test
BIN := .venv/bin

# The first of these that is 3.11 or newer. Each is run, not only looked up: pyenv has a `python3.12` that only complains.
PYTHONS   := python3.11 python3.12 python3.13 python3.14 python3 python
IS_RECENT := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON    ?= $(shell for each in $(PYTHONS); do $$each $(IS_RECENT) >/dev/null 2>&1 && { echo $$each; break; }; done)

# In the environment, not as `pip -c`: only so does the constraint reach isolated builds too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install browser sshd train test test-slow test-oldest test-newest test-confined chaos soak fuzz audit \
	tested-versions lock lint bench docs dist clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

# CI: make install LOCK=requirements-ci.txt, so that a file that was replaced on the package index is not installed.
install: .venv/installed  ## make .venv with everything in it

.venv/installed: pyproject.toml constraints.txt
	@python="$(PYTHON)"; "$${python:-false}" $(IS_RECENT) 2>/dev/null || { \
		echo "Python 3.11 or newer is needed; found none as $${python:-$(PYTHONS)}"; \
		echo "to choose one: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv
	$(if $(LOCK),$(BIN)/pip install --quiet --require-hashes --no-deps --requirement $(LOCK))
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

# $(call from_distribution,PROGRAM,PACKAGES,WHAT IS SKIPPED WITHOUT IT). Only root can install packages, and only some
# distributions have these, so not having one never fails anything.
from_distribution = PATH=$$PATH:/usr/sbin command -v $(1) >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing $(1) for the tests" && \
		  { apt-get -q install -y --no-install-recommends $(2) >/dev/null 2>&1 || \
		    { apt-get -q update >/dev/null 2>&1 && \
		      apt-get -q install -y --no-install-recommends $(2) >/dev/null 2>&1; }; }; } || \
		echo "no $(1): $(3) will be skipped"

browser:  ## install a headless Chromium for the tests of the dashboard, where possible
	@$(call from_distribution,chromedriver,chromium chromium-driver,the tests of the dashboard's pages)

sshd:  ## install an SSH server for the tests of `pronk launch`, where possible
	@$(call from_distribution,sshd,openssh-server openssh-client,the tests of pronk launch)

train: install  ## train CartPole until it is solved, then play it
	$(BIN)/pronk train cartpole
	$(BIN)/pronk eval last --episodes 100

# Exit code 1: tests failed. They are run again, one at a time: a machine that stalls under several tests at once is no
# fault of the code, and what fails alone too is one.
test: lint browser sshd  ## lint, then every test that is not slow, several at a time
	$(BIN)/pytest -n auto || { [ $$? = 1 ] && echo "again, one at a time, what failed:" && \
		$(BIN)/pytest --last-failed --last-failed-no-failures none; }

test-slow: install  ## the long trainings that back the claims in docs/results, of every family of environments
	$(BIN)/pip install --quiet --editable '.[families]' || \
		echo "some families cannot be installed here: tests of those that are missing will be skipped"
	$(BIN)/pytest -m slow --timeout=1800

# $(call fresh_venv,FOLDER,CONSTRAINTS): an environment beside .venv, made anew, with everything that the tests need.
fresh_venv = rm -rf $(1) && $(PYTHON) -m venv $(1) && PIP_CONSTRAINT=$(2) $(1)/bin/pip install --quiet --editable '.[dev]'

test-oldest: install  ## the tests with the lowest versions that pyproject.toml allows (make PYTHON=python3.11; torch stays)
	$(BIN)/python tests/support/oldest_versions.py pyproject.toml constraints.txt > .venv/oldest.txt
	$(call fresh_venv,.venv-oldest,$(CURDIR)/.venv/oldest.txt)
	.venv-oldest/bin/pytest -n auto

test-newest:  ## the tests with the newest versions that the package index has (torch stays)
	$(call fresh_venv,.venv-newest,$(PIP_CONSTRAINT))
	.venv-newest/bin/pytest -n auto

test-confined: install  ## the tests with 256 descriptors and 4 GiB, as an ordinary user, in a directory with spaces
	tests/confined.sh $(CURDIR)/$(BIN)/python -n auto

# How many faults of each kind: make chaos CHAOS='--faults 33 --kills 10'
CHAOS ?= --faults 200 --kills 100 --interrupts 100 --network 20 --packets 18 --learners 18 --ssh 6 --ray 6 --environments

chaos: install sshd  ## faults against real runs, over an hour of them; given again, it continues (chaos.jsonl)
	$(BIN)/python tests/chaos/run.py $(CHAOS) --seed 1 --results chaos.jsonl

soak: install  ## two hours of CartPole and Pong: does memory, or anything else, grow? Writes docs/results/soak.md
	$(BIN)/python benchmarks/soak.py --minutes 120

fuzz: install  ## 100,000 hostile inputs for everything that reads files, the network or the command line
	PRONK_FUZZ=100000 $(BIN)/pytest tests/test_fuzzing.py -n auto

# Without the database of vulnerabilities there is nothing to compare with: that is said, and fails nothing.
audit: install  ## known vulnerabilities of what is installed in .venv (pip-audit); skipped offline
	@if $(BIN)/python -c "import socket; socket.create_connection(('api.osv.dev', 443), 10)" 2>/dev/null; then \
		$(BIN)/pip install --quiet --editable '.[audit]' && \
		$(BIN)/pip-audit --vulnerability-service osv --skip-editable --progress-spinner off; \
	else echo "cannot connect to api.osv.dev: the audit is skipped"; fi

tested-versions: test  ## write the versions that the tests have just passed with to constraints-tested.txt
	{ echo "# Versions of $$($(BIN)/python --version) that 'make test' passed with; made by 'make tested-versions'."; \
	  $(BIN)/pip freeze --exclude-editable | sed -nE 's/^([A-Za-z0-9_.-]+==[^+ ]+).*/\1/p'; } > constraints-tested.txt

# torch is not in it: its CPU builds differ from one package index to the next, and with them the hashes.
lock: install  ## write requirements-ci.txt: constraints-tested.txt with the hashes of all files of each version
	$(BIN)/pip install --quiet --editable '.[release]'
	grep -v '^torch==' constraints-tested.txt > .venv/lock.in
	{ echo "# constraints-tested.txt without torch, with hashes; made by 'make lock'."; \
	  $(BIN)/uv pip compile --no-config --no-deps --generate-hashes --no-annotate --no-header --quiet \
	      --python $(BIN)/python .venv/lock.in; } > requirements-ci.txt

lint: install  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install  ## how fast this machine trains, against its own limit
	$(BIN)/pronk bench cartpole

docs: install  ## pages made from the code (docs/commands, docs/reference), and all of docs/ as a site in site/
	$(BIN)/pip install --quiet --editable '.[docs]'
	$(BIN)/python docs/make_commands.py
	$(BIN)/python docs/make_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

dist: install  ## wheel and sdist, built and checked, in dist/, with a list of what the wheel installs (SBOM)
	$(BIN)/pip install --quiet --editable '.[release]'
	rm -rf build dist .venv-dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv --without-pip .venv-dist
	$(BIN)/pip --python .venv-dist/bin/python install --quiet dist/*.whl
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file dist/pronk.cdx.json \
		.venv-dist/bin/python

clean:  ## remove .venv and caches (runs/ stays)
	rm -rf .venv .venv-oldest .venv-newest .venv-dist build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
