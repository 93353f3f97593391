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

	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/figures"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/simulator/world"
)

const (
	// lookEvery is how often Machines are looked at, so that looking costs little, and how exact times are.
	lookEvery = 2 * time.Second
	// sayEvery is how often progress is told.
	sayEvery = 30 * time.Second
	// page is how many Machines are read at once.
	page = 500
)

// Options are what is measured. The zero value is one cluster without Machines.
type Options struct {
	// Count is how many clusters there are, each with so many control planes and workers.
	Count                  int
	ControlPlanes, Workers int
	// Parallel is how many may be in the making at once; 0 means all.
	Parallel int
	// Timeout bounds how long all may take from the first request to the last Machine; 0 means an hour.
	Timeout time.Duration
	// Management are further settings of the management cluster.
	Management embedded.Options
	// Args are further arguments of each of Cluster API's managers.
	Args []string
	// AgentLog is the file that gets what agents log; blank: nobody does.
	AgentLog string
	// Progress gets a line now and then. Nil: nobody is told.
	Progress io.Writer
}

// Run makes clusters and returns the figures when all Machines run; also, with an error, when they don't in time.
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
	w, err := world.Start(ctx, world.Options{Hosts: hosts, Management: o.Management, Progress: o.Progress, AgentLog: o.AgentLog})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	r := &run{o: o, w: w, figures: &figures.Clusters{Clusters: o.Count, ControlPlanes: o.ControlPlanes, Workers: o.Workers, Hosts: hosts, Parallel: o.Parallel}}
	if err := w.Fleet.PowerOn(ctx, 0); err != nil {
		return nil, fmt.Errorf("switching hosts on: %w", err)
	}
	if err := r.await(ctx, o.Timeout, func(ctx context.Context) error { return w.Free(ctx, hosts) }); err != nil {
		return nil, fmt.Errorf("waiting for %d free hosts: %w", hosts, err)
	}
	err = r.measure(ctx)
	return r.figures, err
}

// run is one measurement.
type run struct {
	o       Options
	w       *world.World
	figures *figures.Clusters
	// made is when a cluster was made, whole when all its Machines were seen to run, both since began.
	began       time.Time
	made, whole map[string]time.Duration
}

func (r *run) measure(ctx context.Context) error {
	before, err := r.processes()
	if err != nil {
		return err
	}
	r.began, r.made, r.whole = time.Now(), map[string]time.Duration{}, map[string]time.Duration{}
	err = r.await(ctx, r.o.Timeout, r.advance)
	after, failure := r.processes()
	if failure != nil {
		return errors.Join(err, failure)
	}
	r.figures.Fill(r.made, r.whole, before, after)
	return err
}

// advance makes further clusters while not too many are in the making. The error says how far it is.
func (r *run) advance(ctx context.Context) error {
	if err := r.look(ctx); err != nil {
		return err
	}
	for len(r.made) < r.o.Count && (r.o.Parallel == 0 || len(r.made)-len(r.whole) < r.o.Parallel) {
		next := name(len(r.made))
		at := time.Since(r.began)
		if err := r.w.Create(ctx, world.Cluster{Name: next, ControlPlanes: r.o.ControlPlanes, Workers: r.o.Workers}); err != nil {
			return fmt.Errorf("%w: %w", errFatal, err)
		}
		r.made[next] = at
	}
	if len(r.whole) < r.o.Count {
		return fmt.Errorf("%d clusters of %d are provisioned, %d in the making", len(r.whole), r.o.Count, len(r.made)-len(r.whole))
	}
	return nil
}

// errFatal is nothing to wait for.
var errFatal = errors.New("making a cluster failed")

func name(number int) string { return fmt.Sprintf("c%03d", number) }

// look finds the clusters that are whole.
func (r *run) look(ctx context.Context) error {
	running, from := map[string]int{}, ""
	for {
		list := &clusterv1.MachineList{}
		if err := r.w.Admin.List(ctx, list, client.InNamespace(world.Namespace), client.Limit(page), client.Continue(from)); err != nil {
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
		if _, known := r.whole[cluster]; !known && count == r.o.ControlPlanes+r.o.Workers {
			r.whole[cluster] = at
		}
	}
	return nil
}

// await looks until what is checked is so.
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

// self is what the simulation itself is called among processes.
const self = "simulation"

// processes reads what all processes have taken so far.
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
