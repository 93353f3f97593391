package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/lab/shell"
)

// Defaults of Options.
const (
	// DefaultHosts and DefaultClusters are the numbers that targets are set for.
	DefaultHosts    = 10000
	DefaultClusters = 200
	// DefaultRest has each host ask for its plan anew once, and is longer than the Go runtime goes without collecting garbage.
	DefaultRest = protocol.PollTimeout
)

// Options say how to run scenarios. The zero value is not enough: Self is needed.
type Options struct {
	// Hosts is how many virtual hosts there are; 0 means DefaultHosts. Targets are for that number.
	Hosts int
	// Clusters is how many workload clusters the scenario clusters makes; 0 means DefaultClusters.
	Clusters int
	// Rest is how long a fleet at rest is watched; 0 means DefaultRest. It is left alone for a fifth of that before.
	Rest time.Duration
	// Self is the command line that has this program call Play with what follows.
	Self []string
	// Checkout is the folder of this repository; empty: go finds it from the working directory.
	Checkout string
	// Manager is the file of the manager; empty: it is built.
	Manager string
	// Profiles is a folder that gets profiles of the manager; empty: there are none.
	Profiles string
	// Progress gets a line now and then.
	Progress io.Writer
}

func (o Options) withDefaults() Options {
	if o.Hosts == 0 {
		o.Hosts = DefaultHosts
	}
	if o.Clusters == 0 {
		o.Clusters = DefaultClusters
	}
	if o.Rest == 0 {
		o.Rest = DefaultRest
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return o
}

// Scenario is something to measure.
type Scenario struct {
	// Name is one word, Title what it is about.
	Name, Title string

	measure func(ctx context.Context, r *run) error
}

// Scenarios returns all, in the order in which they are shown.
func Scenarios() []Scenario {
	return []Scenario{
		{"memory", "A fleet at rest", onRig(measureMemory, 1)},
		{"enrol", "Enrolment", onRig(measureEnrolment, 1)},
		{"storm", "Boot storm", onRig(measureStorm, 1)},
		{"claims", "Claims", onRig(measureClaims, 1, "--namespace="+namespace)},
		{"plan", "A new plan", onRig(measurePlan, 1)},
		{"failover", "A manager dies", onRig(measureFailover, 2)},
		{"clusters", "Whole clusters", measureClusters},
	}
}

// run is one run of a scenario.
type run struct {
	options  Options
	scenario string
	progress *shell.Progress
	// kubernetes and commit are versions.
	kubernetes, commit string
	rows               []table.Row
	notes              []string
}

// Run measures and returns the figures. Nothing of it runs any more when it returns.
func (s Scenario) Run(ctx context.Context, options Options) (table.Section, error) {
	options = options.withDefaults()
	if len(options.Self) == 0 {
		return table.Section{}, errors.New("measuring: Options.Self is missing")
	}
	r := &run{options: options, scenario: s.Name, progress: shell.NewProgress(options.Progress)}
	if err := r.findVersions(ctx); err != nil {
		return table.Section{}, err
	}
	r.progress.Say("Scenario %s, %s hosts", s.Name, table.Count(options.Hosts))
	machine, err := measure.ThisMachine()
	if err != nil {
		return table.Section{}, err
	}
	if err := s.measure(ctx, r); err != nil {
		return table.Section{}, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	return table.Section{
		Scenario: s.Name, Title: s.Title, Command: "make bench-" + s.Name, Rows: r.rows, Notes: r.notes,
		Machine: r.describe(machine), Commit: r.commit, Date: time.Now(),
	}, nil
}

// findVersions finds out what is measured.
func (r *run) findVersions(ctx context.Context) error {
	if r.options.Checkout == "" {
		folder, err := shell.Run(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
		if err != nil {
			return fmt.Errorf("finding this repository: %w", err)
		}
		r.options.Checkout = folder
	}
	var err error
	r.kubernetes, err = shell.Command{
		Args: []string{"go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"}, Dir: filepath.Join(r.options.Checkout, "test", "tools", "kubernetes"),
	}.Run(ctx)
	if err != nil {
		return fmt.Errorf("finding the version of Kubernetes: %w", err)
	}
	r.commit, err = shell.Command{Args: []string{"git", "describe", "--always", "--dirty", "--abbrev=12"}, Dir: r.options.Checkout}.Run(ctx)
	if err != nil {
		r.commit = "unknown" // the sources may have come without git
	}
	return nil
}

// describe says what the figures were measured on.
func (r *run) describe(m measure.Machine) string {
	const gib = 1 << 30
	return fmt.Sprintf("%d cores of %s, %.0f GiB, Linux %s, Go %s, Kubernetes %s",
		m.Cores, m.CPU, float64(m.Memory)/gib, m.Kernel, m.Go, r.kubernetes)
}

// row adds a figure, and says it at once.
func (r *run) row(row table.Row) {
	r.rows = append(r.rows, row)
	said := row.Figure + ": " + row.Value
	if row.Bare != "" {
		said += ", bare " + row.Bare
	}
	if row.Ratio != "" {
		said += ", ratio " + row.Ratio
	}
	if row.Missed {
		said += ", missed the target of " + row.Target
	}
	r.progress.Say("%s", said)
}

// note adds a paragraph.
func (r *run) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}
