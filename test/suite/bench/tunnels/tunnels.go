package tunnels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// Options are the settings of a measurement. All are required.
type Options struct {
	// Checkout is the folder of this repository.
	Checkout string
	// Manager is the file of the manager; blank builds it.
	Manager string
	// Tunnels is the number of idle tunnels.
	Tunnels int
	// Rest is how long a fleet at rest would be measured. Each measurement takes a part of it.
	Rest     time.Duration
	Progress *shell.Progress
}

// Shares of Options.Rest.
const (
	// carrierShare is for each measurement on the loopback.
	carrierShare = 200
	// aloneShare is how long idle tunnels are left alone. By default it is two minutes, after which Go's runtime always
	// collects garbage.
	aloneShare = 5
	// forwarderShare is for each measurement of the forwarder.
	forwarderShare = 20
	// listShare is for all lists.
	listShare = 20
)

// measurement collects figures in a temporary folder.
type measurement struct {
	Options

	folder string
	report figures.Report
}

// Measure measures everything.
func Measure(ctx context.Context, o Options) (_ figures.Report, err error) {
	m := &measurement{Options: o}
	if m.folder, err = os.MkdirTemp("", "elemental-tunnels-"); err != nil {
		return figures.Report{}, fmt.Errorf("making a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.folder)) }()
	for _, part := range []func(context.Context) error{m.carriers, m.forwarder, m.lists} {
		if err := part(ctx); err != nil {
			return figures.Report{}, err
		}
	}
	return m.report, nil
}

// carriers runs the program that measures the tunnel beside others.
func (m *measurement) carriers(ctx context.Context) error {
	program := filepath.Join(m.folder, "carriers")
	if err := m.build(ctx, filepath.Join(m.Checkout, "test", "harness", "carriers"), program, "."); err != nil {
		return err
	}
	m.Progress.Say("Measuring the tunnel, TLS without a tunnel, and remotedialer")
	printed, err := shell.Command{Args: []string{
		program, "-over=" + (m.Rest / carrierShare).String(), fmt.Sprintf("-tunnels=%d", m.Tunnels), "-rest=" + (m.Rest / aloneShare).String(),
	}}.Run(ctx)
	if err != nil {
		return fmt.Errorf("measuring carriers: %w", err)
	}
	var report figures.Report
	if err := json.Unmarshal([]byte(printed), &report); err != nil {
		return fmt.Errorf("reading the figures of carriers: %w", err)
	}
	m.report.Rows, m.report.Notes = append(m.report.Rows, report.Rows...), append(m.report.Notes, report.Notes...)
	return nil
}

// build builds a program as releases are built.
func (m *measurement) build(ctx context.Context, module, file, path string) error {
	_, err := shell.Command{
		Args: []string{"go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", file, path}, Dir: module, Env: []string{"CGO_ENABLED=0"},
	}.Run(ctx)
	if err != nil {
		return fmt.Errorf("building %s: %w", filepath.Base(file), err)
	}
	return nil
}

func (m *measurement) row(row table.Row) { m.report.Rows = append(m.report.Rows, row) }

func (m *measurement) note(format string, args ...any) {
	m.report.Notes = append(m.report.Notes, fmt.Sprintf(format, args...))
}
