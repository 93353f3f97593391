#!/bin/bash
# Prints spec.agent of an ElementalRegistration: that pins the version given, with
# the agents in the folder given, named elemental-agent-linux-ARCHITECTURE.
set -o errexit -o nounset -o pipefail

version=$1
folder=$2

printf 'agent:\n  version: %s\n  binaries:\n' "$version"
for file in "$folder"/elemental-agent-linux-*; do
	sum=$(sha256sum "$file")
	printf '    - architecture: %s\n      sha256: %s\n' "${file##*-}" "${sum%% *}"
done
