package main

import (
	"os"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/subcommand"
)

// The unit starts the program where it was installed, and the guard beside it.
func TestUnit(t *testing.T) {
	file, err := os.ReadFile("elemental-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	if status, out, errs := run(t, "unit"); status != 0 || out != string(file) {
		t.Errorf("status %d, printed %q, complained %q", status, out, errs)
	}
	status, out, errs := run(t, "unit", "--program", "/opt/bin/elemental-agent")
	if status != 0 || strings.Contains(out, "/usr/local/bin/elemental-agent") ||
		!strings.Contains(out, "\nExecStart=/opt/bin/elemental-agent run --self-update\n") ||
		!strings.Contains(out, "\nExecStartPre=-/opt/bin/elemental-agent.previous guard\n") {
		t.Errorf("status %d, printed %q, complained %q", status, out, errs)
	}
	for _, path := range []string{"elemental-agent", "/opt/x y", "/opt/x\nUser=nobody", "/opt/%h"} {
		if status, _, _ := run(t, "unit", "--program", path); status != subcommand.ExitUsage {
			t.Errorf("%q: status %d", path, status)
		}
	}
}
