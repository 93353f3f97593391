package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/address"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/cluster/scope"
)

// userKubeconfig is the kubeconfig that some control-plane providers write for users,
// in addition to Cluster API's own.
const userKubeconfig secret.Purpose = "user-kubeconfig"

// updateKubeconfig changes the servers of a kubeconfig Secret that name a former
// endpoint. It changes nothing else: the Secret's owner renews the certificate in it and
// keeps the server (KubeadmControlPlane of v1.14 writes the server only once). pending
// names a Secret that could not be changed.
func (r *Reconciler) updateKubeconfig(ctx context.Context, s *scope.Scope, name string) (pending []string, _ error) {
	kubeconfig := &corev1.Secret{}
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: s.Cluster.Namespace, Name: name}, kubeconfig)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	// The kubeconfig of another Cluster may have this name, for example that of Cluster
	// c-user the name of c's user kubeconfig.
	if kubeconfig.Labels[clusterv1.ClusterNameLabel] != s.Cluster.Name {
		return nil, nil
	}
	value, err := replaceServers(kubeconfig.Data[secret.KubeconfigDataName], s.InfraCluster.Spec)
	if err != nil {
		// The value is a credential: no part of it may get into messages.
		return []string{"Secret " + name + ", whose value is no kubeconfig"}, nil //nolint:nilerr // see above
	}
	if bytes.Equal(value, kubeconfig.Data[secret.KubeconfigDataName]) {
		return nil, nil
	}
	ctrl.LoggerFrom(ctx).Info("Changing the endpoint in a kubeconfig", "Secret", klog.KObj(kubeconfig))
	before := kubeconfig.DeepCopy()
	kubeconfig.Data[secret.KubeconfigDataName] = value
	if err := r.Client.Patch(ctx, kubeconfig, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("changing the endpoint in Secret %s: %w", name, err)
	}
	return nil, nil
}

var errNoClusters = errors.New("the kubeconfig names no cluster")

// replaceServers returns the kubeconfig with the endpoint in place of servers that are
// former endpoints. It returns the same bytes if none is.
func replaceServers(kubeconfig []byte, spec infrav1.ElementalClusterSpec) ([]byte, error) {
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
		server.Host = spec.ControlPlaneEndpoint.HostPort()
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
		return address.Same(server.Hostname(), f.Host) && server.Port() == strconv.Itoa(int(f.Port)) // never 0, by validation
	})
}
