package quickstart

import (
	"context"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/simulation"
)

// View shows hosts, Machines and the endpoint until ctx ends.
func View(ctx context.Context, f Folder, screen *Screen) error {
	status, err := f.Status(ctx)
	if err != nil {
		return err
	}
	w, err := simulation.Attach(status.Kubeconfig, "", status.Proxy)
	if err != nil {
		return err
	}
	defer screen.Show()
	tick := time.NewTicker(viewInterval)
	defer tick.Stop()
	for seen := (snapshot{}); ; {
		now, err := readSnapshot(ctx, w.Admin, ClusterName)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, line := range changes(seen, now) {
			screen.Say("%s", line)
		}
		seen = now
		screen.Show(append([]string{""}, now.table()...)...)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
