package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// userKubeconfig is the kubeconfig that some providers make for people, beside
// Cluster API's own.
const userKubeconfig secret.Purpose = "user-kubeconfig"

// followHere brings the endpoint to what the management cluster has of it besides
// the Cluster, and names what still has a former one. again is when to go on, if
// there was too much for once.
func (r *Reconciler) followHere(ctx context.Context, s *scope, c failover.Cluster) (pending []string, again time.Time, _ error) {
	if followed(s, c) {
		return nil, time.Time{}, nil
	}
	if last := c.LastMove(); last != nil && c.Now.Before(last.StartedAt.Add(late)) {
		again = last.StartedAt.Add(late) // what is written until then is looked for once more
	}
	for _, purpose := range []secret.Purpose{secret.Kubeconfig, userKubeconfig} {
		why, err := r.followKubeconfig(ctx, s, secret.Name(s.cluster.Name, purpose))
		if err != nil {
			return nil, time.Time{}, err
		}
		pending = append(pending, why...)
	}
	joins, err := r.deleteOldJoins(ctx, s, c)
	if len(joins) > 0 {
		again = c.Now.Add(time.Second)
	}
	return append(pending, joins...), again, err
}

// followed reports whether nothing of a former endpoint can be here any more, so
// that clusters at rest read no Secrets. What is made later has the new one.
func followed(s *scope, c failover.Cluster) bool {
	if len(s.infraCluster.Spec.ControlPlaneEndpointPolicy.FormerEndpoints) == 0 {
		return true
	}
	if last := c.LastMove(); last != nil {
		return !last.CompletedAt.IsZero() && !c.Now.Before(last.StartedAt.Add(late))
	}
	is := meta.FindStatusCondition(s.infraCluster.Status.Conditions, infrav1.ControlPlaneEndpointFollowedCondition)
	return is != nil && is.Reason == infrav1.EndpointFollowedReason && is.ObservedGeneration == s.infraCluster.Generation
}

// followKubeconfig changes the servers of a kubeconfig that name a former
// endpoint. All else stays, in the kubeconfig and in the Secret: its owner renews
// the certificate in it by the same name and keeps the server (KubeadmControlPlane
// of v1.14 writes the server only once).
func (r *Reconciler) followKubeconfig(ctx context.Context, s *scope, name string) (pending []string, _ error) {
	is := &corev1.Secret{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, is)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	// A Cluster may be named so that its Secret has a name that would be ours.
	if is.Labels[clusterv1.ClusterNameLabel] != s.cluster.Name {
		return nil, nil
	}
	value, err := moveServers(is.Data[secret.KubeconfigDataName], s.infraCluster.Spec)
	if err != nil {
		// The text is a credential: no part of it may get into messages.
		return []string{"Secret " + name + ", whose value is no kubeconfig"}, nil //nolint:nilerr // see above
	}
	if bytes.Equal(value, is.Data[secret.KubeconfigDataName]) {
		return nil, nil
	}
	ctrl.LoggerFrom(ctx).Info("Changing the endpoint in a kubeconfig", "Secret", klog.KObj(is))
	before := is.DeepCopy()
	is.Data[secret.KubeconfigDataName] = value
	if err := r.Client.Patch(ctx, is, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("changing the endpoint in Secret %s: %w", name, err)
	}
	return nil, nil
}

var errNoClusters = errors.New("the kubeconfig names no cluster")

// moveServers returns the kubeconfig with servers that are a former endpoint
// replaced; byte by byte as it was if none is.
func moveServers(kubeconfig []byte, spec infrav1.ElementalClusterSpec) ([]byte, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig: %w", err)
	}
	if len(config.Clusters) == 0 {
		return nil, errNoClusters
	}
	changed := false
	for _, cluster := range config.Clusters {
		server, err := url.Parse(cluster.Server)
		if err != nil || !isFormer(server, spec.ControlPlaneEndpointPolicy.FormerEndpoints) {
			continue
		}
		server.Host = address.HostPort(spec.ControlPlaneEndpoint.Host, spec.ControlPlaneEndpoint.Port)
		cluster.Server, changed = server.String(), true
	}
	if !changed {
		return kubeconfig, nil
	}
	value, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing kubeconfig: %w", err)
	}
	return value, nil
}

func isFormer(server *url.URL, former []infrav1.FormerEndpoint) bool {
	return slices.ContainsFunc(former, func(f infrav1.FormerEndpoint) bool {
		return address.Same(server.Hostname(), f.Host) && server.Port() == strconv.Itoa(int(f.Port))
	})
}
