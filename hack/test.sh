#!/bin/bash
# test.sh [FLAGS]       runs all tests of the main module and of those in test/harness and hack/release, without the race
#                       detector; long searches try few cases. People run it between two edits.
# test.sh long [FLAGS]  runs the same tests with the race detector, and long searches with all cases. CI runs it.
#
# Flags go to go test. Tests of the TPM need swtpm. Without it they do not run; with REQUIRE_SWTPM=true they fail.
# Tests that erase disks use loop devices, which needs root and losetup. Otherwise they use files, and what a kernel
# does is not tested; with REQUIRE_LOOP_DEVICES=true they fail. Four tests need namespaces of networks or
# mounts, which containers may forbid; with REQUIRE_NETWORK_NAMESPACES=true they fail without. One of them needs nft
# and ip too; with REQUIRE_NFTABLES=true it fails without. The test of the documented configuration of HAProxy
# needs haproxy; with REQUIRE_HAPROXY=true it fails without. The race detector needs a C compiler; with
# REQUIRE_RACE_DETECTOR=true long tests fail without.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# haproxy and nft are in folders that the PATH of an ordinary user lacks.
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

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

# Programs for tests and tests without the race detector have these flags: what they share is compiled once.
flags=(-trimpath)
export CGO_ENABLED=0

echo "==> Building etcd, etcdutl, kube-apiserver and versitygw for tests, if they are not cached"
KUBEBUILDER_ASSETS=$(go run -trimpath ./test/tools etcd etcdutl kube-apiserver versitygw)
export KUBEBUILDER_ASSETS

if [[ $long == false ]]; then
	cases=(-short)
elif command -v "$(go env CC)" >/dev/null; then
	cases=()
	# The race detector needs cgo. Programs that tests build are those that the other settings make.
	flags+=(-race -exec "env CGO_ENABLED=0")
	export CGO_ENABLED=1
elif [[ ${REQUIRE_RACE_DETECTOR-} == true ]]; then
	echo "==> There is no C compiler, which the race detector needs: install Debian's packages gcc and libc6-dev" >&2
	exit 1
else
	echo "==> NOT RUN: the race detector. There is no C compiler: install Debian's packages gcc and libc6-dev" >&2
	cases=()
fi

# go vet is part of golangci-lint (make lint), and debug information is for debuggers: both
# only cost time here.
flags+=(-vet=off -ldflags=-w)
# Tests wait for programs much of the time: one package more than there are cores keeps these busy.
flags+=(-p "$(($(nproc) + 1))")
# Tests and their kube-apiservers are small, and collecting their garbage half as often saves a tenth of the time.
export GOGC=${GOGC-200}

# The slowest packages begin first: in alphabetical order one of them would run last, alone.
packages=(./internal/controller/cluster ./internal/server ./...)
if [[ $long == true ]]; then
	mapfile -t searches < <(grep --recursive --files-with-matches --include='*_test.go' -E 'testing\.Short\(\)|\.Crashes\(' cmd internal test/suite |
		xargs -n 1 dirname | sort -u | sed 's|^|./|')
	echo "==> Testing ${searches[*]} with all cases"
	go test "${flags[@]}" -timeout 30m "$@" "${searches[@]}"
	mapfile -t packages < <(comm -23 <(go list ./... | sort) <(go list "${searches[@]}" | sort))
	# A program with the race detector waits a second before it exits, for races of what still
	# runs: minutes for a hundred packages and the programs that they start. Those with long
	# searches did wait.
	export GORACE="atexit_sleep_ms=0 ${GORACE-}"
fi

echo "==> Testing"
go test "${cases[@]}" "${flags[@]}" -timeout 20m "$@" "${packages[@]}"
# What only the manager of virtual hosts does.
go test "${cases[@]}" "${flags[@]}" -tags simulation -run '^TestVirtualHosts' "$@" ./internal/address
(cd test/harness/simulator && go test "${cases[@]}" "${flags[@]}" -timeout 20m "$@" ./...)
# It is a tool: without the race detector, so that its libraries are compiled once.
(cd hack/release && CGO_ENABLED=0 go test "${cases[@]}" -trimpath -vet=off -timeout 20m "$@" ./...)
# Not with the race detector: remotedialer has data races.
(cd test/harness/carriers && CGO_ENABLED=0 go test "${cases[@]}" -trimpath -vet=off -ldflags=-w -timeout 20m "$@" ./...)
not_run
