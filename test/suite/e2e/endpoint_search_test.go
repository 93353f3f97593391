//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// referenceTimeout bounds the time until nothing names a former address: agents check the workload
// cluster's objects at intervals, and Secrets are deleted with their owners.
const referenceTimeout = 5 * time.Minute

// expectUnreferenced waits until nothing names one of the addresses, apart from the present
// endpoint.
func (w workload) expectUnreferenced(ctx context.Context, addresses []string) {
	GinkgoHelper()
	now := w.endpoint(ctx).address
	for _, address := range addresses {
		if address == now {
			continue
		}
		Eventually(func(g Gomega) {
			g.Expect(w.references(ctx, address)).To(BeEmpty())
		}).WithTimeout(referenceTimeout).WithPolling(5*time.Second).Should(Succeed(), "former endpoint %s", address)
		fmt.Printf("  nothing names %s\n", address)
	}
}

// references returns all places that name an address instead of the present endpoint: ConfigMaps
// of the workload cluster, Secrets of the management cluster and kubeconfigs on the cluster's
// hosts.
func (w workload) references(ctx context.Context, address string) []string {
	GinkgoHelper()
	pattern := regexp.MustCompile(`(^|[^0-9.])` + regexp.QuoteMeta(address) + `($|[^0-9.])`)
	var found []string
	maps := &corev1.ConfigMapList{}
	Expect(w.client(ctx).List(ctx, maps)).To(Succeed())
	for _, config := range maps.Items {
		config.ManagedFields = nil
		text, err := yaml.Marshal(config)
		Expect(err).NotTo(HaveOccurred())
		if pattern.Match(text) {
			found = append(found, "ConfigMap "+config.Namespace+"/"+config.Name)
		}
	}
	found = append(found, w.secretReferences(ctx, pattern)...)
	for _, host := range w.claimed(ctx) {
		box := boxOf(&host)
		// Components of a control plane may use the API server on their own host.
		files := "/etc/kubernetes/*.conf"
		if hasAddress(&host, address) {
			files = "/etc/kubernetes/admin.conf /etc/kubernetes/super-admin.conf"
		}
		for line := range strings.Lines(shell(ctx, box, "grep -H server: "+files+" 2>/dev/null || true")) {
			if pattern.MatchString(line) {
				found = append(found, box.Name+": "+strings.TrimSpace(line))
			}
		}
	}
	return found
}

// secretReferences ignores bootstrap data that was used, because it never changes.
func (w workload) secretReferences(ctx context.Context, pattern *regexp.Regexp) []string {
	GinkgoHelper()
	machines := &clusterv1.MachineList{}
	Expect(management.List(ctx, machines, w.inCluster()...)).To(Succeed())
	used := map[string]bool{}
	for _, m := range machines.Items {
		if m.Status.NodeRef.IsDefined() && m.Spec.Bootstrap.DataSecretName != nil {
			used[*m.Spec.Bootstrap.DataSecretName] = true
		}
	}
	secrets := &corev1.SecretList{}
	Expect(management.List(ctx, secrets)).To(Succeed())
	var found []string
	for _, secret := range secrets.Items {
		if secret.Namespace == namespace && used[secret.Name] {
			continue
		}
		for key, value := range secret.Data {
			if pattern.Match(value) {
				found = append(found, fmt.Sprintf("Secret %s, %s", client.ObjectKeyFromObject(&secret), key))
			}
		}
	}
	return found
}

// hostOnly returns an address without its port.
func hostOnly(hostPort string) string {
	GinkgoHelper()
	host, _, err := net.SplitHostPort(hostPort)
	Expect(err).NotTo(HaveOccurred())
	return host
}
