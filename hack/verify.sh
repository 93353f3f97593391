#!/bin/bash
# Checks what a machine can check of the sources, and explains what to do.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Largest agent, in bytes: it travels over thin links.
largest=$((15 * 1024 * 1024))

failed=0
fail() {
	echo "$1" >&2
	failed=1
}

# state prints what differs from the last commit, content included.
state() {
	git diff HEAD
	git ls-files --others --exclude-standard -z | xargs --null --no-run-if-empty sha256sum
}

echo "==> Verifying that generated files are up to date"
before=$(state)
make --no-print-directory generate
after=$(state)
if [[ $before != "$after" ]]; then
	diff <(printf '%s\n' "$before") <(printf '%s\n' "$after") || true
	fail "Generated files were out of date, and now aren't: commit what make generate changed."
fi

echo "==> Verifying go.mod files"
while IFS= read -r gomod; do
	(cd "$(dirname "$gomod")" && go mod tidy -diff) || fail "Run go mod tidy in $(dirname "$gomod")."
done < <(git ls-files 'go.mod' '*/go.mod')

echo "==> Verifying sizes of files, packages and types, and words"
go run ./hack/structure || fail "See hack/structure for the limits and docs/glossary.md for the words."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

echo "==> Verifying that the agent is small"
foreign=$(go list -deps ./cmd/elemental-agent | grep -E '^(k8s\.io|sigs\.k8s\.io)/' || true)
if [[ -n $foreign ]]; then
	fail "The agent must not depend on Kubernetes' libraries, but has:"$'\n'"$foreign"
fi
if make --no-print-directory build BIN="$folder"; then
	size=$(wc -c <"$folder/elemental-agent")
	if ((size > largest)); then
		fail "The agent has $size bytes, more than $largest."
	fi
else
	fail "make build failed."
fi

echo "==> Verifying that the files for clusterctl can be written"
make --no-print-directory manifests MANIFESTS_DIR="$folder" || fail "make manifests failed."

exit "$failed"
