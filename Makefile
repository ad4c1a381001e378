# Two commands do it all on a fresh machine: `make deploy` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SIM    ?= sim1
# Where the real SGLang is installed, 1.8 GB; kept between clones
REAL   ?= $(HOME)/.cache/blackwell-sglang
export REAL

.PHONY: deploy deploy-real sim sweep evidence test unit integration faults bench test-hosts test-real lint sanity build catalogue clean

deploy: $(VENV)/.deploy sim  ## environment, and the main job on the simulated host
	PATH="$(CURDIR)/$(BIN):$$PATH" ansible-playbook playbooks/deploy.yml

deploy-real: $(VENV)/.deploy $(REAL)/.installed  ## the same job with the real SGLang, on this machine's CPU
	$(BIN)/python -m simulator create .sim/cpu1
	PATH="$(CURDIR)/$(BIN):$$PATH" ansible-playbook -i inventories/cpu playbooks/deploy.yml

sweep: $(VENV)/.deploy sim  ## every combination of backends on the simulated host; reports in reports/
	PATH="$(CURDIR)/$(BIN):$$PATH" ansible-playbook playbooks/sweep.yml

evidence: $(VENV)/.deploy  ## take a sweep's reviewed results over: make evidence FROM=reports/sweep-.../evidence/sweep.yml
	$(BIN)/python -m tools.evidence $(FROM)

sim: $(VENV)/.deploy  ## the simulated host's folder
	$(BIN)/python -m simulator create $(addprefix .sim/,$(SIM))

test: $(VENV)/.test  ## all tests that need no root
	$(BIN)/python -m pytest -n 2 --dist worksteal

unit: $(VENV)/.test
	$(BIN)/python -m pytest tests/unit

integration: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/integration

faults: $(VENV)/.test  ## the fault matrix: every fault caused, at a first deploy and over a good server
	$(BIN)/python -m tests.faults $(FAULTS)

bench: $(VENV)/.test  ## what is claimed about speed, as ratios
	$(BIN)/python -m benchmarks

test-hosts: $(VENV)/.hosts  ## Molecule's scenarios on real hosts in containers; needs root
	PATH="$(CURDIR)/$(BIN):$$PATH" extensions/molecule/run $(SCENARIOS)

test-real: $(VENV)/.test $(REAL)/.installed  ## against the real SGLang and its router
	$(BIN)/python -m pytest tests/real

lint: $(VENV)/.lint  ## ruff, mypy, ansible-lint, yamllint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy collections/ansible_collections/blackwell/sglang/plugins/plugin_utils collections/ansible_collections/blackwell/sglang/plugins/module_utils nightly
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
	$(BIN)/pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/.test: $(VENV)/.deploy
	$(BIN)/pip install -q -c constraints.txt -e ".[test]"
	touch $@

$(VENV)/.hosts: $(VENV)/.test
	$(BIN)/pip install -q -c constraints.txt -e ".[test,hosts]"
	touch $@

$(VENV)/.lint: $(VENV)/.test
	$(BIN)/pip install -q -c constraints.txt -e ".[test,lint]"
	touch $@

$(REAL)/.installed: $(wildcard tests/real/server/* tests/real/server/site/*)
	tests/real/server/install "$(REAL)"
	touch $@

clean:  ## everything that was made, but for the servers that run
	rm -rf $(VENV) .sim .cache dist build *.egg-info
