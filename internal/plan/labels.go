package plan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// nodeLabels returns the labels of the host that its Node has too: zone and region, and those of
// the domain from which Cluster API copies labels of Machines. A kubelet may set all of them.
func nodeLabels(host *infrav1.ElementalHost) map[string]string {
	var labels map[string]string
	for key, value := range host.Labels {
		domain, _, found := strings.Cut(key, "/")
		if !found {
			continue
		}
		if key == corev1.LabelTopologyZone || key == corev1.LabelTopologyRegion ||
			domain == clusterv1.ManagedNodeLabelDomain || strings.HasSuffix(domain, "."+clusterv1.ManagedNodeLabelDomain) {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = value
		}
	}
	return labels
}
