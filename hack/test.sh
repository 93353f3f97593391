#!/bin/bash
# test.sh [FLAGS]       runs all tests of the main module and of those in test/harness and hack/release; long searches try few cases.
# test.sh long [FLAGS]  runs the packages that have long searches, with all cases.
#
# Flags go to go test. Tests of the TPM need swtpm. Without it they do not run; with REQUIRE_SWTPM=true they fail.
# Tests that erase disks use loop devices, which needs root and losetup. Otherwise they use files, and what a kernel
# does is not tested; with REQUIRE_LOOP_DEVICES=true they fail. Four tests need namespaces of networks or
# mounts, which containers may forbid; with REQUIRE_NETWORK_NAMESPACES=true they fail without. One of them needs nft
# and ip too; with REQUIRE_NFTABLES=true it fails without. The test of the documented configuration of HAProxy
# needs haproxy; with REQUIRE_HAPROXY=true it fails without.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

long=false
if [[ ${1-} == long ]]; then
	long=true
	shift
fi

# not_run says which tests will not run here.
not_run() {
	if ! command -v swtpm >/dev/null; then
		echo "==> NOT RUN: tests of keys in a TPM. There is no swtpm: install Debian's package swtpm to run them" >&2
	fi
	if ! command -v haproxy >/dev/null; then
		echo "==> NOT RUN: the test of the documented configuration of HAProxy. Install Debian's package haproxy to run it" >&2
	fi
	if ((EUID != 0)); then
		echo "==> NOT RUN on disks: tests that erase disks. They use files instead: run as root to use loop devices" >&2
		echo "==> NOT RUN: the test of the benchmarks' slow link. Its network namespaces need root" >&2
	elif ! losetup --find >/dev/null 2>&1; then
		echo "==> NOT RUN on disks: tests that erase disks. They use files instead: losetup finds no loop device here" >&2
	fi
	if ! unshare --map-root-user --net true 2>/dev/null; then
		echo "==> NOT RUN: the test that watches a kernel's addresses. Network namespaces are forbidden here" >&2
		echo "==> NOT RUN: the test that redirects connections in a kernel. Network namespaces are forbidden here" >&2
	elif ! command -v nft >/dev/null || ! command -v ip >/dev/null; then
		echo "==> NOT RUN: the test that redirects connections in a kernel. Install Debian's packages nftables and iproute2 to run it" >&2
	fi
	if ! unshare --map-root-user --mount true 2>/dev/null; then
		echo "==> NOT RUN on a mount: the test of hosts with a read-only /usr. It uses a model instead: namespaces are forbidden here" >&2
	fi
}
not_run
if [[ ${REQUIRE_SWTPM-} == true ]] && ! command -v swtpm >/dev/null; then
	exit 1
fi

mode=(-race)
if ! command -v "$(go env CC)" >/dev/null; then
	echo "==> There is no C compiler: testing without the race detector"
	# With the flags of the programs that are built for tests and by tests: what they share is compiled once.
	mode=(-trimpath)
	export CGO_ENABLED=0
else
	export CGO_ENABLED=1
fi

echo "==> Building etcd, etcdutl and kube-apiserver for tests, if they are not cached"
# Without cgo, as the lab builds them: so they are built once.
KUBEBUILDER_ASSETS=$(CGO_ENABLED=0 go run -trimpath ./test/tools etcd etcdutl kube-apiserver)
export KUBEBUILDER_ASSETS

if [[ $long == true ]]; then
	mapfile -t packages < <(grep --recursive --files-with-matches --include='*_test.go' -E 'testing\.Short\(\)|\.Crashes\(' cmd internal test/suite |
		xargs -n 1 dirname | sort -u | sed 's|^|./|')
	echo "==> Testing ${packages[*]} with all cases"
	go test "${mode[@]}" -timeout 30m "$@" "${packages[@]}"
	exit
fi

# go vet is part of golangci-lint (make lint), and debug information is for debuggers: both
# only cost time here.
flags=("${mode[@]}" -vet=off -ldflags=-w)
# Tests wait for programs much of the time: one package more than there are cores keeps these busy.
flags+=(-p "$(($(nproc) + 1))")
# Tests and their kube-apiservers are small, and collecting their garbage half as often saves a tenth of the time.
export GOGC=${GOGC-200}

echo "==> Testing"
# A program with the race detector waits a second before it exits, for races of what still
# runs: minutes for a hundred packages and the programs that they start. With all cases it
# does wait.
export GORACE="atexit_sleep_ms=0 ${GORACE-}"
# The two slowest packages begin first: in alphabetical order one of them would run last, alone.
go test -short "${flags[@]}" -timeout 20m "$@" ./internal/controller/cluster ./internal/server ./...
# What only the manager of virtual hosts does.
go test -short "${flags[@]}" -tags simulation -run '^TestVirtualHosts' "$@" ./internal/address
(cd test/harness/simulator && go test -short "${flags[@]}" -timeout 20m "$@" ./...)
# It is a tool: without the race detector, so that its libraries are compiled once.
(cd hack/release && CGO_ENABLED=0 go test -short -trimpath -vet=off -timeout 20m "$@" ./...)
# Not with the race detector: remotedialer has data races. So it needs no cgo, and has the flags of programs.
(cd test/harness/carriers && CGO_ENABLED=0 go test -short -trimpath -vet=off -ldflags=-w -timeout 20m "$@" ./...)
not_run
