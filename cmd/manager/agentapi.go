package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/kubernetesrelease"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/registration"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/servedfiles"
)

// defaultNamespace is the manager's namespace if it does not run in a Pod.
const defaultNamespace = "elemental-system"

// releaseConcurrency is how many ElementalKubernetesReleases are reconciled at once. There are
// few, and they change rarely.
const releaseConcurrency = 1

// managerNamespace returns the namespace of the Secret of the agent API's CA, and of the
// manager's Services.
func managerNamespace() string { return cmp.Or(os.Getenv("POD_NAMESPACE"), defaultNamespace) }

// setupAgentAPI adds the agent API, its CA and the files that it serves, the controller of
// registrations, which publishes its URL and CA, and that of releases, which says which bundles
// it serves.
func setupAgentAPI(ctx context.Context, mgr ctrl.Manager, ca *authority.Authority, o *options) (*server.Server, error) {
	pod := types.NamespacedName{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME")}
	reconciler := &authority.Reconciler{
		Authority: ca, Hosts: mgr.GetClient(), Recorder: newRecorder(mgr, "elemental-agent-api"), Clock: clock.RealClock{},
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("setting up the agent API's authority: %w", err)
	}
	if err := reconciler.RegisterMetrics(ctx, metrics.Registry); err != nil {
		return nil, fmt.Errorf("setting up the agent API's authority: %w", err)
	}
	agents := servedfiles.New(servedfiles.Options{Folders: o.agentAPI.binaries, MaxBytes: protocol.MaxAgentBytes}, clock.RealClock{})
	agents.Scan(ctx)
	// Hashing bundles may take minutes, so the manager does not wait for it.
	bundles := servedfiles.New(servedfiles.Options{Folders: o.agentAPI.bundles, MaxBytes: protocol.MaxBundleBytes}, clock.RealClock{})
	for _, files := range []*servedfiles.Store{agents, bundles} {
		if err := mgr.Add(files); err != nil {
			return nil, fmt.Errorf("setting up the files for hosts: %w", err)
		}
	}
	if err := (&registration.Reconciler{
		Client: mgr.GetClient(), Authority: ca, Agents: agents,
		Clock: clock.RealClock{}, URL: o.agentAPI.url, WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(o.concurrency.registration)); err != nil {
		return nil, fmt.Errorf("setting up ElementalRegistration: %w", err)
	}
	if err := (&kubernetesrelease.Reconciler{
		Client: mgr.GetClient(), Bundles: bundles, Clock: clock.RealClock{}, WatchFilter: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrent(releaseConcurrency)); err != nil {
		return nil, fmt.Errorf("setting up ElementalKubernetesRelease: %w", err)
	}
	proxies, err := o.agentAPI.proxyNetworks()
	if err != nil {
		return nil, err
	}
	relays, err := o.agentAPI.relayEndpoints()
	if err != nil {
		return nil, err
	}
	images, err := o.kubeVIP.policy()
	if err != nil {
		return nil, err
	}
	api, err := server.New(server.Options{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Informers: mgr.GetCache(),
		Authority: ca, Recorder: newRecorder(mgr, "elemental-agent-api"), Metrics: metrics.Registry,
		Clock: clock.RealClock{}, Address: o.agentAPI.address, Listener: o.agentAPI.listener, URL: o.agentAPI.url, Namespace: managerNamespace(), Pod: pod,
		Agents: agents, AgentDownloads: o.agentAPI.downloads, Bundles: bundles, BundleDownloads: o.agentAPI.bundleDownloads,
		EnrolRate: o.agentAPI.enrolRate, EnrolBurst: o.agentAPI.enrolBurst,
		ConnectionRate: o.agentAPI.connectionRate, ConnectionBurst: o.agentAPI.connectionBurst, MaxHandshakes: o.agentAPI.maxHandshakes,
		MaxUnauthenticated: o.agentAPI.unauthenticated, Proxies: proxies, SnapshotRelays: relays, Images: images,
		DisconnectGrace: o.agentAPI.disconnectGrace, PingAfter: o.agentAPI.pingInterval, PingTimeout: o.agentAPI.pingTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("setting up agent API: %w", err)
	}
	if err := api.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	return api, nil
}
