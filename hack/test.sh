#!/bin/bash
# Runs all tests of the main module that need no root. Arguments go to go test.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

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
