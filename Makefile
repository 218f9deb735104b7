# `make help` lists the verbs. Everything here is one line of Go away from
# being typed by hand; nothing needs this file.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.version=$(VERSION)
BUILD   := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'
TARGETS := linux/amd64 linux/arm64 windows/amd64 darwin/arm64
FUZZTIME ?= 20s

.DEFAULT_GOAL := help
.PHONY: help build test race lint cross bench fuzz clients clients-python $(TARGETS)

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the program for this machine, as dist/ckptsidecar
	$(BUILD) -o dist/ ./cmd/ckptsidecar

test: ## all tests
	go test ./...

race: ## all tests under the race detector; needs a C compiler
	go test -race -timeout 20m ./...

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

clients: clients-python ## the tests of the clients in other languages, over real daemons

PYTHON ?= python3
# Most of their time is waiting, so two go at once; what measures goes alone.
clients-python: export CKPTSIDECAR_BIN = $(CURDIR)/dist/ckptsidecar
clients-python: build ## those of the Python client; needs Python 3.9 or newer and nothing else
	cd clients/python && ls tests/test_*.py | grep -v test_cost | sed 's,/,.,; s,\.py$$,,' | \
		xargs -n 1 -P 2 $(PYTHON) -W default -m unittest
	cd clients/python && $(PYTHON) -W default -m unittest tests.test_cost

bench: build ## durable saves a second on this disk
	./dist/ckptsidecar bench save

fuzz: ## every fuzz test for FUZZTIME (20s)
	@set -e; grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r room; do \
		grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$$room"/*_test.go | sed 's/func //' | sort -u | while read -r name; do \
			echo "$$room $$name"; go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$room" </dev/null; \
		done; \
	done
