# make demo            environment, install, index this Python's documentation, serve it on 127.0.0.1:8000
# make demo SOURCE=…   the same for a folder or file of yours; PORT=… for another port
# make test            environment, install with the development tools, lint, types, all tests
# make audit           compare what is installed with PyPI's list of known vulnerabilities; needs that network
# make clean           remove the environment, the indexes and every cache

PYTHON ?= python3
PORT ?=
SOURCE ?=
BIN := .venv/bin
INSTALLED := pyproject.toml setup.py $(wildcard models/native/* indexer/native/*)

export SOURCE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test audit clean

demo: .venv/installed-to-serve
	@$(BIN)/tercet demo $(if $(PORT),--port $(PORT)) -- $${SOURCE:+"$$SOURCE"}

test: .venv/installed-to-develop
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest

# The tool has an environment of its own, so that it does not look at itself. What PyPI does not know fails, and is no pass.
audit: .venv/installed-to-develop
	$(BIN)/python -m venv .venv/audit
	.venv/audit/bin/python -m pip install --quiet pip-audit
	$(BIN)/python -m pip list --format=freeze --exclude-editable > .venv/audit/installed.txt
	.venv/audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off --requirement .venv/audit/installed.txt

clean:
	rm -rf .venv data build dist *.egg-info client/build client/src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is touched only after the whole installation, so an interrupted one is done again.
.venv/installed-to-serve: $(INSTALLED) | .venv/bin/pip
	@if [ ! .venv/installed-to-develop -nt "$$(ls -t $(INSTALLED) | head -n 1)" ]; then \
	echo "Installing Tercet into .venv: a minute or two the first time."; \
	$(BIN)/python -m pip install --quiet --editable '.[cpu]'; fi
	@touch $@

.venv/installed-to-develop: $(INSTALLED) | .venv/bin/pip
	@echo "Installing Tercet, its training and development tools into .venv: several minutes the first time."
	@$(BIN)/python -m pip install --quiet --editable '.[cpu,train,dev]'
	@touch $@

.venv/bin/pip:
	@command -v $(PYTHON) >/dev/null \
	|| { echo "There is no $(PYTHON) here; Tercet needs Python 3.11 or newer: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "Tercet needs Python 3.11 or newer, which $(PYTHON) is not; name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	|| { echo "$(PYTHON) cannot make environments; install its venv module (Debian, Ubuntu: python3-venv)." >&2; exit 1; }
	@$(PYTHON) -m venv .venv
