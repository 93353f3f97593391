package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed retired.txt
var retiredList string

// maxViolations limits how many violations of each check are printed.
const maxViolations = 40

func main() {
	violations, err := run(context.Background(), ".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(2)
	}
	for _, v := range violations {
		fmt.Fprintln(os.Stderr, v)
	}
	if len(violations) > 0 {
		os.Exit(1)
	}
}

// run checks the files that git tracks below root.
func run(ctx context.Context, root string) ([]string, error) {
	rules, err := parseRetired(retiredList)
	if err != nil {
		return nil, fmt.Errorf("reading retired.txt: %w", err)
	}
	names, err := trackedFiles(ctx, root)
	if err != nil {
		return nil, err
	}
	sizes, words := newSizes(), []string(nil)
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, but not committed yet
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if len(content) > maxFileBytes {
			sizes.files = append(sizes.files, fmt.Sprintf("%s has %d bytes, more than %d: is it a built program or a download?", name, len(content), maxFileBytes))
			continue
		}
		if strings.HasSuffix(name, ".go") {
			if err := sizes.add(name, content); err != nil {
				return nil, err
			}
		}
		words = append(words, retiredIn(rules, name, string(content))...)
	}
	return append(atMost(sizes.violations()), atMost(words)...), nil
}

func trackedFiles(ctx context.Context, root string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing tracked files: %w", err)
	}
	names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	slices.Sort(names)
	return names, nil
}

func atMost(violations []string) []string {
	if more := len(violations) - maxViolations; more > 0 {
		return append(violations[:maxViolations:maxViolations], fmt.Sprintf("and %d more", more))
	}
	return violations
}
