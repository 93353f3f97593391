//go:build embedded

package monitoring_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
)

// newAuthority returns an authority of which all certificates are valid for a year.
func newAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	authority, err := pki.NewAuthority("monitoring", time.Now())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return authority
}

// gatewayArgs returns the arguments of a manager that serves users with a certificate of an
// administrator. A certificate that the manager makes itself has no metric.
func gatewayArgs(t *testing.T) []string {
	t.Helper()
	g, folder := NewWithT(t), t.TempDir()
	pair, err := newAuthority(t).Server("gateway")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(folder, "tls.crt"), pair.Certificate, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(folder, "tls.key"), pair.Key, 0o600)).To(Succeed())
	return []string{"--gateway-proxy-address=127.0.0.1:0", "--gateway-cert-dir=" + folder}
}

// createKubeconfig creates the kubeconfig of a cluster as its control plane provider does.
func (r *rig) createKubeconfig(cluster string) {
	r.t.Helper()
	pair, err := newAuthority(r.t).Client("kubernetes-admin")
	r.Expect(err).NotTo(HaveOccurred())
	config := clientcmdapi.NewConfig()
	config.CurrentContext = cluster
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: "admin"}
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: "https://192.0.2.1:6443"}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Certificate}
	text, err := clientcmd.Write(*config)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.admin.Create(r.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: secret.Name(cluster, secret.Kubeconfig), Labels: map[string]string{clusterv1.ClusterNameLabel: cluster},
		},
		Type: clusterv1.ClusterSecretType, Data: map[string][]byte{secret.KubeconfigDataName: text},
	})).To(Succeed())
}

// reportCertificate reports a certificate of kubeadm for the host of a Machine. Virtual hosts have
// none on their disks, and the next hello of their agents removes it, so report it again until it is seen.
func (r *rig) reportCertificate(machine string) error {
	list := &infrav1.ElementalHostList{}
	if err := r.admin.List(r.t.Context(), list); err != nil {
		return fmt.Errorf("listing hosts: %w", err)
	}
	for i := range list.Items {
		h := &list.Items[i]
		if h.Spec.Claim == nil || h.Spec.Claim.MachineName != machine {
			continue
		}
		if len(h.Status.Certificates) > 0 {
			return nil
		}
		before := h.DeepCopy()
		h.Status.Certificates = []infrav1.HostCertificate{{Name: "pki/apiserver.crt", NotAfter: metav1.NewTime(time.Now().AddDate(1, 0, 0))}}
		if err := r.admin.Status().Patch(r.t.Context(), h, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("reporting a certificate: %w", err)
		}
		return nil
	}
	return fmt.Errorf("reporting a certificate: no host has Machine %s", machine)
}
