# make demo   train on a built-in set, print a table, draw the masks
# make test   run all tests
# make lint   check format, style and types
# make tables put the tables of results/ into README and docs
# Each sets up its own virtual environment in .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint tables venv clean help
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

venv: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "softmask needs Python 3.11 or newer, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)."; \
	  echo "Install a newer Python and name it: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "This Python cannot make virtual environments. On Debian or Ubuntu: apt install python3-venv"; exit 1; }
	@echo "installing softmask and what it needs into $(VENV) (some minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' || { \
	  echo "A package could not be installed. Check the network or pip's settings (pip config list);"; \
	  echo "the exact versions asked for stand in constraints.txt."; exit 1; }
	@touch $@

demo: venv
	$(BIN)/softmask demo --out demo

test: venv
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

lint: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

tables: venv
	$(BIN)/python docs/fill.py

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
