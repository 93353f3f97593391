package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readKubeconfig returns when the certificate in the kubeconfig of the cluster ends; zero
// without one.
func (r *Reconciler) readKubeconfig(ctx context.Context, cluster *clusterv1.Cluster) (metav1.Time, error) {
	found := &corev1.Secret{}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: secret.Name(cluster.Name, secret.Kubeconfig)}
	if err := r.APIReader.Get(ctx, key, found); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return metav1.Time{}, nil
		}
		return metav1.Time{}, fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	// A Secret of another cluster may have the name.
	if found.Labels[clusterv1.ClusterNameLabel] != cluster.Name {
		return metav1.Time{}, nil
	}
	return endOf(found.Data[secret.KubeconfigDataName]), nil
}

// endOf returns when the certificate of a kubeconfig's current user ends; zero without one. Only
// embedded certificates count: a kubeconfig may name files of the manager's Pod.
func endOf(kubeconfig []byte) metav1.Time {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil || config.Contexts[config.CurrentContext] == nil {
		return metav1.Time{}
	}
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	if user == nil {
		return metav1.Time{}
	}
	block, _ := pem.Decode(user.ClientCertificateData)
	if block == nil {
		return metav1.Time{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return metav1.Time{}
	}
	return metav1.NewTime(certificate.NotAfter)
}
