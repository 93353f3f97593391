package quickstart

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet/remote"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/simulation"
)

const (
	// ClusterName is the name of the demonstrated cluster.
	ClusterName   = "demo"
	controlPlanes = 3
	workers       = 2
	// stepTimeout bounds each step, also on a slow machine.
	stepTimeout  = 15 * time.Minute
	viewInterval = 500 * time.Millisecond
)

// Options are the settings of a demonstration.
type Options struct {
	Folder Folder
	// Checkout is the folder of this repository, Manager the file of a manager for virtual hosts; blank builds it.
	Checkout, Manager string
	// Program is the file of cmd/quickstart, Flags are its flags, and End is the command line that stops the simulation.
	// Flags and End are shown to the user.
	Program, Flags, End string
	// Tunnel makes the endpoint one of type Tunnel, and nothing but hosts can connect to API servers.
	Tunnel bool
	Screen *Screen
}

// demonstration is a running demonstration.
type demonstration struct {
	Options

	simulation *simulation.Simulation
	seen       snapshot
	// first is the host of the first control plane. lost is the Machine of the host that is powered off.
	first, lost string
	timing      timing
}

// Up starts a simulation and shows how the endpoint of a cluster moves. If it returns nil, the simulation continues.
// Otherwise, also when ctx ends, it removes the simulation.
func Up(ctx context.Context, o Options) (err error) {
	if err := o.Folder.Prepare(); err != nil {
		return err
	}
	s := &demonstration{Options: o, timing: timing{began: time.Now()}}
	defer func() {
		o.Screen.Show()
		if err == nil || errors.Is(err, ErrRuns) {
			return
		}
		o.Screen.Say("Removing everything")
		err = errors.Join(err, o.Folder.Down(context.WithoutCancel(ctx)))
	}()
	status, err := s.start(ctx)
	if err != nil {
		return err
	}
	if s.simulation, err = simulation.Attach(status.Kubeconfig, o.Checkout, status.Proxy); err != nil {
		return err
	}
	lose := s.move
	if o.Tunnel {
		lose = s.carry
	}
	for _, step := range []func(context.Context) error{s.hosts, s.cluster, lose, s.replace} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	o.Screen.Show()
	o.Screen.Print(s.seen.table()...)
	o.Screen.Print(s.timing.table()...)
	o.Screen.Print(o.next(status)...)
	return nil
}

// start starts the simulation.
func (s *demonstration) start(ctx context.Context) (Status, error) {
	s.Screen.Say("Starting a management cluster of plain processes and %d virtual hosts", Hosts)
	status, err := s.Folder.launch(ctx, s.Program, []string{
		"serve", "--folder", s.Folder.Path, "--checkout", s.Checkout, "--manager", s.Manager, fmt.Sprintf("--tunnel=%t", s.Tunnel),
	}, func(line string) {
		s.Screen.Print("          " + line)
	})
	s.timing.step("Management cluster", "programs that start one after the other; building them comes first, once")
	return status, err
}

