package survey

import (
	"context"
	_ "embed" // for the script
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

//go:embed survey.sh
var script string

// Host is a host to survey, such as an engine.Host.
type Host interface {
	// ExecInput runs a program on the host as root and returns its output.
	ExecInput(ctx context.Context, stdin io.Reader, args ...string) (string, error)
}

// Survey is the state of a host: sorted lines by section.
type Survey map[string][]string

// Take surveys a host. It takes two to three seconds and leaves nothing on the host.
func Take(ctx context.Context, host Host) (Survey, error) {
	args := append([]string{"bash", "-s"}, slices.Sorted(maps.Keys(skipped()))...)
	out, err := host.ExecInput(ctx, strings.NewReader(script), args...)
	if err != nil {
		return nil, fmt.Errorf("surveying a host: %w", err)
	}
	survey, err := parse(out)
	if err != nil {
		return nil, fmt.Errorf("reading a survey: %w", err)
	}
	return survey, nil
}

// Diff returns the lines that were added (+) and removed (-) between two surveys of a host, by
// section.
func Diff(before, after Survey) []string {
	var lines []string
	sections := maps.Clone(before)
	maps.Copy(sections, after)
	for _, section := range slices.Sorted(maps.Keys(sections)) {
		for _, line := range without(before[section], after[section]) {
			lines = append(lines, section+" - "+line)
		}
		for _, line := range without(after[section], before[section]) {
			lines = append(lines, section+" + "+line)
		}
	}
	return lines
}

// without returns the lines of a that are missing in b. Repeated lines count separately.
func without(a, b []string) []string {
	count := map[string]int{}
	for _, line := range b {
		count[line]++
	}
	var left []string
	for _, line := range a {
		if count[line] > 0 {
			count[line]--
			continue
		}
		left = append(left, line)
	}
	return left
}

// parse reads the output of the script.
func parse(out string) (Survey, error) {
	raw := map[string][]string{}
	var section string
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if name, found := strings.CutPrefix(line, "== "); found {
			section = name
			raw[section] = nil
			continue
		}
		raw[section] = append(raw[section], line)
	}
	if section != "end" {
		return nil, errors.New("it is cut short")
	}
	delete(raw, "end")
	raw["processes"] = foreign(raw["processes"], raw["self"])
	delete(raw, "self")
	raw["files"] = hashed(raw["files"], raw["hashes"])
	delete(raw, "hashes")
	survey := Survey{}
	for section, lines := range raw {
		if len(lines) == 0 {
			return nil, fmt.Errorf("its section %s is empty", section)
		}
		survey[section] = normalised(section, lines)
	}
	return survey, nil
}

// foreign removes the survey's own processes and all process IDs.
func foreign(processes, self []string) []string {
	own := map[string]bool{}
	for _, pid := range self {
		own[strings.TrimSpace(pid)] = true
	}
	var lines []string
	for _, line := range processes {
		fields := strings.Fields(line)
		if len(fields) < 3 || own[fields[0]] || own[fields[1]] {
			continue
		}
		lines = append(lines, strings.Join(fields[2:], " "))
	}
	return lines
}

// hashed adds the hash of the content to each file.
func hashed(files, hashes []string) []string {
	byName := map[string]string{}
	for _, line := range hashes {
		if hash, name, found := strings.Cut(line, "  "); found {
			byName[name] = hash
		}
	}
	var lines []string
	for _, line := range files {
		attributes, target, _ := strings.Cut(line, "\t")
		fields := strings.SplitN(attributes, " ", 5)
		if len(fields) < 5 {
			lines = append(lines, line)
			continue
		}
		kind, mode, owner, size, name := fields[0], fields[1], fields[2], fields[3], fields[4]
		content := target
		if kind == "f" {
			content = size + " " + byName[name]
		}
		lines = append(lines, strings.TrimSpace(strings.Join([]string{name, kind, mode, owner, content}, " ")))
	}
	return lines
}

// rewriting removes parts of a line that differ from boot to boot or from survey to survey without
// being leftovers.
type rewriting struct {
	pattern *regexp.Regexp
	with    string
}

func rewritings() map[string][]rewriting {
	return map[string][]rewriting{
		// IDs of mounts, of devices of virtual file systems, and of peer groups.
		"mounts": {{regexp.MustCompile(`^\d+ \d+ \d+:\d+ `), ""}, {regexp.MustCompile(` (shared|master):\d+`), ""}},
		// Indexes of interfaces and of the other ends of pairs.
		"interfaces": {{regexp.MustCompile(`^\d+: `), ""}, {regexp.MustCompile(`@if\d+:`), ":"}, {regexp.MustCompile(` link-netnsid \d+`), ""}},
		"addresses":  {{regexp.MustCompile(`^\d+: `), ""}},
		// Dates and packet counters.
		"filter": {{regexp.MustCompile(` on \w{3} \w{3} .*$`), ""}, {regexp.MustCompile(`\[\d+:\d+\]`), ""}, {regexp.MustCompile(`counter packets \d+ bytes \d+`), "counter"}},
		"units":  {{regexp.MustCompile(`^(\S+\s+\S+\s+\S+\s+\S+) .*$`), "$1"}},
	}
}

func normalised(section string, lines []string) []string {
	var kept []string
	for _, line := range lines {
		for _, r := range rewritings()[section] {
			line = r.pattern.ReplaceAllString(line, r.with)
		}
		line = strings.Join(strings.Fields(line), " ")
		if line != "" && !allowed(section, line) {
			kept = append(kept, line)
		}
	}
	slices.Sort(kept)
	return kept
}

func allowed(section, line string) bool {
	return slices.ContainsFunc(allowances(), func(a allowance) bool {
		return a.section == section && a.pattern.MatchString(line)
	})
}
