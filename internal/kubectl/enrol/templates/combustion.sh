#!/bin/sh
# combustion:
# Enrols the host by the ElementalRegistration {{ .Namespace }}/{{ .Registration }} when it boots. It
# contains a token that is valid until {{ .Expires }}.

set -eu

main() {
	mkdir -p /etc/elemental
	rm -f /etc/elemental/enrol.sh
	(
		umask 077
		cat >/etc/elemental/enrol.sh <<'END_OF_SCRIPT'
{{ .Script }}END_OF_SCRIPT
	)
	cat >/etc/systemd/system/elemental-enrol.service <<'END_OF_UNIT'
{{ .Unit }}END_OF_UNIT
	systemctl enable elemental-enrol.service
}

main
