package assembly

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/certificates"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/client"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/connection"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/node"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/erase"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/reboot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/reset"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/probe"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/upload"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/successor"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/tunnel"
)

// Executor executes bootstrap data and undoes it.
type Executor interface {
	bootstrap.Executor
	operation.Bootstraps
}

// Endpoint prepares a host for the control plane endpoint of its cluster, and applies
// changes of it.
type Endpoint interface {
	bootstrap.Preparer
	agent.Applier
}

// Installer installs bundles of Kubernetes on a host and removes them.
type Installer interface {
	bootstrap.Installer
	reset.Installation
}

// Options are what an agent is put together from.
type Options struct {
	Store *state.Store
	// Keys, Servers, TrustBundle, Source, Built and RotateAfter are those of
	// connection.Options.
	Keys        connection.Keys
	Servers     []string
	TrustBundle string
	Source      string
	Built       time.Time
	RotateAfter time.Duration

	Platform platform.Platform
	Executor Executor
	Endpoint Endpoint
	// Reset replaces reset.Runner if it is not nil.
	Reset operation.Runner
	// Upgrade upgrades the operating system; nil means that it cannot be upgraded.
	Upgrade operation.Runner
	// Eraser erases data disks after a reset; nil means that they cannot be erased.
	Eraser *erase.Eraser
	// NewUpdater returns what updates the agent; nil turns updates off. currentClient
	// returns the client in use.
	NewUpdater func(currentClient func() *client.Client) (agent.Updater, error)

	// NewStager returns what stages bundles, and Installer installs them; both nil turn that
	// off. currentClient returns the client in use.
	NewStager func(currentClient func() *client.Client) agent.Stager
	Installer Installer
	// Adopter checks Nodes that run already; nil means that the host can't be adopted.
	Adopter bootstrap.Adopter
	// NewNodeUpgrade returns what upgrades Kubernetes in place, with what NewStager returned;
	// nil means that the host can't be upgraded in place.
	NewNodeUpgrade func(stager agent.Stager) operation.Runner

	// NewEtcdRestore returns what restores etcd; nil means that the host can't do it.
	// currentClient returns the client in use.
	NewEtcdRestore func(currentClient func() *client.Client) operation.Runner

	// CertificateRenewal renews the certificates of a control plane; nil means that the host can't
	// do it.
	CertificateRenewal operation.Runner

	// Halter halts the control plane and starts it again; nil means that the host can't do it.
	Halter operation.Runner

	// Snapshotter is that of agent.Options.
	Snapshotter agent.Snapshotter
	// NewUploader returns what uploads snapshots of etcd; nil turns that off. currentClient
	// returns the client in use.
	NewUploader func(currentClient func() *client.Client) *upload.Uploader
	// Local and Tunnel are those of agent.Options.
	Local  agent.LocalEndpoint
	Tunnel tunnel.Dialer
	// Root stands for "/".
	Root string
	// ProbePeriod is that of probe.Options.
	ProbePeriod time.Duration
	// Dial connects to managers and API servers; nil means the system's dialler.
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Clock retry.Clock

	// TrialSpread is the longest delay before the host tries a new successor of its management
	// cluster; 0 means successor.Spread.
	TrialSpread time.Duration
	// Token, RemoveToken, ReadoptAfter, Status, Version and BootID are those of
	// agent.Options.
	Token        string
	RemoveToken  func() error
	ReadoptAfter time.Duration
	Status       func(connection.Status)
	Version      string
	BootID       string
	Log          *slog.Logger
}

