package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// retired is one line of retired.txt: a pattern, where it applies, and what to
// write instead.
type retired struct {
	pattern *regexp.Regexp
	goOnly  bool
	instead string
}

// parseRetired reads lines of the form
//
//	identifier: name => replacement
//	phrase: words => replacement
//
// Identifiers are matched as whole words in Go code. Phrases are matched in Go
// files, scripts and documents, without regard to case. Blank lines and lines that
// begin with # are ignored.
func parseRetired(list string) ([]retired, error) {
	var rules []retired
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		kind, rest, ok := strings.Cut(line, ": ")
		word, instead, hasInstead := strings.Cut(rest, " => ")
		if !ok || !hasInstead || word == "" {
			return nil, fmt.Errorf("line %q is not of the form \"kind: word => replacement\"", line)
		}
		rule := retired{instead: instead}
		switch kind {
		case "identifier":
			rule.pattern, rule.goOnly = regexp.MustCompile(`\b`+regexp.QuoteMeta(word)+`\b`), true
		case "phrase":
			rule.pattern = regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(regexp.QuoteMeta(word), " ", `[\s/#*]+`) + `\b`)
		default:
			return nil, fmt.Errorf("line %q has an unknown kind", line)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// retiredIn returns a violation for each retired word in a file.
func retiredIn(rules []retired, name, content string) []string {
	isGo := strings.HasSuffix(name, ".go")
	// This program's own list and tests name retired words.
	if strings.HasPrefix(name, "hack/structure/") {
		return nil
	}
	readable := isGo || slices.Contains([]string{".md", ".sh", ".yaml", ".yml"}, path.Ext(name)) || name == "Makefile"
	if !readable {
		return nil
	}
	var out []string
	for _, rule := range rules {
		if rule.goOnly && !isGo {
			continue
		}
		for _, at := range rule.pattern.FindAllStringIndex(content, -1) {
			out = append(out, fmt.Sprintf("%s:%d: %q is retired: write %s",
				name, 1+strings.Count(content[:at[0]], "\n"), content[at[0]:at[1]], rule.instead))
		}
	}
	return out
}
