#!/bin/bash
# in-memory.sh COMMAND...  runs a command whose temporary files are in memory, if there is enough of it.
#
# Tests of the agent write documents and sync them, thousands of times for all moments at which the power may fail.
# On a slow disk that takes most of their time, and proves nothing, because no test cuts the power of a real disk.
# What go builds stays on the disk. TMPDIR and GOTMPDIR have the usual meaning: if one is set, nothing is changed.
set -o errexit -o nounset -o pipefail

memory=/dev/shm
# The test suites need less than 2 GiB at a time.
needed=$((6 << 20)) # KiB

# is_usable says whether programs can be written to a folder and run there, and whether it is memory and large enough.
is_usable() {
	[[ $(stat --file-system --format=%T "$1" 2>/dev/null) == tmpfs ]] || return 1
	(($(df --output=avail "$1" | tail --lines=1) >= needed)) || return 1
	(($(awk '/^MemAvailable:/ {print $2}' /proc/meminfo) >= needed)) || return 1
	local program
	program=$(mktemp --tmpdir="$1" 2>/dev/null) || return 1
	printf '#!/bin/sh\n' >"$program"
	chmod 0700 "$program"
	local status=0
	"$program" 2>/dev/null || status=$?
	rm "$program"
	return "$status"
}

if [[ -n ${TMPDIR-} || -n $(go env GOTMPDIR) ]] || ! is_usable "$memory"; then
	exec "$@"
fi
# Always the same folder: go test does not run again what has passed, unless its environment is another one.
TMPDIR=$memory/elemental-tests-$EUID
if ! mkdir --mode=0700 "$TMPDIR" 2>/dev/null && [[ -L $TMPDIR || ! -O $TMPDIR ]]; then
	unset TMPDIR # somebody else's
	exec "$@"
fi
# Of tests that were killed.
find "$TMPDIR" -mindepth 1 -maxdepth 1 -mmin +1440 -exec rm -rf {} +
# In the environment GOTMPDIR would be the folder of tests too.
settings=$(go env GOENV)
written=$(mktemp --tmpdir="$TMPDIR")
if [[ -r $settings ]]; then
	cat "$settings" >"$written"
fi
echo "GOTMPDIR=/tmp" >>"$written"
mv "$written" "$TMPDIR/go.env"
export TMPDIR GOENV=$TMPDIR/go.env
exec "$@"
