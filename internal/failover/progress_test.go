package failover_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
)

// LastMove is reconstructed from spec if status was lost.
func TestLastMoveWithoutStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		when func(*failover.Cluster)
		want infrav1.EndpointMoveCause
	}{
		"dead":            {func(*failover.Cluster) {}, infrav1.MoveHostDead},
		"Machine deleted": {func(c *failover.Cluster) { c.Members[2].Machine.DeletionTimestamp = new(at(0)) }, infrav1.MoveMachineDeleted},
		"gone":            {func(c *failover.Cluster) { c.Members = c.Members[:2] }, infrav1.MoveMachineDeleted},
		"requested":       {func(c *failover.Cluster) { former(c).RejectedSince = at(0) }, infrav1.MoveRequested},
		"address changed": {func(c *failover.Cluster) { former(c).HostName = "h1" }, infrav1.MoveAddressChanged},
		"exchanged":       {func(c *failover.Cluster) { former(c).HostName = "" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := cluster()
			moved(&c, time.Minute, true)
			c.Infra.Status = infrav1.ElementalClusterStatus{}
			tc.when(&c)
			last := c.LastMove()
			if tc.want == "" {
				g.Expect(last).To(BeNil())
				return
			}
			g.Expect(last).To(HaveValue(Equal(infrav1.EndpointMove{From: "10.0.0.3", To: "10.0.0.1", StartedAt: at(-time.Minute), Cause: tc.want})))
		})
	}
}

func former(c *failover.Cluster) *infrav1.FormerEndpoint {
	return &c.Infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints[0]
}

func TestAssessProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		when     func(*failover.Cluster)
		pending  []string
		complete bool
		remains  []string
		reject   bool
		lift     []int
	}{
		"never moved":                  {when: func(c *failover.Cluster) { c.Infra.Spec.ControlPlaneEndpointPolicy.FormerEndpoints = nil }, complete: true},
		"everything uses the endpoint": {complete: true},
		"Secret":                       {pending: []string{"Secret x"}, remains: []string{"Secret x"}},
		"host":                         {when: func(c *failover.Cluster) { c.Members[1].Host.Status.Endpoint.Kubeconfigs = "10.0.0.3:6443" }, remains: []string{"host h2"}},
		"host with a message": {when: func(c *failover.Cluster) {
			c.Members[1].Host.Status.Endpoint = &infrav1.HostEndpoint{Message: "disk full"}
		}, remains: []string{"host h2, which says: disk full"}},
		"offline host": {when: func(c *failover.Cluster) {
			c.Members[1].Host.Status.Endpoint.Kubeconfigs = ""
			disconnect(c.Members[1])
		}, complete: true, remains: []string{"host h2, which is offline"}},
		"held host that follows": {when: func(c *failover.Cluster) { hold(&c.Members[1]) }, complete: true},
		"held host with the former endpoint": {when: func(c *failover.Cluster) {
			hold(&c.Members[1])
			c.Members[1].Host.Status.Endpoint.Kubeconfigs = "10.0.0.3:6443"
		}, remains: []string{"host h2"}},
		"held host offline": {when: func(c *failover.Cluster) {
			hold(&c.Members[1])
			c.Members[1].Host.Status.Endpoint.Kubeconfigs = "10.0.0.3:6443"
			disconnect(c.Members[1])
		}, complete: true, remains: []string{"host h2, which is offline"}},
		"host younger than the endpoint": {when: func(c *failover.Cluster) {
			c.Members[1].Host.Status.Endpoint = nil
			c.Members[1].Machine.CreationTimestamp = at(0)
		}, complete: true},
		"host not bootstrapped": {when: func(c *failover.Cluster) {
			c.Members[1].Host.Status.Endpoint = nil
			c.Members[1].Host.Status.Operations = nil
		}, complete: true},
		"workload cluster": {when: func(c *failover.Cluster) { c.Members[0].Host.Status.Endpoint.Workload = "" }, remains: []string{"the workload cluster's own objects (host h1 changes them)"}},
		"Machine deleted":  {when: planned, reject: true},
		"move requested":   {when: func(c *failover.Cluster) { planned(c); c.Infra.Status.Endpoint.LastMove.Cause = infrav1.MoveRequested }, reject: true},
		// It has lost its files, and is reset when its Machine loses the endpoint's hook.
		"former host halted": {when: func(c *failover.Cluster) {
			planned(c)
			c.Members[2].Host.Spec.ControlPlaneHalt = &infrav1.HostControlPlaneHalt{ID: "1"}
			c.Members[2].Host.Status.Endpoint = &infrav1.HostEndpoint{Message: "no such file"}
		}, complete: true},
		"former host disconnected": {when: func(c *failover.Cluster) { planned(c); disconnect(c.Members[2]) }, complete: true},
		"former host left":         {when: func(c *failover.Cluster) { planned(c); c.Members = c.Members[:2] }, complete: true},
		"not rejecting yet": {when: func(c *failover.Cluster) { planned(c); former(c).RejectedSince = at(0) },
			remains: []string{"host h3, which does not reject connections to 10.0.0.3 yet"}},
		"rejecting": {when: func(c *failover.Cluster) { rejecting(c, 0) }, remains: []string{"Cluster API, which may still be connected to 10.0.0.3"}},
		"reconnected": {when: func(c *failover.Cluster) {
			rejecting(c, time.Minute)
			probe(c, metav1.ConditionTrue, -time.Second)
		}, complete: true},
		"connected since before the rejection": {when: func(c *failover.Cluster) {
			rejecting(c, 2*time.Minute-time.Second)
			probe(c, metav1.ConditionTrue, -time.Hour)
		}, remains: []string{"Cluster API, which may still be connected to 10.0.0.3"}},
		"connected for the reconnect time": {when: func(c *failover.Cluster) {
			rejecting(c, 2*time.Minute)
			probe(c, metav1.ConditionTrue, -time.Hour)
		}, complete: true},
		"not connected": {when: func(c *failover.Cluster) {
			rejecting(c, 4*time.Minute)
			probe(c, metav1.ConditionFalse, -time.Second)
		}, remains: []string{"Cluster API, which may still be connected to 10.0.0.3"}},
		"not connected for the maximum wait": {when: func(c *failover.Cluster) {
			rejecting(c, 5*time.Minute)
			probe(c, metav1.ConditionFalse, -time.Second)
		}, complete: true},
		"rejection by a leaving host continues": {when: func(c *failover.Cluster) {
			rejecting(c, time.Hour)
			c.Infra.Status.Endpoint.LastMove.CompletedAt = at(0)
		}, complete: true},
		"rejection continues until completion is recorded": {when: func(c *failover.Cluster) {
			rejecting(c, time.Hour)
			c.Members[2].Machine.DeletionTimestamp = nil
		}, complete: true},
		"rejection by a staying host ends": {when: func(c *failover.Cluster) {
			rejecting(c, time.Hour)
			c.Infra.Status.Endpoint.LastMove.CompletedAt = at(0)
			c.Members[2].Machine.DeletionTimestamp = nil
		}, complete: true, lift: []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := cluster()
			moved(&c, time.Hour, false)
			c.Infra.Spec.ControlPlaneEndpointPolicy.HostRef.ChosenAt = at(-time.Hour)
			if tc.when != nil {
				tc.when(&c)
			}
			p := failover.AssessProgress(c, tc.pending)
			g.Expect(p.Complete).To(Equal(tc.complete))
			g.Expect(strings.Join(p.Remaining, "; ")).To(Equal(strings.Join(tc.remains, "; ")))
			g.Expect(p.StartRejecting).To(Equal(tc.reject))
			g.Expect(p.StopRejecting).To(Equal(tc.lift))
		})
	}
}

// planned deletes the Machine of h3, the former endpoint host.
func planned(c *failover.Cluster) {
	c.Infra.Status.Endpoint.LastMove.Cause = infrav1.MoveMachineDeleted
	c.Members[2].Machine.DeletionTimestamp = new(at(-time.Hour))
}

func rejecting(c *failover.Cluster, since time.Duration) {
	planned(c)
	former(c).RejectedSince = at(-since)
	c.Members[2].Host.Status.Endpoint.Rejects = "10.0.0.3:6443"
}

func probe(c *failover.Cluster, is metav1.ConditionStatus, since time.Duration) {
	c.Cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterRemoteConnectionProbeCondition, Status: is, LastTransitionTime: at(since)}}
}
