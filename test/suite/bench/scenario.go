package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/table"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// Defaults of Options.
const (
	// DefaultHosts and DefaultClusters are the numbers for which targets are defined.
	DefaultHosts    = 10000
	DefaultClusters = 200
	// DefaultSnapshots and DefaultDatabase, in bytes, are those for which targets are defined.
	DefaultSnapshots = 100
	DefaultDatabase  = 1 << 30
	// DefaultRest is long enough for one new poll of each host and a forced garbage collection of the Go runtime.
	DefaultRest = protocol.PollTimeout
)

// Options are the settings of scenarios. Self is required.
type Options struct {
	// Hosts is the number of virtual hosts; 0 means DefaultHosts.
	Hosts int
	// Clusters is the number of workload clusters in the scenario clusters; 0 means DefaultClusters.
	Clusters int
	// Snapshots is the number of snapshots in the scenario snapshots, and Database how many bytes are stored in etcd; 0 means
	// their defaults.
	Snapshots int
	Database  int64
	// Rest is how long a fleet at rest is measured; 0 means DefaultRest. It rests for a fifth of that time before.
	Rest time.Duration
	// Self is a command line that calls Play with the arguments that follow.
	Self []string
	// Checkout is the folder of this repository; empty: go finds it from the working directory.
	Checkout string
	// Manager is the file of the manager; empty: it is built.
	Manager string
	// Profiles is the folder for profiles of the manager; empty takes none.
	Profiles string
	// Progress gets progress lines.
	Progress io.Writer
}

func (o Options) withDefaults() Options {
	if o.Hosts == 0 {
		o.Hosts = DefaultHosts
	}
	if o.Clusters == 0 {
		o.Clusters = DefaultClusters
	}
	if o.Snapshots == 0 {
		o.Snapshots = DefaultSnapshots
	}
	if o.Database == 0 {
		o.Database = DefaultDatabase
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
	// Name is one word, Title its heading.
	Name, Title string

	measure func(ctx context.Context, r *run) error
}

// Scenarios returns all scenarios in the order of the document.
func Scenarios() []Scenario {
	return []Scenario{
		{"memory", "A fleet at rest", onRig(measureMemory, needs{managers: 1})},
		{"enrol", "Enrolment", onRig(measureEnrolment, needs{managers: 1})},
		{"storm", "Boot storm", onRig(measureStorm, needs{managers: 1})},
		{"claims", "Claims", onRig(measureClaims, needs{managers: 1, args: []string{"--namespace=" + namespace}})},
		{"plan", "A new plan", onRig(measurePlan, needs{managers: 1})},
		{"rogue", "Hostile hosts", onRig(measureRogue, needs{managers: 1})},
		{"sites", "Many sites upgraded in place", measureSites},
		{"failover", "A manager dies", onRig(measureFailover, needs{managers: 2})},
		{"tunnel", "Tunnels", measureTunnel},
		{"gateway", "A fleet with tunnels", onRig(measureGateway, needs{managers: 2, nodes: true})},
		{"snapshots", "Snapshots of etcd", onRig(measureSnapshots, needs{managers: 1, durable: true})},
		{"clusters", "Whole clusters", measureClusters},
	}
}

// Measure runs scenarios one after the other and passes the figures of each to done. All figures name the commit at the
// start, because done may change files of the checkout.
func Measure(ctx context.Context, scenarios []Scenario, options Options, done func(table.Section) error) error {
	options = options.withDefaults()
	if len(options.Self) == 0 {
		return errors.New("measuring: Options.Self is missing")
	}
	source, err := findSource(ctx, options.Checkout)
	if err != nil {
		return err
	}
	options.Checkout = source.folder
	for _, s := range scenarios {
		r := &run{options: options, scenario: s.Name, source: source, progress: shell.NewProgress(options.Progress)}
		section, err := s.run(ctx, r)
		if err != nil {
			return fmt.Errorf("scenario %s: %w", s.Name, err)
		}
		if err := done(section); err != nil {
			return err
		}
	}
	return nil
}

func (s Scenario) run(ctx context.Context, r *run) (table.Section, error) {
	r.progress.Say("Scenario %s, %s hosts", s.Name, table.Count(r.options.Hosts))
	machine, err := measure.ThisMachine()
	if err != nil {
		return table.Section{}, err
	}
	if err := s.measure(ctx, r); err != nil {
		return table.Section{}, err
	}
	return table.Section{
		Scenario: s.Name, Title: s.Title, Command: "make bench-" + s.Name, Rows: r.rows, Notes: r.notes,
		Machine: r.describe(machine), Commit: r.source.commit, Date: time.Now(),
	}, nil
}

// source is the measured source tree with its versions.
type source struct{ folder, kubernetes, commit string }

// findSource returns the source in a folder; if it is blank, go finds the folder.
func findSource(ctx context.Context, folder string) (source, error) {
	s := source{folder: folder}
	var err error
	if s.folder == "" {
		if s.folder, err = shell.Run(ctx, "go", "list", "-m", "-f", "{{.Dir}}"); err != nil {
			return s, fmt.Errorf("finding this repository: %w", err)
		}
	}
	s.kubernetes, err = shell.Command{
		Args: []string{"go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"}, Dir: filepath.Join(s.folder, "test", "tools", "kubernetes"),
	}.Run(ctx)
	if err != nil {
		return s, fmt.Errorf("finding the version of Kubernetes: %w", err)
	}
	s.commit, err = shell.Command{Args: []string{"git", "describe", "--always", "--dirty", "--abbrev=12"}, Dir: s.folder}.Run(ctx)
	if err != nil {
		s.commit = "unknown" // the sources may have come without git
	}
	return s, nil
}

// run is one run of a scenario.
type run struct {
	options  Options
	scenario string
	source   source
	progress *shell.Progress
	rows     []table.Row
	notes    []string
}

// describe returns the description of a machine.
func (r *run) describe(m measure.Machine) string {
	const gib = 1 << 30
	return fmt.Sprintf("%d cores of %s, %.0f GiB, Linux %s, Go %s, Kubernetes %s",
		m.Cores, m.CPU, float64(m.Memory)/gib, m.Kernel, m.Go, r.source.kubernetes)
}

// row adds a figure and prints it.
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

// add adds all of a report.
func (r *run) add(report figures.Report) {
	for _, row := range report.Rows {
		r.row(row)
	}
	r.notes = append(r.notes, report.Notes...)
}

// note adds a paragraph below the figures.
func (r *run) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}
