#!/bin/bash
# Runs all tests of the main module and of the simulator's. Run as root they also use loop devices and
# network namespaces. Arguments go to go test.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v swtpm >/dev/null; then
	if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
		echo "The tests use a software TPM: install swtpm" >&2
		exit 1
	fi
	echo "==> Installing swtpm"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	apt-get install -qq --yes --no-install-recommends swtpm
fi

race=(-race)
if ! command -v "$(go env CC)" >/dev/null; then
	echo "==> There is no C compiler: testing without the race detector"
	race=()
	export CGO_ENABLED=0
else
	export CGO_ENABLED=1
fi

echo "==> Building etcd and kube-apiserver for tests, if they are not cached"
# Without cgo, as the lab builds them: so they are built once.
KUBEBUILDER_ASSETS=$(CGO_ENABLED=0 go run ./test/tools etcd kube-apiserver)
export KUBEBUILDER_ASSETS

echo "==> Testing"
go test "${race[@]}" -timeout 20m "$@" ./...
# What only the manager of virtual hosts does.
go test "${race[@]}" -tags simulation -run '^TestVirtualHosts' "$@" ./internal/address
(cd test/simulator && go test "${race[@]}" -timeout 20m "$@" ./...)
