# The commands of everyday work. Each is one line: what they do stands in scripts/ and bench/.
.PHONY: help run cluster build test lint fmt setup bench suites lab-clients lab-smoke lab-publish fuzz api-fuzz simulate torture app-kills sink-kills clean console console-dev console-shots packages

help:
	@echo 'make run     build and start the broker on ./data'
	@echo 'make cluster build and start three nodes over a PostgreSQL of their own, until Ctrl-C (docs/cluster.md)'
	@echo 'make build   build the release binaries: target/release/stafett, and stafett-lab and stafett-sql, which stafett lab and stafett sql run'
	@echo 'make test    formatting, lints and all tests; fetches what they need'
	@echo 'make lint    formatting and lints alone'
	@echo 'make fmt     format the code'
	@echo 'make setup   fetch what the tests and benches need'
	@echo 'make bench   compare with Apache Kafka (bench/README.md has the others)'
	@echo 'make suites  run the test suites of client libraries (suites/README.md)'
	@echo 'make lab-clients build librdkafka and lapin for the lab (driver = "client")'
	@echo 'make lab-smoke run every experiment of the lab at a small scale'
	@echo 'make lab-publish [NAMES="name …"] run experiments on this machine, which has nothing else to do, and write docs/lab/NAME'
	@echo 'make fuzz    run every fuzz target for a minute'
	@echo 'make api-fuzz [CASES=n] [SEED=s] send the HTTP API requests made of its own document'
	@echo 'make torture SECONDS=n kill the broker, fill its disk and fail its syncs under load'
	@echo 'make app-kills [FRAGMENTS=n] kill workers of apps and the broker while sessions and payments pass'
	@echo 'make sink-kills [KILLS=n] kill sinks, their store and their broker, and compare what they wrote'
	@echo 'make simulate SECONDS=n [SEED=s] run the broker from seeds (docs/simulation.md)'
	@echo 'make console build the pages of the console anew (console/dist, which is committed)'
	@echo 'make console-dev BROKER=url show them from their sources, over a running broker'
	@echo 'make console-shots make the screenshots of docs/console.md and docs/lab/page.md anew'
	@echo 'make packages build the libraries for Python and TypeScript: target/packages'
	@echo 'make clean   delete everything built, fetched and stored under target/'

run:
	cargo build --release --bin stafett
	target/release/stafett serve

cluster: build
	scripts/cluster

build:
	cargo build --release --bin stafett --bin stafett-lab --bin stafett-sql

test:
	scripts/test

lint:
	cargo fmt --all --check
	cargo fmt --check --manifest-path lab-clients/Cargo.toml
	cargo clippy --workspace --all-targets -- -D warnings

fmt:
	cargo fmt --all
	cargo fmt --manifest-path lab-clients/Cargo.toml

setup:
	scripts/setup

bench: build
	bench/kafka.sh

suites: build
	suites/run

lab-clients:
	cargo build --release --locked --manifest-path lab-clients/Cargo.toml --target-dir $${CARGO_TARGET_DIR:-target} --bin stafett-lab-clients

lab-smoke: build lab-clients
	scripts/lab-smoke

lab-publish: build
	scripts/lab-publish $(NAMES)

fuzz:
	scripts/fuzz

api-fuzz:
	CASES=$(CASES) SEED=$(SEED) scripts/api-fuzz

# How long the two machines that look for faults run.
SECONDS ?= 60

simulate:
	cargo run -q -p stafett-simulation --bin stafett-simulate -- $(SECONDS) $(SEED)

torture:
	TORTURE_SECONDS=$(SECONDS) scripts/torture

app-kills:
	scripts/app-kills --fragments $${FRAGMENTS:-1000000}

sink-kills:
	cargo build --release --bin stafett
	scripts/sink-kills --kills $(or $(KILLS),1000)

console:
	cd console && { test -d node_modules || npm ci --ignore-scripts --no-fund --no-audit; } && npm run -s types && npm run -s build

console-dev:
	cd console && BROKER=$(BROKER) npm run -s dev

console-shots:
	scripts/console-shots

packages:
	scripts/packages

clean:
	cargo clean
