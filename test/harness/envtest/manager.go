package envtest

import (
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// shutdownTimeout bounds the end of a manager, also on a busy machine.
const shutdownTimeout = 5 * time.Minute

// ManagerOptions returns options of a manager in a test. A process may have several managers.
func (e *Environment) ManagerOptions() ctrl.Options {
	return ctrl.Options{
		Scheme:  e.Scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		// The priority queue of controller-runtime v0.24 may deadlock when it is shut down
		// while items are ready.
		Controller:              config.Controller{SkipNameValidation: new(true), UsePriorityQueue: new(false)},
		GracefulShutdownTimeout: new(shutdownTimeout),
	}
}
