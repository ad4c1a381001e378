# Two commands do it all on a fresh machine: `make deploy` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SIM    ?= sim1

.PHONY: deploy sim test unit integration faults bench test-hosts lint sanity build catalogue clean

deploy: $(VENV)/.deploy sim  ## environment, and the main job on the simulated host
	PATH="$(CURDIR)/$(BIN):$$PATH" ansible-playbook playbooks/deploy.yml

sim: $(VENV)/.deploy  ## the simulated host's folder
	$(BIN)/python -m simulator create $(addprefix .sim/,$(SIM))

test: $(VENV)/.test  ## all tests that need no root
	$(BIN)/python -m pytest -n 2 --dist loadgroup

unit: $(VENV)/.test
	$(BIN)/python -m pytest tests/unit

integration: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist loadgroup tests/integration

faults: $(VENV)/.test  ## the fault matrix: every fault caused, at a first deploy and over a good server
	$(BIN)/python -m tests.faults $(FAULTS)

bench: $(VENV)/.test  ## what is claimed about speed, as ratios
	$(BIN)/python -m benchmarks

test-hosts: $(VENV)/.hosts  ## Molecule's scenarios on real hosts in containers; needs root
	PATH="$(CURDIR)/$(BIN):$$PATH" extensions/molecule/run $(SCENARIOS)

lint: $(VENV)/.lint  ## ruff, mypy, ansible-lint, yamllint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy collections/ansible_collections/blackwell/sglang/plugins/plugin_utils collections/ansible_collections/blackwell/sglang/plugins/module_utils
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/ansible-lint --offline --profile production
	$(BIN)/yamllint --strict .

catalogue: $(VENV)/.test  ## flags and choices of an SGLang release: make catalogue VERSION=0.5.23
	$(BIN)/python -m tools.catalogue $(VERSION)

build:  ## the collection's archive, in dist/
	$(BIN)/ansible-galaxy collection build --force --output-path dist

sanity: $(VENV)/.test build  ## Ansible's own checks, on the collection as it ships
	.ci/sanity "$(CURDIR)/$(BIN)"

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV) || { echo "python3-venv is missing: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.deploy: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(BIN)/pip install -q -c constraints.txt .
	touch $@

$(VENV)/.test: $(VENV)/.deploy
	$(BIN)/pip install -q -c constraints.txt ".[test]"
	touch $@

$(VENV)/.hosts: $(VENV)/.test
	$(BIN)/pip install -q -c constraints.txt ".[test,hosts]"
	touch $@

$(VENV)/.lint: $(VENV)/.test
	$(BIN)/pip install -q -c constraints.txt ".[test,lint]"
	touch $@

clean:  ## everything that was made, but for the servers that run
	rm -rf $(VENV) .sim .cache dist build *.egg-info
