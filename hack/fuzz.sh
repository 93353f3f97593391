#!/bin/bash
# Runs every fuzz target of the main module for the time given, one by one.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Go otherwise spends up to a minute on minimizing one input.
minimize=1s

while IFS=: read -r file target; do
	package=./$(dirname "$file")
	echo "==> Fuzzing $package $target for $1"
	go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime "$minimize"
done < <(git grep --extended-regexp --only-matching '^func Fuzz[A-Za-z0-9]+' -- '*_test.go' | sed 's/:func /:/')
