package quickstart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/simulation"
)

// Hosts is the number of virtual hosts: one more than the machines of the cluster, to replace a dead host.
const Hosts = 6

// Serve runs a simulation until ctx ends. With site, nothing but hosts can connect to API servers of workload clusters.
func (f Folder) Serve(ctx context.Context, checkout, manager string, site bool, out io.Writer) (err error) {
	release, err := f.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	o := simulation.Options{Hosts: Hosts, Progress: out, AgentLog: filepath.Join(f.Path, "agents.log")}
	o.Management.Checkout, o.Management.Manager, o.Management.Folder = checkout, manager, f.Management()
	o.Management.ManagerArgs, o.Workload.Site = connectionFlags(), site
	o.Fleet.Folder, o.Fleet.BootTime = filepath.Join(f.Path, "hosts"), bootTime
	w, err := simulation.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := nameHosts(ctx, w.Admin); err != nil {
		return err
	}
	end, err := f.listen(func(what command) (Status, error) { return execute(w, what) })
	if err != nil {
		return err
	}
	defer end()
	if err := w.Fleet.PowerOn(ctx, 0); err != nil && ctx.Err() == nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-w.Management.Done():
		return w.Management.Err()
	}
}

// nameHosts makes the registration name ElementalHosts after their host names.
func nameHosts(ctx context.Context, admin client.Client) error {
	registration := &infrav1.ElementalRegistration{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: simulation.Namespace, Name: simulation.Registration}, registration); err != nil {
		return fmt.Errorf("getting the registration: %w", err)
	}
	before := registration.DeepCopy()
	registration.Spec.HostTemplate.NamePattern = "{{ .Inventory.SMBIOS.SerialNumber }}"
	if err := admin.Patch(ctx, registration, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing the registration: %w", err)
	}
	return nil
}

// execute runs a command.
func execute(w *simulation.Simulation, what command) (Status, error) {
	status := Status{PID: os.Getpid(), Kubeconfig: w.Management.Kubeconfig, Kubectl: w.Management.Program("kubectl"), Proxy: w.Management.Proxy}
	hosts := w.Fleet.Hosts()
	for _, h := range hosts {
		status.Hosts = append(status.Hosts, h.Status())
	}
	if what.Action == "" {
		return status, nil
	}
	if !what.Action.Known() {
		return Status{}, fmt.Errorf("nothing called %q can happen to a host", what.Action)
	}
	i := slices.IndexFunc(hosts, func(h *fleet.Host) bool { return h.Status().ElementalHost == what.Host })
	if i < 0 {
		return Status{}, fmt.Errorf("there is no host %q", what.Host)
	}
	what.Action.Do(hosts[i])
	return status, nil
}
