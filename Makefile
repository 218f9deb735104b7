# `make help` lists the verbs. Everything here is one line of Go away from
# being typed by hand; nothing needs this file.

LDFLAGS := -s -w
BUILD   := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'
TARGETS := linux/amd64 linux/arm64 windows/amd64 darwin/arm64
FUZZTIME ?= 20s
SOAK ?= 2h

.DEFAULT_GOAL := help
# npm writes this file when it has installed what a package-lock.json names: once is enough.
# It stands above the targets, because make reads their prerequisites at once.
PACKAGES = node_modules/.package-lock.json

.PHONY: help fleet fleet-long bench-fleet build test race lint cross bench bench-machine bench-peers fuzz models faults faults-short mutants soak clients clients-go clients-typescript clients-python clients-mcp clients-otlp clients-adapters clients-go-adapters clients-sessions clients-latest dist nightly e2e e2e-agents agents-latest e2e-console console-budgets e2e-systemd e2e-windows $(TARGETS)

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the program for this machine, as dist/ckptsidecar
	$(BUILD) -o dist/ ./cmd/ckptsidecar

test: ## all tests
	go test ./...

# SQLite itself is not instrumented: it is not ours, and five times slower with it.
RACE = ./...
race: ## all tests under the race detector; needs a C compiler
	CGO_ENABLED=1 go test -race -gcflags='modernc.org/...=-race=false' -timeout 30m $(RACE)

lint: ## gofmt, vet, and golangci-lint or staticcheck, whichever is there
	@unformatted="$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go'))"; \
	if [ -n "$$unformatted" ]; then echo "gofmt these: $$unformatted"; exit 1; fi
	go vet ./...
	@if command -v golangci-lint >/dev/null; then set -x; golangci-lint run ./...; \
	elif command -v staticcheck >/dev/null; then set -x; staticcheck ./...; \
	else echo "neither golangci-lint nor staticcheck is installed: only gofmt and vet ran"; fi

cross: $(TARGETS) ## the program for every platform, in dist/, without cgo

$(TARGETS):
	GOOS=$(@D) GOARCH=$(@F) $(BUILD) -o dist/ckptsidecar-$(@D)-$(@F)$(if $(filter windows,$(@D)),.exe) ./cmd/ckptsidecar

dist: ## everything that is released, with checksums, in dist/release; needs wixl, msitools, faketime, zip
	packaging/dist.sh

nightly: ## all that takes hours or boots machines, as root on Debian; SOAK=10m for a short soak
	SOAK=$(SOAK) .ci/nightly

e2e: e2e-systemd e2e-windows ## both of these

e2e-systemd: ## packages and units on a booted Debian; needs root, systemd-container, mmdebstrap
	go test -tags e2e -count=1 -timeout 20m -v -run 'TestPackage|TestServiceCommand' ./e2e

e2e-console: build e2e/console/$(PACKAGES) ## the console in Debian's Chromium, with axe-core; needs chromium, Node 20 or newer with npm; pictures in dist/console-shots
	cd e2e/console && npm run check && CKPTSIDECAR_BIN='$(CURDIR)/dist/ckptsidecar' npm test

e2e-agents: e2e/agents/$(PACKAGES) ## Claude Code, Codex and Gemini CLI, with a model of our own; five minutes; needs Linux, Node 20 or newer with npm
	go test -count=1 -timeout 1h -v ./e2e/agents

agents-latest: ## the same with the newest versions of the three
	rm -rf dist/agents-latest && mkdir -p dist/agents-latest
	cd dist/agents-latest && npm init -y >/dev/null && npm install --ignore-scripts --no-audit --no-fund $(addsuffix @latest,@anthropic-ai/claude-code @openai/codex @google/gemini-cli)
	CKPT_AGENTS='$(CURDIR)/dist/agents-latest/node_modules' go test -count=1 -timeout 1h -v ./e2e/agents

console-budgets: build e2e/console/$(PACKAGES) ## what the console takes with much in the daemon, as a table; five minutes; needs what e2e-console needs
	cd e2e/console && CKPTSIDECAR_BIN='$(CURDIR)/dist/ckptsidecar' node budgets.mjs

