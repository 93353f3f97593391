#!/bin/sh
# Installs the Elemental agent on this host, as root, and enrols the host by the
# ElementalRegistration {{ .Namespace }}/{{ .Registration }}. It contains a token that is valid until
# {{ .Expires }}: keep it secret. A script that was cut off does nothing.

set -eu

main() {
	umask 077
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	cat >"$folder/ca.pem" <<'END_OF_CA'
{{ .CA }}END_OF_CA
	cat >"$folder/config.yaml" <<'END_OF_CONFIGURATION'
{{ .Configuration }}END_OF_CONFIGURATION
	command -v curl >/dev/null || {
		echo "curl is missing: install it first" >&2
		exit 1
	}
{{ .Proxies }}	curl --fail --silent --show-error --proto '=https' --tlsv1.3 --cacert "$folder/ca.pem" --capath /dev/null \
		--retry 10 --retry-delay 5 --connect-timeout 10 --max-filesize 1048576 --output "$folder/install.sh" {{ .URL }}
	sh "$folder/install.sh" {{ .Options }} --ca "$folder/ca.pem" --config "$folder/config.yaml"
}

main
