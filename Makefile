# Tools are pinned in Go modules of their own and run with `go tool`; nothing
# but Go, git and make is needed for build, verify, lint, test and release.

SHELL := /bin/bash
.SHELLFLAGS := -o errexit -o nounset -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# VERSION names a release: its folder and the tag of its image. clusterctl wants
# a semantic version with a "v".
VERSION ?= v0.1.0
# IMAGE is the manager's image, without tag.
IMAGE ?= ghcr.io/capi-elemental/cluster-api-provider-elemental-manager
# AGENT_ARCHS are the architectures of agents.
AGENT_ARCHS := amd64 arm64
# E2E_LABELS is a Ginkgo label filter for test-e2e, such as "smoke || reset"; empty runs everything.
E2E_LABELS ?=
# E2E_FOCUS is a regular expression for test-e2e: only scenarios whose name matches run; empty runs all.
E2E_FOCUS ?=
# Recipes read them from the environment, so that their quotes reach Ginkgo unchanged.
export E2E_LABELS E2E_FOCUS
# TESTFLAGS are further flags for go test.
TESTFLAGS ?=

# Everything that go compiles here has these settings, the race detector's tests excepted: Kubernetes' libraries, for
# example, are then compiled once for programs, tests, generators and linters.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath)

# The version and the time that programs report. Go's own version stamp is not
# used: some machines disable it, and it is missing without a git repository.
BUILD_VERSION := $(shell git describe --tags --dirty 2>/dev/null || echo $(VERSION)-dev+$$(git describe --always --dirty 2>/dev/null))
BUILD_TIME := $(shell TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(BUILD_VERSION) -X main.buildTime=$(BUILD_TIME)
GO_BUILD := go build -ldflags '$(LDFLAGS)'

CONTROLLER_GEN := go tool -modfile=hack/tools/go.mod controller-gen
KUSTOMIZE := go tool -modfile=hack/tools/go.mod kustomize
GOLANGCI_LINT := go tool -modfile=$(CURDIR)/hack/tools/golangci-lint/go.mod golangci-lint

BIN := bin
RELEASE_DIR := out/release/$(VERSION)
MANIFESTS_DIR := out/manifests/$(VERSION)
PUBLISHED_DIR := out/published/$(VERSION)

# REGISTRY is where make publish pushes to, as host[:port]/path: for the default IMAGE, ghcr.io/capi-elemental.
REGISTRY ?=
# MIRROR has the images of all registries, as host[:port]/path, for make release-images; without it they are copied from
# their own. IMAGES is a file with further images, one in a line.
MIRROR ?=
IMAGES ?=
RELEASE := go -C hack/release run .
RELEASE_FLAGS = -root '$(CURDIR)' -version '$(VERSION)' -image '$(IMAGE)' -kustomize '$(KUSTOMIZE)'

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the manager, the agent, the program that builds bundles and the kubectl plugin into bin/.
	@echo "==> Building $(BUILD_VERSION)"
	$(GO_BUILD) -o $(BIN)/ ./cmd/manager ./cmd/elemental-agent ./cmd/bundle ./cmd/kubectl-elemental

.PHONY: agents
agents: ## Build agents for a manager to serve into out/agents/.
	@echo "==> Building agents $(BUILD_VERSION) for $(AGENT_ARCHS)"
	@rm -rf out/agents
	for arch in $(AGENT_ARCHS); do \
		GOOS=linux GOARCH=$$arch $(GO_BUILD) -o out/agents/elemental-agent-linux-$$arch ./cmd/elemental-agent; \
	done

.PHONY: agent-digests
agent-digests: ## Print what a registration's spec.agent pins for these agents.
	@$(MAKE) --no-print-directory agents >&2
	@hack/agent-digests.sh '$(BUILD_VERSION)' out/agents

.PHONY: generate
generate: ## Generate deepcopy code, CRDs, RBAC roles, webhook configurations, the reference and what monitoring needs.
	@echo "==> Generating code and manifests"
	$(CONTROLLER_GEN) object crd:crdVersions=v1 paths=./api/... output:crd:artifacts:config=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=manager-role webhook paths=./internal/... \
		output:rbac:artifacts:config=config/rbac output:webhook:artifacts:config=config/webhook
	$(CONTROLLER_GEN) rbac:roleName=manager-cluster-role,fileName=cluster_role.yaml paths=./cmd/manager/... \
		output:rbac:artifacts:config=config/rbac
	go run ./hack/reference
	go run ./hack/monitoring

.PHONY: verify
verify: ## Check generated files, go.mod files, sizes and retired words.
	@hack/verify.sh

.PHONY: lint
lint: ## Run golangci-lint.
	@echo "==> Linting"
	$(GOLANGCI_LINT) run --timeout 30m ./...
	cd test/harness/simulator && $(GOLANGCI_LINT) run --timeout 30m ./...
	cd test/harness/carriers && $(GOLANGCI_LINT) run --timeout 30m ./...
	cd hack/release && $(GOLANGCI_LINT) run --timeout 30m ./...
	cd test/suite/capi && $(GOLANGCI_LINT) run --timeout 30m ./...

# Temporary files of tests are in memory, if there is enough.
IN_MEMORY := $(CURDIR)/hack/in-memory.sh

# LONG=true makes make test what make test-long is.
LONG ?=

.PHONY: test
test: ## Run unit tests and tests against a real kube-apiserver, between two edits. Needs no root.
	@$(IN_MEMORY) hack/test.sh $(if $(filter true,$(LONG)),long) $(TESTFLAGS)

.PHONY: test-long
test-long: ## Run the same tests with the race detector, and long searches (seeds, orders, crashes, races) with all their cases. Needs no root.
	@$(MAKE) --no-print-directory test LONG=true

# RUN is a regular expression for test-bench and test-simulator, as -run of go test has it: only tests whose name
# matches run; empty runs all.
RUN ?=
# go vet is part of golangci-lint: here it would look at all of Kubernetes' libraries again. Debug information is for
# debuggers.
TEST := $(IN_MEMORY) go test -vet=off -ldflags=-w -count 1

.PHONY: test-embedded
test-embedded: ## Test the embedded management cluster, documented commands, the dashboard, releases, ClusterClasses and a hostile host. Needs the history of git, and no root.
	@echo "==> Testing the embedded management cluster, documented commands, the dashboard, releases, ClusterClasses and a hostile host"
	$(TEST) -timeout 1h -tags embedded -skip '^(TestScenarios|TestVersionsChangeUnderLoad)$$' ./test/harness/embedded ./test/suite/bench ./test/suite/docs ./test/suite/monitoring ./test/suite/release ./test/suite/skew ./test/suite/topology ./test/suite/threats/rogue

.PHONY: test-bench
test-bench: ## Run all benchmarks with few hosts and check what does not depend on the machine; RUN selects. Needs no root.
	@echo "==> Testing the benchmarks $(RUN)"
	$(TEST) -timeout 1h -tags embedded -run '$(or $(RUN),TestScenarios)' ./test/suite/bench

# FOR is how long test-moves moves everything to the other management cluster and back, and MOVES how many moves there
# must be by then. SEED repeats a run.
FOR ?= 20m
MOVES ?= 50
SEED ?=

.PHONY: test-moves
test-moves: ## Move virtual hosts back and forth between two management clusters for 20 minutes, with clusterctl killed at random. Needs no root.
	@echo "==> Moving virtual hosts for $(FOR), at least $(MOVES) times"
	$(TEST) -timeout 2h -tags embedded -v -run TestHostsFollowMoves ./test/suite/move -for $(FOR) -moves $(MOVES) $(if $(SEED),-seed $(SEED))

.PHONY: test-move
test-move: ## Test moves of virtual hosts between two management clusters, and restores of these from backups. Needs no root.
	@echo "==> Testing moves and restores"
	$(TEST) -timeout 1h -tags embedded ./test/suite/move

.PHONY: test-skew
test-skew: ## Replace managers and agents of v0.1.0 and of this version by each other, under load. Needs the history of git, and no root.
	@echo "==> Testing managers and agents of two versions"
	$(TEST) -timeout 1h -tags embedded -v ./test/suite/skew

.PHONY: test-simulator
test-simulator: ## Test workload clusters on virtual hosts; RUN selects. Needs no root.
	@echo "==> Testing workload clusters on virtual hosts $(RUN)"
	cd test/harness/simulator && $(TEST) -timeout 1h -tags simulator -run '$(RUN)' ./cmd/quickstart ./simulation

QUICKSTART := cd test/harness/simulator && go build -o ../../../$(BIN)/quickstart ./cmd/quickstart

# TUNNEL=true makes the quickstart's cluster one that nothing but its hosts can connect to.
TUNNEL ?= false

.PHONY: quickstart
quickstart: ## Show a cluster on virtual hosts and a failover of its endpoint. Needs no root.
	@echo "==> Building the quickstart"
	@$(GO_BUILD) -tags simulation -o $(BIN)/simulation/manager ./cmd/manager
	@$(QUICKSTART)
	@$(BIN)/quickstart up --manager $(BIN)/simulation/manager --tunnel=$(TUNNEL)

.PHONY: quickstart-down
quickstart-down: ## Stop the quickstart and remove its files.
	@test -x $(BIN)/quickstart || { $(QUICKSTART); }
	@$(BIN)/quickstart down

.PHONY: embedded
embedded: ## Run the embedded management cluster until interrupted. Needs no root.
	go run ./test/harness/embedded/cmd/embedded

# BENCHFLAGS are flags for benchmarks. If there are any, the figures are only printed and docs/benchmarks.md stays unchanged.
BENCHFLAGS ?=
BENCH := go run ./test/suite/bench/cmd/bench $(if $(BENCHFLAGS),$(BENCHFLAGS),--document docs/benchmarks.md)
BENCHES := memory enrol storm claims plan rogue sites failover gateway tunnel snapshots clusters

.PHONY: bench $(BENCHES:%=bench-%)
bench: ## Run all benchmarks and write docs/benchmarks.md. Needs no root.
	@echo "==> Measuring everything"
	$(BENCH)

$(BENCHES:%=bench-%): bench-%:
	@echo "==> Measuring $*"
	$(BENCH) $*

# GOBENCH selects Go benchmarks by name; GOBENCHFLAGS are further flags for go test.
GOBENCH ?= .
GOBENCHFLAGS ?= -count 6

.PHONY: bench-go
bench-go: ## Run the Go benchmarks; the output is for benchstat. Needs no root.
	@go test -p 1 -run '^$$' -bench '$(GOBENCH)' -benchmem $(GOBENCHFLAGS) -timeout 2h \
		$$(grep -rl --include='*_test.go' '^func Benchmark' internal | xargs -n 1 dirname | sort -u | sed 's|^|./|')

# FUZZTIME is the duration of each fuzz target.
FUZZTIME ?= 60s

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME.
	@hack/fuzz.sh '$(FUZZTIME)'

# REMOVALS selects a part of the removals, such as 3/10: the fourth of ten parts; empty runs all.
REMOVALS ?=

.PHONY: threats
threats: ## Remove each mitigation of docs/security.md and check that its test fails.
	@echo "==> Removing mitigations, one at a time"
	REMOVALS='$(REMOVALS)' go test -tags removals -count 1 -timeout 1h -run TestRemovals -v ./test/suite/threats

.PHONY: lab-up
lab-up: manifests ## Start a lab: management cluster, hosts, workload cluster (needs root).
	go run ./test/harness/lab/cmd/lab up

.PHONY: lab-down
lab-down: ## Remove the lab.
	go run ./test/harness/lab/cmd/lab down

.PHONY: test-e2e
test-e2e: ## Run end-to-end tests on a lab (needs root); E2E_LABELS and E2E_FOCUS select.
	@hack/e2e-labels.sh check "$$E2E_LABELS"
	@$(MAKE) --no-print-directory manifests
	@for suite in $$(hack/e2e-labels.sh suites "$$E2E_LABELS"); do \
		echo "==> Running end-to-end tests of $$suite, labels \"$$E2E_LABELS\", focus \"$$E2E_FOCUS\""; \
		(cd "$$suite" && $(TEST) -tags e2e -timeout 4h . -v -ginkgo.v -ginkgo.timeout 4h \
			-ginkgo.label-filter="$$E2E_LABELS" -ginkgo.focus="$$E2E_FOCUS"); \
	done

.PHONY: test-oracle
test-oracle: ## Compare what the agent does with bootstrap data with cloud-init (needs root).
	@echo "==> Comparing with cloud-init"
	$(TEST) -tags e2e -timeout 30m ./test/suite/cloudinit

.PHONY: test-e2e-labels
test-e2e-labels: ## List the end-to-end scenarios with their labels.
	@hack/e2e-labels.sh list

.PHONY: manifests
manifests: ## Write the files for clusterctl into out/manifests/VERSION.
	@echo "==> Writing $(MANIFESTS_DIR)"
	@$(RELEASE) manifests $(RELEASE_FLAGS) '$(abspath $(MANIFESTS_DIR))'

.PHONY: release
release: ## Write a whole release into out/release/VERSION: files for clusterctl, agent, packages, image, digests.
	@echo "==> Writing $(RELEASE_DIR)"
	@$(RELEASE) build $(RELEASE_FLAGS) '$(abspath $(RELEASE_DIR))'

.PHONY: release-images
release-images: ## Add the images that an installation needs to the release in out/release/VERSION.
	@$(RELEASE) images -root '$(CURDIR)' -mirror '$(MIRROR)' -further '$(if $(IMAGES),$(abspath $(IMAGES)))' '$(abspath $(RELEASE_DIR))'

.PHONY: verify-release
verify-release: ## Check the release in out/release/VERSION.
	@$(RELEASE) verify '$(abspath $(RELEASE_DIR))'

.PHONY: publish
publish: ## Push the release's images below REGISTRY=host/path, and write files for clusterctl that name the digest.
	@$(RELEASE) publish -registry '$(REGISTRY)' -output '$(abspath $(PUBLISHED_DIR))' '$(abspath $(RELEASE_DIR))'

.PHONY: ci
ci: ## Run all checks and tests that a change must pass.
	@$(MAKE) --no-print-directory verify
	@$(MAKE) --no-print-directory lint
	@REQUIRE_RACE_DETECTOR=true REQUIRE_SWTPM=true REQUIRE_LOOP_DEVICES=true REQUIRE_NETWORK_NAMESPACES=true REQUIRE_NFTABLES=true REQUIRE_HAPROXY=true \
		$(MAKE) --no-print-directory test LONG=true
	@$(MAKE) --no-print-directory test-embedded
	@$(MAKE) --no-print-directory test-simulator RUN=TestClusterLifecycle
	@$(MAKE) --no-print-directory test-oracle
	@$(MAKE) --no-print-directory test-e2e E2E_LABELS=smoke
	@echo "==> Everything passed"