e2e-windows: clients/typescript/$(PACKAGES) ## the Windows service and own daemons under Wine; needs root, mmdebstrap, wixl, msitools, faketime, Node 18 or newer with npm
	cd clients/typescript && npm run build
	go test -tags e2e -count=1 -timeout 20m -v -run 'TestWindows' ./e2e

clients: clients-go clients-python clients-typescript clients-mcp clients-otlp clients-adapters ## the clients for agents, over real daemons

clients-go: ## the client for Go
	go test -count=1 ./client -args -away 10s

PYTHON ?= python3
# Most of their time is waiting, so two go at once; what measures goes alone.
clients-python: export CKPTSIDECAR_BIN = $(CURDIR)/dist/ckptsidecar
clients-python: build ## those of the Python client; needs Python 3.9 or newer and nothing else
	cd clients/python && ls tests/test_*.py | grep -v test_cost | sed 's,/,.,; s,\.py$$,,' | \
		xargs -n 1 -P 2 $(PYTHON) -W default -m unittest
	cd clients/python && $(PYTHON) -W default -m unittest tests.test_cost

fleet: ## the engine of a fleet, on PostgreSQL; needs postgresql-15, and as root setpriv
	go test -v -count=1 -timeout 20m -skip '^TestMeasure' ./internal/fleet/... ./internal/db/journal
	go test -v -count=1 -timeout 300s -run '^TestFleetNemesis$$' ./internal/daemon
	go test -v -count=1 -timeout 300s -run '^(TestFleetSeen|TestFleetErases|TestWhoAsksForARunOfAnotherHost)$$' ./cmd/ckptsidecar
	go test -v -count=1 -timeout 300s -run '^TestFleetPage$$' ./internal/console
	examples/fleet/story.sh
	examples/fleet/standby.sh

fleet-long: ## ten minutes of hosts that die, and the lag of 1,000 saves a second, on PostgreSQL, as root; FLEET_FOR=1h for longer
	go test -v -count=1 -timeout 3h -run '^TestFleetNemesis$$' ./internal/daemon -args -fleet.for $(or $(FLEET_FOR),10m)
	CKPTSIDECAR_MEASURE=1 go test -v -count=1 -timeout 300s -run '^TestMeasureLag$$' ./internal/fleet/host -args -fleet.lag 30s -fleet.lag-bar 1s

bench-fleet: ## what shipping costs, the lag, and saves of durability fleet against bare INSERTs, on PostgreSQL
	CKPTSIDECAR_MEASURE=1 go test -v -count=1 -timeout 600s -run '^(TestMeasureFleet|TestMeasureLag|TestMeasureDurableFleet)$$' ./internal/fleet/host

bench: build ## durable saves a second on this disk
	./dist/ckptsidecar bench save

# MACHINE=restore, history, files or scale, with its options; --help lists them.
MACHINE ?= --help
bench-machine: build ## one of the other measurements of docs/BENCHMARKS.md: MACHINE=restore, history, files or scale
	cd bench && go build -mod=mod -o ../dist/bench-machine ./machine
	./dist/bench-machine $(MACHINE)

bench-peers: build ## the same work against Redis, PostgreSQL, etcd, LangGraph and DBOS; PEERS=--quick for 3 minutes
	cd bench && go build -mod=mod -o ../dist/bench-peers .
	./dist/bench-peers $(PEERS)

fuzz: ## every fuzz test for FUZZTIME (20s), and the long form of five tests that draw lots
	go test -count=1 -run '^TestCheckJSONAfterAgrees$$' ./internal/jsontext -args -texts 40000
	go test -count=1 -run 'AfterAgrees$$' ./internal/secrets -args -texts 6000
	go test -count=1 -run '^TestThePromiseHoldsInSimulation$$' ./internal/drift -args -simulated 20000
	go test -count=1 -run '^TestEveryEffectOnceHoweverOftenItIsKilled$$' ./cmd/ckptsidecar -args -long
	@set -e; grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r package; do \
		grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$$package"/*_test.go | sed 's/func //' | sort -u | while read -r name; do \
			echo "$$package $$name"; go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x "$$package" </dev/null; \
		done; \
	done

