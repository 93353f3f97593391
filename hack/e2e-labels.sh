#!/bin/bash
# e2e-labels.sh list          lists the end-to-end scenarios with their labels.
# e2e-labels.sh check FILTER  fails, and lists the scenarios, if a Ginkgo label filter names an unknown label.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# scenarios prints a line per spec: its labels, its group and its name, separated by tabs.
scenarios() {
	awk '
		function text(line) { sub(/^[^"]*"/, "", line); sub(/".*/, "", line); return line }
		function labels(line) {
			if (!match(line, /Label\([^)]*\)/)) return ""
			line = substr(line, RSTART + 6, RLENGTH - 7)
			gsub(/[" ]/, "", line)
			return line
		}
		/^var _ = Describe\(/ { group = text($0); inherited = labels($0) }
		/^\tIt\(/ {
			own = labels($0)
			print inherited (inherited != "" && own != "" ? "," : "") own "\t" group "\t" text($0)
		}
	' test/suite/e2e/*_test.go | sort
}

list() {
	echo "Scenarios, by label. E2E_FOCUS takes a part of a name, as a regular expression."
	scenarios | awk -F '\t' '{ printf "  %-16s %s %s\n", $1, $2, $3 }'
}

if [[ $1 == list ]]; then
	list
	exit
fi
filter=$2
# Regular expressions (/.../) and sets (key: ...) are left to Ginkgo.
if [[ -z $filter || $filter == *[/:]* ]]; then
	exit
fi
known=$(scenarios | cut -f 1 | tr , '\n' | sort -u)
while read -r label; do
	if ! grep --quiet --line-regexp --fixed-strings -- "$label" <<<"$known"; then
		echo "No scenario has the label \"$label\"." >&2
		list >&2
		exit 1
	fi
done < <(grep --extended-regexp --only-matching '[^][:space:]()&|!,]+' <<<"$filter")