// await shows the state of the management cluster until over returns nil.
func (s *demonstration) await(ctx context.Context, what string, over func(context.Context) error) error {
	s.Screen.Say("%s", what)
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	began := time.Now()
	tick := time.NewTicker(viewInterval)
	defer tick.Stop()
	for {
		// Errors are temporary: the API server may be busy.
		now, err := readSnapshot(ctx, s.simulation.Admin, ClusterName)
		if err == nil {
			s.show(what, time.Since(began), now)
			err = over(ctx)
		}
		if err == nil {
			// The state may have changed after the last snapshot.
			if now, err := readSnapshot(ctx, s.simulation.Admin, ClusterName); err == nil {
				s.show(what, time.Since(began), now)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting: %s: %w: %w", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// show shows the current state and the changes since the last call.
func (s *demonstration) show(what string, since time.Duration, now snapshot) {
	for _, line := range changes(s.seen, now) {
		s.Screen.Say("  %s", line)
	}
	s.seen = now
	s.Screen.Show(append([]string{"", fmt.Sprintf("%s … %.0f s", what, since.Seconds()), ""}, now.table()...)...)
}

// hosts waits until all hosts are free.
func (s *demonstration) hosts(ctx context.Context) error {
	err := s.await(ctx, fmt.Sprintf("Waiting for %d hosts that boot and enrol", Hosts), func(ctx context.Context) error { return s.simulation.CheckFreeHosts(ctx, Hosts) })
	s.timing.step(fmt.Sprintf("%d hosts enrolled", Hosts), fmt.Sprintf("a boot of %s", bootTime))
	return err
}

// cluster creates a cluster and waits until all its Machines run.
func (s *demonstration) cluster(ctx context.Context) error {
	demo := simulation.Cluster{Name: ClusterName, ControlPlanes: controlPlanes, Workers: workers, Change: shorten, Values: map[string]string{
		"UNHEALTHY_SECONDS": fmt.Sprint(unhealthySeconds), "RECOVERY_SECONDS": fmt.Sprint(recoverySeconds), "MAX_UNHEALTHY_WORKERS": "100%",
	}}
	if s.Tunnel {
		demo.Flavor, demo.Change = "tunnel", shortenRelease
		s.Screen.Say("Applying the template of flavour tunnel, and health checks")
	} else {
		s.Screen.Say("Applying the default template, with a blank endpoint, and its health checks")
	}
	if err := errors.Join(s.simulation.Create(ctx, demo), s.simulation.CreateHealthChecks(ctx, demo)); err != nil {
		return err
	}
	err := s.await(ctx, "Waiting for the first control plane", func(context.Context) error { return s.seen.running(1) })
	s.timing.step("The first control plane runs",
		"ClusterCache's ConnectionCreationRetryInterval (30 s), as its first attempt comes before there is a kubeconfig")
	if err != nil {
		return err
	}
	s.first = s.seen.machines[0].host
	const all = controlPlanes + workers
	err = s.await(ctx, fmt.Sprintf("Waiting for %d control planes and %d workers", controlPlanes, workers), func(ctx context.Context) error {
		return s.simulation.CheckRunning(ctx, ClusterName, all)
	})
	s.timing.step(fmt.Sprintf("%d control planes and %d workers run", controlPlanes, workers),
		"KubeadmControlPlane adds one at a time; its and MachineSet's preflightFailedRequeueAfter (15 s each)")
	return err
}

// move powers off the endpoint's host and waits until the endpoint has moved to another host.
func (s *demonstration) move(ctx context.Context) error {
	former, dead := s.seen.endpoint, s.seen.serves
	if dead == "" {
		return fmt.Errorf("the endpoint %s is no host's address", former)
	}
	s.lost = s.seen.machineOn(dead)
	s.Screen.Say("Cutting the power of %s, whose address is the endpoint", dead)
	if err := s.Folder.Do(ctx, remote.PowerOff, dead); err != nil {
		return err
	}
	err := s.await(ctx, "Waiting for the endpoint to move", func(context.Context) error {
		if s.seen.endpoint == former {
			return errors.New("the endpoint is still " + former)
		}
		return nil
	})
	s.timing.step("The endpoint has moved", fmt.Sprintf(
		"ElementalCluster's failover.afterSeconds (%d here, 300 by default); until the host counts as silent (15 s here, 180 by default)", failoverSeconds))
	s.timing.moved = time.Since(s.timing.began)
	return err
}

// carry powers off the host that carries connections to the API servers, and waits until another one does.
func (s *demonstration) carry(ctx context.Context) error {
	s.lost = s.seen.machineOn(s.first)
	s.Screen.Say("Cutting the power of %s, whose tunnel carries all connections", s.first)
	if err := s.Folder.Do(ctx, remote.PowerOff, s.first); err != nil {
		return err
	}
	err := s.await(ctx, "Waiting for another host to carry them", func(ctx context.Context) error {
		_, err := s.simulation.Nodes(ctx, ClusterName)
		return err
	})
	s.timing.step("Another host carries the connections", "until the manager takes the dead host's tunnel for dead (10 s)")
	s.timing.moved = time.Since(s.timing.began)
	return err
}

// replace waits until the dead host's Machine was replaced.
func (s *demonstration) replace(ctx context.Context) error {
	const all = controlPlanes + workers
	err := s.await(ctx, "Waiting for the dead host's Machine to be replaced", func(ctx context.Context) error {
		if s.seen.has(s.lost) {
			return fmt.Errorf("there is still Machine %s", s.lost)
		}
		return s.simulation.CheckRunning(ctx, ClusterName, all)
	})
	s.timing.step("Its Machine was replaced", fmt.Sprintf("node-monitor-grace-period (40 s) until its Node is Unknown, MachineHealthCheck's timeoutSeconds "+
		"(%d here, 300 in the template), ElementalRemediation's recoverySeconds (%d here, 300), ElementalMachine's disconnectedTimeoutSeconds (%d here, 300)", unhealthySeconds, recoverySeconds, releaseSeconds))
	return err
}

// running returns nil if the given number of Machines run.
func (s snapshot) running(machines int) error {
	n := 0
	for _, m := range s.machines {
		if m.phase == "Running" {
			n++
		}
	}
	if n < machines {
		return fmt.Errorf("%d Machines run", n)
	}
	return nil
}

// machineOn returns the Machine of a host.
func (s snapshot) machineOn(host string) string {
	for _, h := range s.hosts {
		if h.name == host {
			return h.machine
		}
	}
	return ""
}

func (s snapshot) has(machine string) bool {
	for _, m := range s.machines {
		if m.name == machine {
			return true
		}
	}
	return false
}

// next returns suggestions for the user.
func (o Options) next(status Status) []string {
	lines := []string{"", "Everything goes on in the background. Try next:", "  export KUBECONFIG=" + status.Kubeconfig}
	if _, err := exec.LookPath("kubectl"); err != nil {
		lines = append(lines, "  alias kubectl="+status.Kubectl)
	}
	demo := o.Folder.Path + "/" + ClusterName + ".kubeconfig"
	through := ""
	if o.Tunnel {
		// It stands for the DNS of the management cluster.
		through = "HTTPS_PROXY=" + status.Proxy + " "
	}
	return append(lines,
		"  kubectl get elementalhosts,machines,clusters",
		"  kubectl get elementalcluster "+ClusterName+" -o yaml  # where the endpoint is, and where it was or which hosts carry it",
		"  kubectl get secret "+ClusterName+"-kubeconfig -o jsonpath='{.data.value}' | base64 -d > "+demo,
		"  "+through+"kubectl --kubeconfig "+demo+" get nodes",
		"  kubectl scale kubeadmcontrolplane "+ClusterName+"-control-plane --replicas 1",
		"  "+o.Program+o.Flags+" view  # watch",
		"  "+o.Program+o.Flags+" host PowerOn HOST  # the dead one is reset and offered again; there is PowerOff, Reboot, Crash, Cut and Join as well",
		"Logs are in "+o.Folder.Path+". This stops the simulation and removes its files: "+o.End,
	)
}
