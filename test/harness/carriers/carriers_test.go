package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == holdCommand {
		if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A short run has all figures. What they are depends on the machine.
func TestFigures(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-over=20ms", "-tunnels=20", "-rest=100ms"}, nil, &out); err != nil {
		t.Fatal(err)
	}
	var report figures.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, row := range report.Rows {
		figure, _, _ := strings.Cut(row.Figure, ";")
		rows[figure] = true
		if row.Value == "" || row.Value == "0" || strings.HasPrefix(row.Value, "0 ") {
			t.Errorf("%s: %q", row.Figure, row.Value)
		}
	}
	want := []string{
		"1 stream to the manager, bytes a second", "8 streams to the host, bytes a second", "Round trip of 64 bytes, median",
		"Round trip beside 100 stalled streams, 99th percentile", "Memory of the manager for each of 20 idle tunnels",
		"Memory of the manager for a tunnel of 100 streams that stall in both directions",
	}
	if notes := strings.Join(report.Notes, " "); os.Geteuid() == 0 {
		want = append(want, "1 stream to the manager, 50.0 ms round trip, 1.00 % lost, bytes a second")
	} else if !strings.Contains(notes, "The slow link was not run: it needs root.") {
		t.Errorf("the notes are %q", notes)
	}
	for _, figure := range want {
		if !rows[figure] {
			t.Errorf("there is no figure %q, but %v", figure, rows)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"x"}, {"-over=0s"}, {"-tunnels=0"}, {"-only=x"}, {holdCommand}, {holdCommand, heldTLS, "many"}} {
		if err := run(t.Context(), args, strings.NewReader(""), &bytes.Buffer{}); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
