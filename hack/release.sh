#!/bin/bash
# Writes a clusterctl release into the folder given: $VERSION and $IMAGE name it.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=$1
placeholder='image: controller:latest'

if ! [[ $VERSION =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "VERSION must be a semantic version with a v, such as v0.1.0, not \"$VERSION\"" >&2
	exit 1
fi
if ! grep --quiet --fixed-strings "$placeholder" config/manager/manager.yaml; then
	echo "config/manager/manager.yaml has no \"$placeholder\" to replace" >&2
	exit 1
fi

mkdir -p "$folder"
components=$($KUSTOMIZE build config/default)
printf '%s\n' "${components//"$placeholder"/"image: $IMAGE:$VERSION"}" >"$folder/infrastructure-components.yaml"
cp metadata.yaml "$folder/metadata.yaml"
cp templates/*.yaml "$folder/"
