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
# ARCH is the architecture of images.
ARCH ?= $(shell go env GOARCH)
# AGENT_ARCHS are the architectures of the agents in the manager's image: those
# of hosts, whatever the manager's is.
AGENT_ARCHS := amd64 arm64
# E2E_LABELS is a Ginkgo label filter for test-e2e; empty runs everything.
E2E_LABELS ?=
# TESTFLAGS are further flags for go test.
TESTFLAGS ?=

# What programs say of themselves. Go's own stamp is not used: it is switched
# off on some machines, and missing where the sources come without git.
BUILD_VERSION := $(shell git describe --tags --dirty 2>/dev/null || echo $(VERSION)-dev+$$(git describe --always --dirty 2>/dev/null))
BUILD_TIME := $(shell TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(BUILD_VERSION) -X main.buildTime=$(BUILD_TIME)
GO_BUILD := CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)'

CONTROLLER_GEN := go tool -modfile=hack/tools/go.mod controller-gen
KUSTOMIZE := go tool -modfile=hack/tools/go.mod kustomize
GOLANGCI_LINT := go tool -modfile=$(CURDIR)/hack/tools/golangci-lint/go.mod golangci-lint

BIN := bin
RELEASE_DIR := out/release/$(VERSION)

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the manager and the agent into bin/.
	@echo "==> Building $(BUILD_VERSION)"
	$(GO_BUILD) -o $(BIN)/ ./cmd/manager ./cmd/elemental-agent

.PHONY: agents
agents: ## Build the agents that the manager serves into out/agents/.
	@echo "==> Building agents $(BUILD_VERSION) for $(AGENT_ARCHS)"
	@rm -rf out/agents
	for arch in $(AGENT_ARCHS); do \
		GOOS=linux GOARCH=$$arch $(GO_BUILD) -o out/agents/elemental-agent-linux-$$arch ./cmd/elemental-agent; \
	done

.PHONY: agent-digests
agent-digests: ## Print what a registration's spec.agent pins for these agents.
	@$(MAKE) --no-print-directory agents >&2
	@hack/agent-digests.sh '$(BUILD_VERSION)' out/agents

.PHONY: images
images: agents ## Build the manager's container image, with agents to serve (needs docker).
	@echo "==> Building image $(IMAGE):$(VERSION)"
	GOOS=linux GOARCH=$(ARCH) $(GO_BUILD) -o out/image/$(ARCH)/manager ./cmd/manager
	rm -rf out/image/$(ARCH)/agents && cp -R out/agents out/image/$(ARCH)/agents
	docker build --platform linux/$(ARCH) --tag $(IMAGE):$(VERSION) --file hack/image/Dockerfile out/image/$(ARCH)

.PHONY: generate
generate: ## Generate deepcopy code, CRDs, RBAC roles and webhook configurations.
	@echo "==> Generating code and manifests"
	$(CONTROLLER_GEN) object crd:crdVersions=v1 paths=./api/... output:crd:artifacts:config=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=manager-role webhook paths=./internal/... paths=./cmd/... \
		output:rbac:artifacts:config=config/rbac output:webhook:artifacts:config=config/webhook

.PHONY: verify
verify: ## Check that generated files and go.mod files are up to date and files are small.
	@hack/verify.sh

.PHONY: lint
lint: ## Run golangci-lint.
	@echo "==> Linting"
	$(GOLANGCI_LINT) run --timeout 30m ./...
	cd test/simulator && $(GOLANGCI_LINT) run --timeout 30m ./...

.PHONY: test
test: ## Run unit tests and tests against a real kube-apiserver. Needs no root.
	@hack/test.sh $(TESTFLAGS)

.PHONY: test-embedded
test-embedded: ## Test the management cluster of plain processes. Needs no root.
	@echo "==> Testing the embedded management cluster"
	go test -tags embedded -count 1 -timeout 1h ./test/embedded ./test/bench/...

.PHONY: test-simulator
test-simulator: ## Test whole clusters on virtual hosts. Needs no root.
	@echo "==> Testing clusters on virtual hosts"
	cd test/simulator && go test -tags simulator -count 1 -timeout 1h ./...

