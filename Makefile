# Everything a contributor runs. Works with GNU Make 4 and any POSIX shell.

GO           ?= go
TEST_TIMEOUT ?= 60m
FUZZTIME     ?= 30s
BENCH_FLAGS  ?=
GATE_FLAGS   ?=
SOAK_TIME    ?= 10m

# How long the longer tests are. scripts/test-rest runs them with less.
NODES_JOBS   ?= 100000
KILLS        ?= 60
CRASHES      ?= 30
FAILOVERS    ?= 5
ARCHES       ?= 386,arm64,riscv64,s390x

# Linters and formatters are pinned in a module of their own, so that they never
# enter the builds of users.
TOOL = $(GO) tool -modfile=tools/lint/go.mod
BUF  = $(GO) tool -modfile=tools/proto/go.mod buf

# gq is built without cgo, so the database in its store compresses with zstd written in Go.
# Tests use the same one. Compiling the one in C takes most of a minute.
TEST_TAGS = pebblegozstd

export GO TEST_TIMEOUT TEST_TAGS FUZZTIME

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: format-check vet ## Before every commit: format, vet, and the tests that need Go alone; under a minute with a warm cache
	CGO_ENABLED=0 GQ_TEST_WITHOUT='browser docker node python curl postgresql' $(GO) test -trimpath -vet=off -short ./...

.PHONY: test
test: format-check vet ## All tests but those that need more than Go and PostgreSQL, which it lists; 11 to 13 minutes on two cores
	scripts/test

.PHONY: test-lab
test-lab: format-check ## Vet and test the laboratory, the module in services: designs A and B, their load, comparison and containers (needs root and Docker)
	@scripts/install-docker
	scripts/test-lab

.PHONY: test-all
test-all: test test-rest ## Everything that CI runs; about an hour on two cores

.PHONY: test-rest
test-rest: ## What make test leaves out, part by part; PARTS="race browser" for some of them
	scripts/test-rest $(PARTS)

.PHONY: postgres
postgres: ## Make sure the PostgreSQL and PgBouncer that tests start are installed
	@scripts/install-postgres

.PHONY: python
python:
	@scripts/install-python

.PHONY: node
node:
	@scripts/install-node

.PHONY: chromium
chromium:
	@scripts/install-chromium

.PHONY: test-browser
test-browser: postgres chromium ## Use the dashboard in Chromium, on file: and postgres:; SHOTS=DIR takes a picture of every page
	cd dashboard/browsertest && $(GO) test -count=1 -v -timeout $(TEST_TIMEOUT) . -stores file,postgres $(if $(SHOTS),-shots $(abspath $(SHOTS)))

.PHONY: test-arch
test-arch: ## Run gq match built for 386, arm64, riscv64 and s390x and compare bytes (installs qemu-user)
	@scripts/install-qemu
	$(GO) test ./match -tags arch -run TestAssignmentsWith32Bits -v
	$(GO) test ./cmd/gq -tags arch -run TestMatchOnOtherArchitectures -v -timeout 60m -arches $(ARCHES)

.PHONY: docker
docker: ## Make sure the Docker engine that tests start for themselves is installed
	@scripts/install-docker

.PHONY: format-check
format-check:
	@files=$$(gofmt -l .) || exit 1; \
	if [ -n "$$files" ]; then \
		echo "not formatted, run make format:" >&2; echo "$$files" >&2; exit 1; \
	fi

# In the flavour in which make test compiles everything anyway.
.PHONY: vet
vet:
	CGO_ENABLED=0 $(GO) vet -trimpath ./...

# What gq must build on.
CROSS = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64 freebsd/amd64

# Type-checking takes seconds. Compiling the standard library and every module for
# another platform takes minutes, so CI runs make cross next to make test. One of each
# operating system is enough here.
.PHONY: crosscheck
crosscheck:
	CGO_ENABLED=0 $(GO) run -trimpath ./tools/crosscheck linux/arm64 darwin/arm64 windows/amd64 freebsd/amd64

.PHONY: cross
cross: ## Build gq without cgo for every platform it supports
	@for target in $(CROSS); do \
		echo "build $$target"; \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build -o /dev/null ./cmd/gq || exit 1; \
	done

.PHONY: build
build: ## Build bin/gq: static, without debug information (panics keep their stacks)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w' -o bin/gq ./cmd/gq

# Not part of make test: from a cold cache building golangci-lint and buf alone takes
# minutes. CI runs them beside the tests.
.PHONY: lint
lint: proto-check ## Run golangci-lint with .golangci.yml, look for dead code, and check the wire: style, compatibility, generated code
	$(TOOL) golangci-lint run
	cd services && $(GO) tool -modfile=../tools/lint/go.mod golangci-lint run
	scripts/check-dead-code

.PHONY: proto-check
proto-check:
	scripts/check-proto

.PHONY: tidy-check
tidy-check:
	scripts/check-tidy

.PHONY: vuln
vuln: ## Look for known vulnerabilities with govulncheck, where its database can be reached
	scripts/check-vulnerabilities

