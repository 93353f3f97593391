#!/bin/bash
# e2e-labels.sh list          lists the end-to-end scenarios with their labels.
# e2e-labels.sh check FILTER  fails, and lists the scenarios, if a Ginkgo label filter names an unknown label.
# e2e-labels.sh suites FILTER prints the folders of the suites in which a Ginkgo label filter may select scenarios.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly all=(test/suite/e2e test/suite/capi)

# scenarios SUITE... prints a line per spec: its labels, its group and its name, separated by tabs. A Context is a spec
# of Cluster API, which has the It.
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
		/^\t(It|Context)\(/ {
			own = labels($0)
			print inherited (inherited != "" && own != "" ? "," : "") own "\t" group "\t" text($0)
		}
	' $(printf '%s/*_test.go\n' "$@") | sort
}

list() {
	echo "Scenarios, by label. E2E_FOCUS takes a part of a name, as a regular expression."
	scenarios "${all[@]}" | awk -F '\t' '{ printf "  %-16s %s %s\n", $1, $2, $3 }'
}

# labels SUITE... prints the labels of specs, a line each.
labels() {
	scenarios "$@" | cut -f 1 | tr , '\n' | sort -u
}

# named FILTER prints the labels that a filter names, a line each. Regular expressions (/.../) and sets (key: ...) name
# none: they are left to Ginkgo.
named() {
	if [[ $1 != *[/:]* ]]; then
		grep --extended-regexp --only-matching '[^][:space:]()&|!,]+' <<<"$1" || true
	fi
}

# has LABEL SUITE... reports whether a spec of some suites has a label.
has() {
	grep --quiet --line-regexp --fixed-strings -- "$1" <<<"$(labels "${@:2}")"
}

check() {
	local label
	while read -r label; do
		if ! has "$label" "${all[@]}"; then
			echo "No scenario has the label \"$label\"." >&2
			list >&2
			exit 1
		fi
	done < <(named "$1")
}

suites() {
	local suite label
	for suite in "${all[@]}"; do
		if [[ -z $1 || $1 == *[/:!]* ]]; then
			echo "$suite"
			continue
		fi
		for label in $(named "$1"); do
			if has "$label" "$suite"; then
				echo "$suite"
				break
			fi
		done
	done
}

case $1 in
list) list ;;
check) check "$2" ;;
suites) suites "$2" ;;
esac
