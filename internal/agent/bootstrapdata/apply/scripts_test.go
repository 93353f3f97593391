package apply_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply"
)

// scripted returns a Config with scripts of the form "NAME: line". The name runcmd sets
// the commands.
func scripted(m *machine, scripts ...string) *bootstrapdata.Config {
	c := &bootstrapdata.Config{}
	for _, s := range scripts {
		name, line, _ := strings.Cut(s, ": ")
		line = strings.ReplaceAll(line, "ROOT", m.root)
		if name == "runcmd" {
			c.Commands = []bootstrapdata.Command{{Shell: line}}
			continue
		}
		c.Scripts = append(c.Scripts, bootstrapdata.ScriptFile{Name: name, Body: "#!/bin/sh\n" + line + "\n"})
	}
	return c
}

// Scripts and runcmd run in the order of their names, and all of them run even if one
// fails.
func TestScripts(t *testing.T) {
	t.Parallel()
	const sentinel = "mkdir -p ROOT/run/cluster-api; echo > ROOT/run/cluster-api/bootstrap-success.complete"
	for name, c := range map[string]struct {
		scripts        []string
		sentinel       bool
		order, failure string
		warnings       int
	}{
		"sorted with runcmd": {[]string{"part-001: echo a >> ROOT/order", "script.sh: echo c >> ROOT/order", "runcmd: echo b >> ROOT/order"}, false, "a\nb\nc\n", "", 0},
		"first fails":        {[]string{"a: echo a >> ROOT/order; echo why; exit 3", "b: echo b >> ROOT/order"}, false, "a\nb\n", "script a: the script ended with status 3", 1},
		"last fails":         {[]string{"a: echo a >> ROOT/order", "b: echo b >> ROOT/order; exit 4"}, false, "a\nb\n", "the script ended with status 4", 0},
		"sentinel of first":  {[]string{"a: echo a >> ROOT/order;" + sentinel, "b: exit 4"}, true, "a\n", "", 1},
		"no sentinel":        {[]string{"a: echo a >> ROOT/order", "runcmd: true"}, true, "a\n", "did not write", 0},
		"nothing to do":      {[]string{"a: true", "b: #"}, false, "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.file("/order", "")
			config := scripted(m, c.scripts...)
			if c.sentinel {
				config.Sentinel = bootstrapdata.SentinelPath
			}
			warnings, _, err := m.apply(t.Context(), config)
			var failed *apply.Failure
			if errors.As(err, &failed) != (c.failure != "") || failed != nil && !strings.Contains(failed.Reason, c.failure) {
				t.Errorf("got %v, want the failure %q", err, c.failure)
			}
			if got := m.read("/order"); got != c.order || len(warnings) != c.warnings {
				t.Errorf("got the order %q and the warnings %q, want %q and %d warnings", got, warnings, c.order, c.warnings)
			}
			_, _, again := m.apply(t.Context(), config)
			if got := m.read("/order"); got != c.order || (err == nil) != (again == nil) {
				t.Errorf("applying again: error %v, order %q", again, got)
			}
		})
	}
}

// The program in the first line runs the script.
func TestScriptNamesItsProgram(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := &bootstrapdata.Config{Scripts: []bootstrapdata.ScriptFile{{Name: "a", Body: "#!/bin/sh -e\nfalse\ntrue\n"}}}
	var failed *apply.Failure
	if _, _, err := m.apply(t.Context(), c); !errors.As(err, &failed) || !strings.Contains(failed.Reason, "status 1") {
		t.Errorf("got %v, want a failure with status 1", err)
	}
	c.Scripts[0].Body = "#!/no/such/program\n"
	broken := newMachine(t)
	if _, _, err := broken.apply(t.Context(), c); !errors.As(err, &failed) || !strings.Contains(failed.Reason, "no such file") {
		t.Errorf("got %v, want a failure about the missing program", err)
	}
}
