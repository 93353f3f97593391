#!/bin/sh
# Installs the Elemental agent on this host and starts it. If the agent's package is installed, it is used.
#
#   sh install.sh --server URL --ca FILE --config FILE [--https-proxy URL] [--no-proxy LIST]
#
# `kubectl elemental enrol` prints the complete command. Everything is in functions, and the
# last line calls them: a script that was cut off does nothing.

set -eu

fail() {
	echo "elemental-agent was not installed: $*" >&2
	exit 1
}

# digest prints the SHA-256 of the agent for an architecture.
digest() {
	case $1 in
{{- range . }}
	{{ .Architecture }}) echo {{ .SHA256 }} ;;
{{- end }}
	*) fail "the manager serves no agent for $1" ;;
	esac
}

architecture() {
	case $(uname -m) in
	x86_64 | amd64) echo amd64 ;;
	aarch64 | arm64) echo arm64 ;;
	*) fail "there is no agent for $(uname -m)" ;;
	esac
}

# folder prints where programs are installed. /usr/local cannot be written on some systems.
folder() {
	for candidate in /usr/local/bin /opt/bin; do
		if mkdir -p "$root$candidate" 2>/dev/null && [ -w "$root$candidate" ]; then
			echo "$candidate"
			return
		fi
	done
	fail "neither /usr/local/bin nor /opt/bin can be written"
}

# download writes the agent to a file and checks it. Only the given CA is trusted. The manager
# ends a connection without a key after two minutes; the download then continues.
download() {
	sha256=$(digest "$1")
	rm -f "$2"
	attempts=20
	while status=0; do
		curl --fail --silent --show-error --proto '=https' --tlsv1.3 --cacert "$ca" --capath /dev/null \
			--retry 10 --retry-delay 5 --connect-timeout 10 --max-filesize 134217728 \
			--continue-at - --output "$2" "$server/v1/install/agent?arch=$1" || status=$?
		case $status in
		0) break ;;
		16 | 18 | 55 | 56 | 92) attempts=$((attempts - 1)) ;; # the connection was lost
		*) attempts=0 ;;
		esac
		[ "$attempts" -gt 0 ] || fail "the agent could not be downloaded from $server"
	done
	echo "$sha256  $2" | sha256sum -c - >/dev/null 2>&1 ||
		fail "the download has another SHA-256 than $sha256; run the command again"
	chmod 0755 "$2"
}

# setting sets a variable in the environment of the agent's unit.
setting() {
	file=$root/etc/default/elemental-agent
	mkdir -p "${file%/*}"
	touch "$file"
	rm -f "$file.new"
	(
		# The URL of a proxy may have a password.
		umask 077
		grep -v "^$1=" "$file" >"$file.new" || true
		echo "$1=$2" >>"$file.new"
	)
	mv -f "$file.new" "$file"
}

# install_agent installs the agent and its unit.
install_agent() {
	program=$(folder)/elemental-agent
	architecture=$(architecture)
	download "$architecture" "$root$program.new"
	mv -f "$root$program.new" "$root$program"
	unit=$root/etc/systemd/system/elemental-agent.service
	mkdir -p "${unit%/*}"
	"$root$program" unit --program "$program" >"$unit.new" || fail "the agent does not run on this host"
	chmod 0644 "$unit.new"
	mv -f "$unit.new" "$unit"
}

# configure installs the configuration, which has a token.
configure() {
	mkdir -p "${installed%/*}"
	rm -f "$installed.new"
	(
		umask 077
		cat "$configuration" >"$installed.new"
	)
	mv -f "$installed.new" "$installed"
}

main() {
	umask 022
	# root is blank, except in tests.
	root=${ELEMENTAL_ROOT-}
	server='' ca='' configuration='' https_proxy_url='' no_proxy_list=''
	while [ $# -gt 0 ]; do
		[ $# -gt 1 ] || fail "$1 needs a value"
		case $1 in
		--server) server=${2%/} ;;
		--ca) ca=$2 ;;
		--config) configuration=$2 ;;
		--https-proxy) https_proxy_url=$2 ;;
		--no-proxy) no_proxy_list=$2 ;;
		*) fail "unknown option $1" ;;
		esac
		shift 2
	done
	[ -n "$server" ] && [ -n "$ca" ] && [ -n "$configuration" ] || fail "--server, --ca and --config are needed"
	[ "$(id -u)" = 0 ] || fail "it takes root"
	for program in curl sha256sum systemctl; do
		command -v "$program" >/dev/null || fail "$program is missing"
	done
	packaged=$root/usr/bin/elemental-agent
	if [ -e "$packaged" ]; then
		[ ! -e "$root/etc/systemd/system/elemental-agent.service" ] ||
			fail "the package is installed, and an agent by hand: remove /etc/systemd/system/elemental-agent.service and its program"
		"$packaged" version >/dev/null || fail "the agent of the package does not run on this host"
	fi
	installed=$root/etc/elemental/agent/config.yaml
	[ ! -e "$installed" ] || [ "$(sha256sum <"$configuration")" = "$(sha256sum <"$installed")" ] ||
		fail "this host has a configuration, /etc/elemental/agent/config.yaml: remove it to enrol the host anew"

	if [ -n "$https_proxy_url" ]; then
		setting HTTPS_PROXY "$https_proxy_url"
		export HTTPS_PROXY="$https_proxy_url"
	fi
	if [ -n "$no_proxy_list" ]; then
		setting NO_PROXY "$no_proxy_list"
		export NO_PROXY="$no_proxy_list"
	fi

	[ -e "$packaged" ] || install_agent
	configure
	systemctl daemon-reload
	systemctl enable elemental-agent.service
	systemctl restart elemental-agent.service
	echo "elemental-agent is installed and enrols this host: elemental-agent status"
}

main "$@"
