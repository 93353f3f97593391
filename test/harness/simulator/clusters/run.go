package clusters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/simulation"
)

const (
	// lookEvery is the polling interval for Machines, and thus the precision of all times. Polling must stay cheap.
	lookEvery = 2 * time.Second
	// sayEvery is the interval of progress lines.
	sayEvery = 30 * time.Second
	// page is the number of Machines in one response.
	page = 500
)

// Options are the settings of a measurement.
type Options struct {
	// Count is the number of clusters; ControlPlanes and Workers are the numbers of machines in each.
	Count                  int
	ControlPlanes, Workers int
	// Parallel is how many clusters may be in creation at a time; 0 means all.
	Parallel int
	// Timeout bounds the time from the first request to the last running Machine; 0 means an hour.
	Timeout time.Duration
	// Management has the settings of the management cluster.
	Management embedded.Options
	// Args are additional arguments of each manager of Cluster API.
	Args []string
	// AgentLog is the log file of all agents; blank discards their logs.
	AgentLog string
	// Progress, if not nil, gets progress lines.
	Progress io.Writer
}

// Run creates clusters and returns figures when all Machines run. If they don't run in time, it returns the figures
// and an error.
func Run(ctx context.Context, o Options) (_ *figures.Clusters, err error) {
	if o.Timeout == 0 {
		o.Timeout = time.Hour
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	hosts := o.Count * (o.ControlPlanes + o.Workers)
	o.Management.Args = map[string][]string{}
	for _, name := range figures.CAPI() {
		o.Management.Args[name] = o.Args
	}
	w, err := simulation.Start(ctx, simulation.Options{Hosts: hosts, Management: o.Management, Progress: o.Progress, AgentLog: o.AgentLog})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	r := &run{o: o, w: w, figures: &figures.Clusters{Clusters: o.Count, ControlPlanes: o.ControlPlanes, Workers: o.Workers, Hosts: hosts, Parallel: o.Parallel}}
	if err := w.Fleet.PowerOn(ctx, 0); err != nil {
		return nil, fmt.Errorf("switching hosts on: %w", err)
	}
	if err := r.await(ctx, o.Timeout, func(ctx context.Context) error { return w.CheckFreeHosts(ctx, hosts) }); err != nil {
		return nil, fmt.Errorf("waiting for %d free hosts: %w", hosts, err)
	}
	err = r.measure(ctx)
	return r.figures, err
}

// run is one measurement.
type run struct {
	o       Options
	w       *simulation.Simulation
	figures *figures.Clusters
	// created has the time at which a cluster was created, running the time at which all its Machines ran, both since
	// began.
	began            time.Time
	created, running map[string]time.Duration
}

func (r *run) measure(ctx context.Context) error {
	before, err := r.processes()
	if err != nil {
		return err
	}
	r.began, r.created, r.running = time.Now(), map[string]time.Duration{}, map[string]time.Duration{}
	err = r.await(ctx, r.o.Timeout, r.advance)
	after, failure := r.processes()
	if failure != nil {
		return errors.Join(err, failure)
	}
	r.figures.Fill(r.created, r.running, before, after)
	return err
}

// advance creates further clusters as Parallel permits. It returns nil when all run; otherwise the error describes the
// progress.
func (r *run) advance(ctx context.Context) error {
	if err := r.look(ctx); err != nil {
		return err
	}
	for len(r.created) < r.o.Count && (r.o.Parallel == 0 || len(r.created)-len(r.running) < r.o.Parallel) {
		next := name(len(r.created))
		at := time.Since(r.began)
		if err := r.w.Create(ctx, simulation.Cluster{Name: next, ControlPlanes: r.o.ControlPlanes, Workers: r.o.Workers}); err != nil {
			return fmt.Errorf("%w: %w", errFatal, err)
		}
		r.created[next] = at
	}
	if len(r.running) < r.o.Count {
		return fmt.Errorf("%d of %d clusters are provisioned, %d in creation", len(r.running), r.o.Count, len(r.created)-len(r.running))
	}
	return nil
}

// errFatal ends await.
var errFatal = errors.New("making a cluster failed")

func name(number int) string { return fmt.Sprintf("c%03d", number) }

// look records the clusters whose Machines all run.
func (r *run) look(ctx context.Context) error {
	running, from := map[string]int{}, ""
	for {
		list := &clusterv1.MachineList{}
		if err := r.w.Admin.List(ctx, list, client.InNamespace(simulation.Namespace), client.Limit(page), client.Continue(from)); err != nil {
			return fmt.Errorf("listing Machines: %w", err)
		}
		for i := range list.Items {
			if list.Items[i].Status.Phase == string(clusterv1.MachinePhaseRunning) {
				running[list.Items[i].Spec.ClusterName]++
			}
		}
		if from = list.Continue; from == "" {
			break
		}
	}
	at := time.Since(r.began)
	for cluster, count := range running {
		if _, known := r.running[cluster]; !known && count == r.o.ControlPlanes+r.o.Workers {
			r.running[cluster] = at
		}
	}
	return nil
}

// await calls check until it returns nil.
func (r *run) await(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var said time.Time
	for {
		err := check(ctx)
		if err == nil || errors.Is(err, errFatal) {
			return err
		}
		if time.Since(said) >= sayEvery {
			said = time.Now()
			_, _ = fmt.Fprintln(r.o.Progress, err)
		}
		select {
		case <-tick.C:
		case <-r.w.Management.Done():
			return errors.Join(err, r.w.Management.Err())
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// self is the name of this process in the figures.
const self = "simulation"

// processes returns the CPU time and the memory of all processes.
func (r *run) processes() (map[string]figures.Process, error) {
	all := map[string]figures.Process{}
	pids := r.w.Management.PIDs()
	pids[self] = os.Getpid()
	for name, pid := range pids {
		cpu, err := measure.Process(pid).CPU()
		if err != nil {
			return nil, fmt.Errorf("measuring %s: %w", name, err)
		}
		memory, err := measure.Process(pid).Memory()
		if err != nil {
			return nil, fmt.Errorf("measuring %s: %w", name, err)
		}
		all[name] = figures.Process{CPUSeconds: cpu.Seconds(), MemoryBytes: memory}
	}
	return all, nil
}
