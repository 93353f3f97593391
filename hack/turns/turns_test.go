package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// noon is a time on a day on which groups of one, two or three begin at their first turn.
var noon = time.Date(1970, time.January, 7, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) pass { return pass{At: noon.Add(-d), Took: 5 * time.Minute} }

// group returns a group of turns that take ten minutes. The name is the command.
func group(names ...string) []turn {
	var turns []turn
	for _, name := range names {
		turns = append(turns, turn{name: name, takes: 10 * time.Minute, command: []string{name}})
	}
	return turns
}

func names(groups [][]turn) string {
	var all []string
	for _, g := range groups {
		var members []string
		for _, t := range g {
			members = append(members, t.name)
		}
		all = append(all, strings.Join(members, " "))
	}
	return strings.Join(all, " | ")
}

func TestOrder(t *testing.T) {
	groups := [][]turn{group("a1", "a2", "a3"), group("b1", "b2")}
	for name, test := range map[string]struct {
		passed record
		now    time.Time
		want   string
	}{
		"without a record":           {now: noon, want: "a1 a2 a3 | b1 b2"},
		"a day later":                {now: noon.Add(24 * time.Hour), want: "b2 b1 | a2 a3 a1"},
		"two days later":             {now: noon.Add(48 * time.Hour), want: "a3 a1 a2 | b1 b2"},
		"never is longest ago":       {now: noon, passed: record{"a1": ago(time.Hour)}, want: "b1 b2 | a2 a3 a1"},
		"longest ago":                {now: noon, passed: record{"a1": ago(1), "a2": ago(3), "a3": ago(2), "b1": ago(4), "b2": ago(5)}, want: "b2 b1 | a2 a3 a1"},
		"group that ran longest ago": {now: noon, passed: record{"a1": ago(1), "b1": ago(2), "b2": ago(3)}, want: "b2 b1 | a2 a3 a1"},
		"turn that is gone":          {now: noon, passed: record{"c": ago(1)}, want: "a1 a2 a3 | b1 b2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := names(order(groups, test.passed, test.now)); got != test.want {
				t.Errorf("order: %s, want %s", got, test.want)
			}
			if got := names(groups); got != "a1 a2 a3 | b1 b2" {
				t.Errorf("the groups became %s", got)
			}
		})
	}
}

// simulated is a machine on which turns take the durations in takes, or ten minutes, and fail if they are in failing.
type simulated struct {
	now     time.Time
	takes   map[string]time.Duration
	failing []string
	ran     []string
}

func (s *simulated) execute(_ context.Context, command []string, limit time.Duration) error {
	takes, found := s.takes[command[0]]
	if !found {
		takes = 10 * time.Minute
	}
	s.ran = append(s.ran, command[0])
	s.now = s.now.Add(min(takes, limit))
	switch {
	case takes > limit:
		return errStopped
	case slices.Contains(s.failing, command[0]):
		return errors.New("exit status 1")
	}
	return nil
}

func TestRun(t *testing.T) {
	groups := [][]turn{group("a1", "a2"), group("b1"), group("c1")}
	for name, test := range map[string]struct {
		machine simulated
		passed  record
		time    time.Duration
		ran     string
		failed  string
		notRun  string // first words of what is said about turns that the time did not allow
		records string // what passed in this run
	}{
		"enough time":               {time: time.Hour, ran: "a1 b1 c1", records: "a1 b1 c1"},
		"time for two":              {time: 30 * time.Minute, ran: "a1 b1", notRun: "c1, no time: it takes", records: "a1 b1"},
		"no time":                   {time: 0, notRun: "a1, no time: it takes; b1, no time: it takes; c1, no time: it takes"},
		"time that is over":         {time: -time.Minute, notRun: "a1, no time: it takes; b1, no time: it takes; c1, no time: it takes"},
		"time for clean-up is kept": {time: 11 * time.Minute, notRun: "a1, no time: it takes; b1, no time: it takes; c1, no time: it takes"},
		"a failure does not stop":   {time: time.Hour, machine: simulated{failing: []string{"a1"}}, ran: "a1 b1 c1", failed: "a1", records: "b1 c1"},
		"a record corrects estimates": {
			time: 20 * time.Minute, passed: record{"b1": ago(9), "c1": ago(8)},
			machine: simulated{takes: map[string]time.Duration{"b1": 6 * time.Minute}},
			ran:     "a1 b1", notRun: "c1, no time: it takes", records: "a1 b1",
		},
		"the first that fits": {
			time: 12 * time.Minute, passed: record{"a1": pass{At: noon.Add(-2), Took: 15 * time.Minute}, "a2": ago(1), "b1": ago(0), "c1": ago(0)},
			machine: simulated{takes: map[string]time.Duration{"a2": 9 * time.Minute}},
			ran:     "a2", notRun: "a1, no time: it takes; b1, no time: it takes; c1, no time: it takes", records: "a2",
		},
		"a turn that hangs fails": {
			time: time.Hour, machine: simulated{takes: map[string]time.Duration{"a1": time.Hour}}, ran: "a1 b1 c1", failed: "a1", records: "b1 c1",
		},
		"a turn that had no time to end does not": {
			time: 15 * time.Minute, machine: simulated{takes: map[string]time.Duration{"a1": time.Hour}},
			ran: "a1", notRun: "a1, no time: it was stopped; b1, no time: it takes; c1, no time: it takes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine, out := test.machine, bytes.Buffer{}
			machine.now = noon
			file := filepath.Join(t.TempDir(), "cache", "turns.json")
			passed := record{}
			maps.Copy(passed, test.passed)
			r := runner{end: noon.Add(test.time), passed: passed, file: file, out: &out, now: func() time.Time { return machine.now }, execute: machine.execute}
			failed, err := r.run(t.Context(), groups)
			if err != nil {
				t.Fatal(err)
			}
			written, err := read(file)
			if err != nil {
				t.Fatal(err)
			}
			var records []string
			for name, last := range written {
				if !last.At.Before(noon) && last != test.passed[name] {
					records = append(records, name)
				}
			}
			slices.Sort(records)
			var notRun []string
			for _, line := range regexp.MustCompile(`NOT RUN: (\w+, no time: it \w+ \w+)`).FindAllStringSubmatch(strings.Join(r.summary, "\n"), -1) {
				notRun = append(notRun, strings.TrimSuffix(strings.TrimSuffix(line[1], " about"), " after"))
			}
			for what, pair := range map[string][2]string{
				"ran":     {strings.Join(machine.ran, " "), test.ran},
				"failed":  {strings.Join(failed, " "), test.failed},
				"not run": {strings.Join(notRun, "; "), test.notRun},
				"records": {strings.Join(records, " "), test.records},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s: %q, want %q\n%s", what, pair[0], pair[1], out.String())
				}
			}
			if !strings.HasSuffix(out.String(), strings.Join(r.summary, "\n")+"\n") {
				t.Errorf("the output does not end with the summary:\n%s", out.String())
			}
		})
	}
}

