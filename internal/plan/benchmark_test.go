package plan_test

import (
	"strings"
	"testing"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
)

// BenchmarkFor measures making a plan, with a trust bundle of the usual size.
func BenchmarkFor(b *testing.B) {
	at := plan.Site{Servers: []string{"https://10.0.0.1:9444"}, TrustBundle: strings.Repeat("-", 700)}
	for name, of := range map[string]struct {
		host    *infrav1.ElementalHost
		cluster plan.Cluster
	}{
		"free":        {capable(host(infrav1.ApprovalApproved, ""), "Bootstrap"), plan.Cluster{}},
		"node":        {node(infrav1.RoleWorker), onHost("h1")},
		"node-on-vip": {node(infrav1.RoleControlPlane), onVIP("Kubeadm")},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if p := plan.For(of.host, at, of.cluster); p.Revision == "" {
					b.Fatal("no plan")
				}
			}
		})
	}
}
