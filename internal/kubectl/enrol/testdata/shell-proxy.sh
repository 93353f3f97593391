#!/bin/sh
# Installs the Elemental agent on this host, as root, and enrols the host by the
# ElementalRegistration sites/berlin. It contains a token that is valid until
# 2026-05-05T12:00:00Z: keep it secret. A script that was cut off does nothing.

set -eu

main() {
	umask 077
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
	cat >"$folder/ca.pem" <<'END_OF_CA'
-----BEGIN CERTIFICATE-----
MIIB
-----END CERTIFICATE-----
END_OF_CA
	cat >"$folder/config.yaml" <<'END_OF_CONFIGURATION'
servers:
- https://agents.example.com:8443
token: some-token
trustBundle: |
  -----BEGIN CERTIFICATE-----
  MIIB
  -----END CERTIFICATE-----
END_OF_CONFIGURATION
	command -v curl >/dev/null || {
		echo "curl is missing: install it first" >&2
		exit 1
	}
	export HTTPS_PROXY='http://proxy.example.com:3128'
	export NO_PROXY='10.0.0.0/8,.site'
	curl --fail --silent --show-error --proto '=https' --tlsv1.3 --cacert "$folder/ca.pem" --capath /dev/null \
		--retry 10 --retry-delay 5 --connect-timeout 10 --max-filesize 1048576 --output "$folder/install.sh" 'https://agents.example.com:8443/v1/install'
	sh "$folder/install.sh" --server 'https://agents.example.com:8443' --https-proxy 'http://proxy.example.com:3128' --no-proxy '10.0.0.0/8,.site' --ca "$folder/ca.pem" --config "$folder/config.yaml"
}

main