models: ## the long form of the model tests of the store, in five minutes; MODELS='-model.seed=7'
	go test -count=1 -timeout 1h ./internal/db -run 'Model|^TestHostileExports$$|^TestRestoreKilledAtACall$$|^TestLocksThatFail$$' -args -long $(MODELS)

# The matrix of faults, docs/RELIABILITY.md. FAULTS=F8,F9 runs only those, FROM=F9
# that and all after it; SEED=1 plays one again. Much of it needs root, strace,
# sqlite3 and e2fsprogs, and says so where it is skipped.
MATRIX = go test -count=1 -timeout 3h ./internal/faulttest -v -args -test.run '^TestFaults$$' $(if $(SEED),-seed $(SEED)) -rows '$(FAULTS)' -from '$(FROM)'

faults-short: ## the matrix of faults in three minutes
	$(MATRIX) -faults short

faults: ## all of it, in forty; FAULTS=F8,F9 FROM=F9 SEED=1
	$(MATRIX) -faults all

mutants: ## plant every mistake of internal/faulttest/mutants and see which test finds it, in an hour; ONLY=ownership/
	go test -count=1 -timeout 4h ./internal/faulttest/mutants -v -run '^TestMutants$$' -args -plant -only '$(ONLY)'

soak: ## mixed faults for SOAK (2h) under 16 clients, and whether memory, descriptors and files stay flat; and 40 days of audit.keep in that time
	go test -count=1 -timeout 48h ./internal/faulttest -v -args -test.run '^(TestSoak|TestSoakUnderKeep|TestRealRuns)$$' -faults all -soak $(SOAK) $(if $(SEED),-seed $(SEED))

%/$(PACKAGES): %/package-lock.json
	cd $* && npm ci $(if $(filter e2e/mcp e2e/console e2e/agents,$*),--ignore-scripts)
	touch $@

clients-typescript: build clients/typescript/$(PACKAGES) ## the TypeScript client; needs Node 18 or newer with npm
	cd clients/typescript && npm run build && npm run check && CKPTSIDECAR_BIN='$(CURDIR)/dist/ckptsidecar' node scripts/test.mjs

clients-mcp: build e2e/mcp/$(PACKAGES) ## the MCP server under the official inspector and TypeScript SDK; needs Node 20 or newer with npm
	cd e2e/mcp && CKPTSIDECAR_BIN='$(CURDIR)/dist/ckptsidecar' npm test

clients-otlp: build adapters/otlp/node/$(PACKAGES) ## OpenTelemetry's exporters for Go and Node against real daemons; needs npm
	cd adapters/otlp && go vet -mod=mod . && go test -mod=mod -count=1 .
	cd adapters/otlp/node && CKPTSIDECAR_BIN='$(CURDIR)/dist/ckptsidecar' npm test

clients-adapters: clients-go-adapters clients-sessions ## the adapters of docs/ADAPTERS.md, with the real SDKs; needs npm

clients-go-adapters:
	@set -e; for adapter in eino adk genkit; do \
		echo "adapters/$$adapter"; (cd adapters/$$adapter && go vet -mod=mod . && go test -mod=mod -count=1 .); \
	done

clients-sessions: build clients/typescript/$(PACKAGES)
	cd clients/typescript && npm run build
	$(MAKE) clients/typescript/adapters/$(PACKAGES)
	cd clients/typescript/adapters && CKPTSIDECAR_BIN='$(CURDIR)/dist/ckptsidecar' npm test

clients-latest: build ## the clients with the newest LangGraph, OpenAI Agents, Claude Agent SDK, AI SDK, Mastra and MCP SDK; needs npm; LATEST=langgraph
	CKPTSIDECAR_BIN='$(CURDIR)/dist/ckptsidecar' node clients/latest.mjs $(LATEST)