func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := runner{
		end: noon.Add(time.Hour), passed: record{}, file: filepath.Join(t.TempDir(), "turns.json"), out: &bytes.Buffer{},
		now: func() time.Time { return noon },
		execute: func(context.Context, []string, time.Duration) error {
			cancel()
			return nil
		},
	}
	if _, err := r.run(ctx, [][]turn{group("a1"), group("b1")}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted run: %v", err)
	}
	if len(r.passed) > 0 {
		t.Errorf("recorded: %v", r.passed)
	}
}

func TestExecute(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		limit  time.Duration
		want   string
	}{
		"passes":            {script: "exit 0", limit: time.Hour},
		"fails":             {script: "exit 3", limit: time.Hour, want: "exit status 3"},
		"is stopped":        {script: "sleep 1h", limit: 100 * time.Millisecond, want: errStopped.Error()},
		"is not to be told": {script: "sleep 1h & wait; exit 0", limit: 100 * time.Millisecond, want: errStopped.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			err := execute(t.Context(), []string{"sh", "-c", test.script}, test.limit)
			if test.want == "" && err != nil || test.want != "" && (err == nil || err.Error() != test.want) {
				t.Errorf("execute: %v, want %q", err, test.want)
			}
		})
	}
}

// TestLabels expects a turn for every scenario of end-to-end tests that make ci does not run.
func TestLabels(t *testing.T) {
	list := exec.CommandContext(t.Context(), filepath.Join("..", "e2e-labels.sh"), "list")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	scenarios := map[string][]string{}
	for _, match := range regexp.MustCompile(`(?m)^  ([\w,-]+)`).FindAllStringSubmatch(string(out), -1) {
		scenarios[match[1]] = strings.Split(match[1], ",")
	}
	got := map[string]bool{"smoke": true}
	for _, name := range tooLong() {
		got[name] = true
	}
	for _, turn := range labels() {
		_, name, _ := strings.Cut(turn.command[2], "=")
		got[name] = true
		if turn.takes > longest {
			t.Errorf("%s takes %s, more than %s", turn.name, turn.takes, longest)
		}
	}
	exists := map[string]bool{}
	for labels, names := range scenarios {
		if !slices.ContainsFunc(names, func(name string) bool { return got[name] }) {
			t.Errorf("CI never runs the label %s: give it a turn in hack/turns", labels)
		}
		for _, name := range names {
			exists[name] = true
		}
	}
	for name := range got {
		if !exists[name] {
			t.Errorf("no end-to-end test has the label %s", name)
		}
	}
}

// namesIn returns what the first group of a regular expression matches in files.
func namesIn(t *testing.T, expression string, patterns ...string) []string {
	t.Helper()
	var found []string
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no file is named %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range regexp.MustCompile(expression).FindAllStringSubmatch(string(text), -1) {
				found = append(found, match[1])
			}
		}
	}
	slices.Sort(found)
	return found
}

// selected returns the names in the selections of turns, and in one of those that make ci has.
func selected(turns []turn, others ...string) []string {
	names := others
	for _, turn := range turns {
		selection := turn.command[2]
		selection = selection[strings.Index(selection, "(")+1 : strings.Index(selection, ")")]
		names = append(names, strings.Split(selection, "|")...)
	}
	slices.Sort(names)
	return names
}

// TestBenchmarks expects every benchmark that has a test in exactly one turn.
func TestBenchmarks(t *testing.T) {
	want := namesIn(t, `(?m)^\t\t"([a-z]+)": +\{`, "test/suite/bench/scenario_test.go")
	if got := selected(benchmarks()); !slices.Equal(got, want) {
		t.Errorf("turns have the benchmarks %q, want %q", got, want)
	}
}

// TestVirtualHosts expects every test of clusters on virtual hosts in exactly one turn or in make ci.
func TestVirtualHosts(t *testing.T) {
	inCI := namesIn(t, `(?m)^\t@\$\(MAKE\) .* test-simulator RUN=(\w+)$`, "Makefile")
	want := namesIn(t, `(?m)^func (Test\w+)\(t `, "test/harness/simulator/simulation/*_test.go", "test/harness/simulator/cmd/quickstart/*_test.go")
	if got := selected(virtualHosts(), inCI...); !slices.Equal(got, want) {
		t.Errorf("make ci and turns have the tests %q, want %q", got, want)
	}
}

func TestReadBrokenRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "turns.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := read(file); err == nil || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("reading a broken record: %v", err)
	}
}
