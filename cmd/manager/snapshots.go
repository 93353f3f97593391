package main

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/snapshotupload"
)

// setupSnapshotUploads adds the reconciler of destinations of snapshots.
func setupSnapshotUploads(ctx context.Context, mgr ctrl.Manager, o *options) error {
	relays, err := o.agentAPI.relayEndpoints()
	if err != nil {
		return err
	}
	uploads, err := snapshotupload.NewMetrics(metrics.Registry)
	if err != nil {
		return fmt.Errorf("setting up uploads of snapshots: %w", err)
	}
	if err := (&snapshotupload.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: newRecorder(mgr, "elementalcluster-snapshotupload"),
		Clock: clock.RealClock{}, Metrics: uploads, Relays: relays, WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(o.concurrency.cluster)); err != nil {
		return fmt.Errorf("setting up uploads of snapshots: %w", err)
	}
	return nil
}
