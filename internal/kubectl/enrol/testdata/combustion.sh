#!/bin/sh
# combustion:
# Enrols the host by the ElementalRegistration sites/berlin when it boots. It
# contains a token that is valid until 2026-05-05T12:00:00Z.

set -eu

main() {
	mkdir -p /etc/elemental
	rm -f /etc/elemental/enrol.sh
	(
		umask 077
		cat >/etc/elemental/enrol.sh <<'END_OF_SCRIPT'
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
	curl --fail --silent --show-error --proto '=https' --tlsv1.3 --cacert "$folder/ca.pem" --capath /dev/null \
		--retry 10 --retry-delay 5 --connect-timeout 10 --max-filesize 1048576 --output "$folder/install.sh" 'https://agents.example.com:8443/v1/install'
	sh "$folder/install.sh" --server 'https://agents.example.com:8443' --ca "$folder/ca.pem" --config "$folder/config.yaml"
}

main
END_OF_SCRIPT
	)
	cat >/etc/systemd/system/elemental-enrol.service <<'END_OF_UNIT'
[Unit]
Description=Installation of the Elemental agent
Wants=network-online.target
After=network-online.target
ConditionPathExists=/etc/elemental/enrol.sh

[Service]
Type=oneshot
ExecStart=/bin/sh /etc/elemental/enrol.sh
# The script contains a token.
ExecStartPost=/bin/rm -f /etc/elemental/enrol.sh
Restart=on-failure
RestartSec=30

[Install]
WantedBy=multi-user.target
END_OF_UNIT
	systemctl enable elemental-enrol.service
}

main
