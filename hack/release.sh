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
# components writes a kustomization with the image in place.
components() {
	local text
	text=$($KUSTOMIZE build "$1")
	printf '%s\n' "${text//"$placeholder"/"image: $IMAGE:$VERSION"}"
}
components config/default >"$folder/infrastructure-components.yaml"
components config/namespaced >"$folder/infrastructure-components-namespaced.yaml"
cp config/namespaced/watched_namespace.yaml "$folder/watched-namespace.yaml"
cp config/networkpolicy/network_policy.yaml "$folder/network-policy.yaml"
cp metadata.yaml "$folder/metadata.yaml"
cp templates/*.yaml "$folder/"