.PHONY: format
format: ## Format all Go code with gofumpt
	$(TOOL) golangci-lint fmt

.PHONY: proto
proto: ## Renew the Go code below api/ and services/api/ from proto/
	$(BUF) generate

.PHONY: proto-baseline
proto-baseline: ## Accept the wire as it is as what clients rely on
	$(BUF) build --exclude-source-info -o proto/baseline.binpb

.PHONY: generate
generate: postgres python node docker proto ## Renew everything generated: go generate, then docs/conformance.md from a real run
	$(GO) generate ./...
	scripts/test -write

.PHONY: test-nodes
test-nodes: postgres ## Two and four servers on one database work off 100,000 jobs
	$(GO) test ./internal/e2e -count=1 -v -timeout $(TEST_TIMEOUT) -run '^TestServersShareADatabase$$' -nodes-jobs $(NODES_JOBS)

.PHONY: test-kill
test-kill: postgres ## Kill servers and their database 60 times under load
	$(GO) test ./internal/e2e -count=1 -v -timeout $(TEST_TIMEOUT) -run '^TestKilledServersAndDatabase$$' -nodes-kills $(KILLS)
	$(GO) test ./store/postgres -count=1 -v -timeout $(TEST_TIMEOUT) -run '^TestCrashes$$' -crashes $(CRASHES)

.PHONY: test-idle
test-idle: postgres ## What an idle server costs after 10,000 jobs of every API, on every store
	$(GO) test ./internal/e2e -count=1 -v -timeout $(TEST_TIMEOUT) -run '^TestIdleServerUsesNoCPU$$' -idle-native-jobs 10000 -idle-jobs 10000

.PHONY: test-exhaustion
test-exhaustion: ## Take all that a server's limits allow, in control groups of 1 and 2 GiB (needs root and 4 GiB of memory)
	$(GO) test ./internal/e2e -count=1 -v -timeout $(TEST_TIMEOUT) -run '^TestExhaustion$$' -exhaust

.PHONY: test-failover
test-failover: ## Five failovers of three servers under Patroni, synchronous and asynchronous
	@scripts/install-postgres -failover
	$(GO) test ./internal/e2e -tags failover -count=1 -v -timeout 30m -run 'Failover$$' -failovers $(FAILOVERS)

.PHONY: bench
bench: ## Measure the stores; flags go into BENCH_FLAGS="--store file:DIR"
	$(GO) run ./cmd/gq bench $(BENCH_FLAGS)

# Compiled as scripts/test compiles gq, so that little is compiled twice.
.PHONY: bench-gate
bench-gate: ## Fail if a hot path has become 25 % slower, beside a floor in the same run; GATE_FLAGS=-gate-record accepts what is
	CGO_ENABLED=0 $(GO) test -trimpath -vet=off ./internal/bench -count=1 -v -run '^TestGate$$' -args -gate $(GATE_FLAGS)

.PHONY: bench-scale
bench-scale: ## Measure the cost of a job as a store grows; flags go into BENCH_FLAGS="--axis backlog --svg DIR"
	$(GO) run ./cmd/gq bench scale $(BENCH_FLAGS)

.PHONY: bench-goals
bench-goals: postgres ## Measure every row with a goal, raw data into DIR; DATABASE=postgres://… adds a cycle beside 10,000,000 jobs
	DATABASE='$(DATABASE)' GO='$(GO)' scripts/bench-goals $(DIR)

.PHONY: bench-dashboards
bench-dashboards: postgres ## Measure what 100 open dashboards cost the cycle of a server; BENCH_FLAGS="-dashboards-store postgres"
	$(GO) test ./internal/e2e -count=1 -timeout $(TEST_TIMEOUT) -run '^$$' -bench '^BenchmarkDashboards$$' -benchtime 1x $(BENCH_FLAGS)

.PHONY: bench-peers
bench-peers: postgres ## Measure beside River, graphile-worker and pg-boss on one PostgreSQL; BENCH_FLAGS=-quick checks the harness
	cd bench && $(GO) run . $(BENCH_FLAGS)

.PHONY: bench-servers
bench-servers: ## Measure, embedded and as a server, beside Asynq, BullMQ, beanstalkd, NATS JetStream and Faktory; BENCH_FLAGS=-quick checks the harness
	cd bench && $(GO) run . servers $(BENCH_FLAGS)

.PHONY: size
size: ## How large the project is: lines, modules, exported types, methods
	@$(GO) run ./tools/size

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (30s)
	scripts/fuzz

.PHONY: compare
compare: ## Compare the task queue's designs; COMPARE_FLAGS=--quick for a small part
	scripts/compare $(COMPARE_FLAGS)

.PHONY: soak
soak: ## Put each design of the task queue under load for SOAK_TIME (10m) and watch its memory
	cd services && GQ_SOAK=$(SOAK_TIME) $(GO) test -count=1 -timeout 3h -run '^TestSoak$$' -v ./internal/compare