// New returns an agent, which connects to nothing yet.
func New(o Options) (*agent.Agent, error) {
	manager, err := connection.New(connection.Options{
		Store: o.Store, Keys: o.Keys, Servers: o.Servers, TrustBundle: o.TrustBundle, Source: o.Source, Built: o.Built,
		Now: o.Clock.Now, UserAgent: "elemental-agent/" + o.Version, Dial: o.Dial, RotateAfter: o.RotateAfter, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	var updater agent.Updater
	if o.NewUpdater != nil {
		if updater, err = o.NewUpdater(manager.Client); err != nil {
			return nil, err
		}
	}
	var stager agent.Stager
	if o.NewStager != nil {
		stager = o.NewStager(manager.Client)
	}
	var uploadSnapshot func(context.Context, protocol.EtcdSnapshotUpload) (protocol.EtcdSnapshotObject, error)
	if o.NewUploader != nil {
		uploadSnapshot = o.NewUploader(manager.Client).Upload
	}
	setter := &node.Setter{Kubeconfigs: kubeconfigs(o.Root), Clock: o.Clock, Dial: o.Dial}
	return agent.New(agent.Options{
		Store: o.Store, Manager: manager, Token: o.Token, RemoveToken: o.RemoveToken, Platform: o.Platform, Node: setter,
		Runners: o.runners(manager, setter, stager), CanErase: o.Eraser != nil, CanAdopt: o.Adopter != nil, Updater: updater, Stager: stager, Applier: o.Endpoint,
		Prober: probe.New(probe.Options{
			Root: o.Root, LocalAddresses: o.Platform.LocalAddresses, Period: o.ProbePeriod, Clock: o.Clock, Dial: o.Dial,
		}),
		Certificates: func() []protocol.CertificateFacts { return certificates.Read(o.Root) },
		Snapshotter:  o.Snapshotter, Upload: uploadSnapshot,
		Local: o.Local, Tunnel: o.Tunnel, ReadoptAfter: o.ReadoptAfter, TrialSpread: cmp.Or(o.TrialSpread, successor.Spread), Status: o.Status, Clock: o.Clock, Log: o.Log, Version: o.Version, BootID: o.BootID,
	}), nil
}

// runners returns the operations that the host can run.
func (o *Options) runners(manager *connection.Manager, providerID bootstrap.ProviderIDSetter, stager agent.Stager) map[protocol.OperationType]operation.Runner {
	documents := o.Store.Documents()
	runners := map[protocol.OperationType]operation.Runner{
		protocol.OperationBootstrap: &bootstrap.Runner{
			Source:    func() bootstrap.Source { return manager.Client() },
			Documents: documents, Executor: o.Executor, Platform: o.Platform, ProviderID: providerID, Preparer: o.Endpoint,
			Stager: stager, Installer: o.Installer, Adopter: o.Adopter,
			Desired: func() protocol.Desired { return o.Store.Plan().Desired }, Log: o.Log,
		},
		protocol.OperationReset: o.resetRunner(documents),
		protocol.OperationReboot: &reboot.Runner{
			Documents: documents, Platform: o.Platform, BootID: o.BootID, Log: o.Log,
		},
	}
	if o.Upgrade != nil {
		runners[protocol.OperationUpgrade] = o.Upgrade
	}
	if o.NewNodeUpgrade != nil {
		runners[protocol.OperationNodeUpgrade] = o.NewNodeUpgrade(stager)
	}
	if o.NewEtcdRestore != nil {
		runners[protocol.OperationEtcdRestore] = o.NewEtcdRestore(manager.Client)
	}
	if o.CertificateRenewal != nil {
		runners[protocol.OperationCertificateRenewal] = o.CertificateRenewal
	}
	if o.Halter != nil {
		runners[protocol.OperationControlPlaneHalt] = o.Halter
		runners[protocol.OperationControlPlaneStart] = o.Halter
	}
	return runners
}

// resetRunner returns the platform's own reset or the common one, followed by the
// erasure of data disks if that is possible.
func (o *Options) resetRunner(documents state.Files) operation.Runner {
	runner := o.Reset
	if runner == nil {
		runner = &reset.Runner{
			Documents: documents, Platform: o.Platform, Bootstraps: o.Executor, Installation: o.Installer, BootID: o.BootID, Log: o.Log,
		}
	}
	runner = &nodeupgrade.ResetRunner{Runner: runner, Documents: documents}
	if o.Eraser == nil {
		return runner
	}
	runner = &snapshot.ResetRunner{Runner: runner, Documents: documents}
	return &erase.Runner{Runner: runner, Documents: documents, Eraser: o.Eraser, Log: o.Log}
}

// kubeconfigs are the paths of kubelets' kubeconfigs below root.
func kubeconfigs(root string) []string {
	paths := node.Kubeconfigs()
	for i, path := range paths {
		paths[i] = filepath.Join(root, path)
	}
	return paths
}