# Both programs are built with the same flags as those of Kubernetes and Cluster API, so that what they share is compiled once.
QUICKSTART := cd test/simulator && CGO_ENABLED=0 go build -trimpath -o ../../$(BIN)/quickstart ./cmd/quickstart

.PHONY: quickstart
quickstart: ## See a cluster on virtual hosts, and its endpoint move. Needs no root.
	@echo "==> Building the quickstart"
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -tags simulation -o $(BIN)/simulation/manager ./cmd/manager
	@$(QUICKSTART)
	@$(BIN)/quickstart up --manager $(BIN)/simulation/manager

.PHONY: quickstart-down
quickstart-down: ## End the quickstart and remove all traces of it.
	@test -x $(BIN)/quickstart || { $(QUICKSTART); }
	@$(BIN)/quickstart down

.PHONY: embedded
embedded: ## Run a management cluster of plain processes until interrupted. Needs no root.
	go run ./test/embedded/cmd/embedded

# BENCHFLAGS are flags for benchmarks. With any, their figures are not for docs/benchmarks.md, and are printed only.
BENCHFLAGS ?=
BENCH := go run ./test/bench/cmd/bench $(if $(BENCHFLAGS),$(BENCHFLAGS),--document docs/benchmarks.md)
BENCHES := memory enrol storm claims plan failover clusters

.PHONY: bench $(BENCHES:%=bench-%)
bench: ## Measure everything of docs/benchmarks.md, and write it there. Needs no root.
	@echo "==> Measuring everything"
	$(BENCH)

$(BENCHES:%=bench-%): bench-%:
	@echo "==> Measuring $*"
	$(BENCH) $*

# GOBENCH names Go benchmarks of the hot paths; GOBENCHFLAGS are further flags for go test. benchstat reads what is printed.
GOBENCH ?= .
GOBENCHFLAGS ?= -count 6

.PHONY: bench-go
bench-go: ## Measure the hot paths of the manager, for benchstat. Needs no root.
	@go test -p 1 -run '^$$' -bench '$(GOBENCH)' -benchmem $(GOBENCHFLAGS) -timeout 2h \
		$$(grep -rl --include='*_test.go' '^func Benchmark' internal | xargs -n 1 dirname | sort -u | sed 's|^|./|')

# FUZZTIME is how long each fuzz target runs.
FUZZTIME ?= 60s

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME.
	@hack/fuzz.sh '$(FUZZTIME)'

.PHONY: threats
threats: ## Take each mitigation of docs/security.md away and see its test fail.
	@echo "==> Taking mitigations away, one at a time"
	go test -tags removals -count 1 -timeout 1h -run TestRemovals -v ./test/threats

.PHONY: lab-up
lab-up: release ## Start a lab: management cluster, hosts and a cluster on them (needs root).
	go run ./test/lab/cmd/lab up

.PHONY: lab-down
lab-down: ## Remove the lab.
	go run ./test/lab/cmd/lab down

.PHONY: test-e2e
test-e2e: release ## Run the end-to-end tests on a lab (needs root); E2E_LABELS filters.
	@echo "==> Running end-to-end tests$(if $(E2E_LABELS), labelled $(E2E_LABELS))"
	go test -tags e2e -count 1 -timeout 4h ./test/e2e/... -v -ginkgo.v -ginkgo.timeout 4h -ginkgo.label-filter='$(E2E_LABELS)'

.PHONY: release
release: ## Write what clusterctl needs into out/release/VERSION.
	@echo "==> Writing $(RELEASE_DIR)"
	@VERSION='$(VERSION)' IMAGE='$(IMAGE)' KUSTOMIZE='$(KUSTOMIZE)' hack/release.sh '$(RELEASE_DIR)'

.PHONY: ci
ci: ## Run everything that a change has to pass.
	@$(MAKE) --no-print-directory verify
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-embedded
	@$(MAKE) --no-print-directory test-simulator
	@$(MAKE) --no-print-directory test-e2e E2E_LABELS=smoke
	@echo "==> Everything passed"
