package lab

import (
	"context"
	"fmt"
	"strings"
)

// Status returns a readable summary of the lab's state.
func (l *Lab) Status(ctx context.Context) (string, error) {
	var text strings.Builder
	hosts, err := kindCluster{l}.existingHosts(ctx)
	if err != nil {
		return "", err
	}
	if len(hosts) == 0 {
		return "There is no lab.\n", nil
	}
	for _, host := range hosts {
		state := "off"
		running, err := host.Running(ctx)
		if err != nil {
			return "", err
		}
		if running {
			state = "on"
		}
		fmt.Fprintf(&text, "%-24s %-14s %-4s docker exec -it %s bash\n", host.Name, host.Address, state, host.Container())
	}
	if !l.hasManagement() {
		return text.String(), nil
	}
	fmt.Fprintf(&text, "\nexport KUBECONFIG=%s\n", l.Kubeconfig())
	for _, kind := range []string{
		"providers.clusterctl.cluster.x-k8s.io", "elementalregistrations", "elementalhosts", "clusters.cluster.x-k8s.io",
		"machines.cluster.x-k8s.io",
	} {
		out, err := l.Kubectl(ctx, "get", kind, "--all-namespaces")
		if err == nil && out != "" {
			fmt.Fprintf(&text, "\n%s\n%s\n", kind, out)
		}
	}
	return text.String(), nil
}
