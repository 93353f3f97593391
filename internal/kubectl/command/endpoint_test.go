package command_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// sites creates the cluster c1 of three control-plane hosts. h2 has the endpoint, h1 can have it,
// and h3 is in maintenance.
func sites(f *fixture) {
	f.Cluster("c1", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
		onHost(c)
		c.Status.Conditions = []metav1.Condition{{
			Type: infrav1.ControlPlaneEndpointReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.EndpointFromHostReason,
			Message: "The address of host h2", LastTransitionTime: metav1.NewTime(now),
		}}
	})
	for name, change := range map[string]hostChange{
		"h1": func(*infrav1.ElementalHost) {},
		"h2": func(h *infrav1.ElementalHost) { h.Status.Addresses[0].Address = "10.1.1.2" },
		"h3": func(h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"} },
	} {
		f.Host(name, member(infrav1.RoleControlPlane, change))
		f.Machine("c1", "m-"+name, controllertest.ControlPlane)
	}
	f.Host("worker", member(infrav1.RoleWorker))
}

func TestEndpoint(t *testing.T) {
	paused := func(f *fixture) {
		sites(f)
		cluster := &clusterv1.Cluster{ObjectMeta: f.Meta("c1")}
		controllertest.Change(f.Fixture, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
	}
	for name, tc := range map[string]struct {
		situation func(*fixture)
		args      []string
		// request is the annotation afterwards; nil if it is missing.
		request *string
	}{
		"show":             {sites, nil, nil},
		"show-external":    {func(f *fixture) { f.Cluster("c1") }, nil, nil},
		"move":             {sites, []string{"move"}, new("")},
		"move-to":          {sites, []string{"move", "--to", "h1"}, new("h1")},
		"move-dry-run":     {sites, []string{"move", "--dry-run=server"}, nil},
		"move-maintenance": {sites, []string{"move", "--to", "h3"}, nil},
		"move-worker":      {sites, []string{"move", "--to", "worker"}, nil},
		"move-to-itself":   {sites, []string{"move", "--to", "h2"}, nil},
		"move-paused":      {paused, []string{"move"}, nil},
		"move-external":    {func(f *fixture) { f.Cluster("c1") }, []string{"move"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tc.situation(f)
			f.Clock.Step(time.Minute)
			text, err := f.run(append([]string{"endpoint", "c1"}, tc.args...)...)
			if err != nil {
				text += "Error: " + err.Error() + "\n"
			}
			f.expectGolden("endpoint-"+name, text)
			infra := &infrav1.ElementalCluster{ObjectMeta: f.Meta("c1")}
			f.Refresh(infra)
			request, asked := infra.Annotations[infrav1.MoveEndpointAnnotation]
			f.Expect(asked).To(Equal(tc.request != nil))
			if asked {
				f.Expect(request).To(Equal(*tc.request))
			}
		})
	}
}
