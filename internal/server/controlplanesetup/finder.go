// Package controlplanesetup finds what a host sets up its control plane from that has lost the
// files of Kubernetes: the bootstrap data of its Machine, which has the keys of the cluster's
// certificate authorities, and a configuration of kubeadm. Only the host that a confirmed
// ElementalEtcdRestore names gets it, while that restore goes on.
package controlplanesetup

import (
	"context"
	"fmt"
	"net/http"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/etcdrestore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rebuild"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/problem"
)

// BootstrapData finds bootstrap data; see bootstrapsecret.Finder.
type BootstrapData interface {
	Again(ctx context.Context, host *infrav1.ElementalHost) (data []byte, format string, machine *clusterv1.Machine, err error)
}

// Finder finds it. It is safe for concurrent use.
type Finder struct {
	live      client.Reader
	bootstrap BootstrapData
}

// New returns a Finder that reads from live, the API server.
func New(live client.Reader, bootstrap BootstrapData) *Finder {
	return &Finder{live: live, bootstrap: bootstrap}
}

// Setup returns what the host sets up its control plane from. The caller has checked that the
// host's plan has the restore; the host is the newest state.
func (f *Finder) Setup(ctx context.Context, host *infrav1.ElementalHost) (protocol.ControlPlaneSetup, error) {
	var none protocol.ControlPlaneSetup
	restore := &infrav1.ElementalEtcdRestore{}
	name := host.Spec.EtcdRestore.RestoreName
	if err := f.live.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: name}, restore); client.IgnoreNotFound(err) != nil {
		return none, fmt.Errorf("getting ElementalEtcdRestore %s: %w", name, err)
	}
	// The object is blank if it does not exist, so nothing is confirmed.
	if !etcdrestore.IsConfirmedFor(restore, host) || restore.Spec.RebuildControlPlane == nil || !*restore.Spec.RebuildControlPlane {
		return none, problem.NoControlPlaneToSetUp()
	}
	data, format, machine, err := f.bootstrap.Again(ctx, host)
	if err != nil {
		return none, err
	}
	cluster := &clusterv1.Cluster{}
	if err := f.live.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: host.Spec.Claim.ClusterName}, cluster); err != nil {
		return none, fmt.Errorf("getting Cluster %s: %w", host.Spec.Claim.ClusterName, err)
	}
	config, err := rebuild.Config(ctx, f.live, cluster, machine)
	if err != nil {
		// The host may not know what the manager's errors tell.
		ctrl.LoggerFrom(ctx).Info("No configuration of kubeadm can be made", "clusterName", cluster.Name, "reason", err.Error())
		p := problem.New(http.StatusServiceUnavailable, problem.Blank, "The control plane can't be set up now")
		p.Detail, p.RetryAfter = "the log of the manager says why", time.Minute
		return none, p
	}
	return protocol.ControlPlaneSetup{BootstrapData: data, Format: format, KubeadmConfig: config}, nil
}
