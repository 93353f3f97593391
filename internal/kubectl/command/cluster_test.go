package command_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/explain"
)

// condition returns a condition that is False.
func condition(conditionType, reason, message string) metav1.Condition {
	return metav1.Condition{
		Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now),
	}
}

// clusterIs creates a Cluster c1 with conditions.
func clusterIs(change func(*infrav1.ElementalCluster), conditions ...metav1.Condition) func(*fixture) {
	return func(f *fixture) {
		f.Cluster("c1", func(_ *clusterv1.Cluster, c *infrav1.ElementalCluster) {
			change(c)
			c.Status.Conditions = conditions
		})
	}
}

func onHost(c *infrav1.ElementalCluster) {
	c.Spec.ControlPlaneEndpoint.Host = "10.1.1.2"
	c.Spec.ControlPlaneEndpointPolicy.Type = infrav1.EndpointTypeHost
	c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "h2", ChosenAt: metav1.NewTime(now)}
}

// restoreOf returns a restore of a cluster's etcd on host h2.
func restoreOf(meta metav1.ObjectMeta, cluster string, restored metav1.Condition) *infrav1.ElementalEtcdRestore {
	r := &infrav1.ElementalEtcdRestore{ObjectMeta: meta}
	r.Spec.ClusterName = cluster
	r.Spec.Source.Snapshot = &infrav1.EtcdRestoreSnapshot{HostName: "h2", ID: "noon"}
	r.Status.Plan = &infrav1.EtcdRestorePlan{HostName: "h2"}
	r.Status.Conditions = []metav1.Condition{restored}
	return r
}

// clusters are situations of Cluster c1.
func clusters() map[string]func(*fixture) {
	ready := metav1.Condition{
		Type: infrav1.ReadyCondition, Status: metav1.ConditionTrue, Reason: infrav1.ProvisionedReason, LastTransitionTime: metav1.NewTime(now),
	}
	return map[string]func(*fixture){
		"no-endpoint": clusterIs(func(*infrav1.ElementalCluster) {},
			condition(infrav1.ReadyCondition, infrav1.NoHostReason, "None of 3 hosts can be used: 3 Claimed"),
			condition(infrav1.ControlPlaneEndpointReadyCondition, infrav1.NoHostReason, "None of 3 hosts can be used: 3 Claimed")),
		"moving": clusterIs(func(c *infrav1.ElementalCluster) {
			onHost(c)
			c.Status.Endpoint = &infrav1.EndpointStatus{LastMove: &infrav1.EndpointMove{
				From: "10.1.1.1", To: "10.1.1.2", Cause: infrav1.MoveHostDead, StartedAt: metav1.NewTime(now),
			}}
		}, condition(infrav1.ControlPlaneEndpointFollowedCondition, infrav1.EndpointMovingReason, "May still use a former endpoint: host h3")),
		"unreachable": clusterIs(onHost, condition(infrav1.ControlPlaneEndpointReadyCondition, infrav1.EndpointUnreachableReason,
			"The other control-plane hosts can't reach 10.1.1.2:6443")),
		"not-reconciled": clusterIs(onHost),
		"machines": func(f *fixture) {
			clusterIs(onHost, ready)(f)
			_, provisioned := f.Machine("c1", "cp1", controllertest.ControlPlane)
			controllertest.ChangeStatus(f.Fixture, provisioned, func(m *infrav1.ElementalMachine) {
				m.Status.Conditions = []metav1.Condition{
					ready,
					condition(infrav1.KubernetesUpToDateCondition, infrav1.UpgradeHeldReason, "The Cluster has the label"),
				}
			})
			_, worker := f.Machine("c1", "w1")
			f.reconcile(worker)
			r := &infrav1.ElementalRemediation{ObjectMeta: f.Meta("cp1")}
			r.Labels = map[string]string{clusterv1.ClusterNameLabel: "c1"}
			r.Status.Conditions = []metav1.Condition{condition(infrav1.ReadyCondition, infrav1.SiteDarkReason, "No host of the site is connected")}
			f.Create(r)
		},
		"restores": func(f *fixture) {
			clusterIs(onHost, ready)(f)
			for name, restored := range map[string]metav1.Condition{
				"back-to-noon": condition(infrav1.RestoredCondition, infrav1.RestoreNotConfirmedReason, "The plan is in status.plan"),
				"left-broken":  condition(infrav1.RestoredCondition, infrav1.RestoreLeftBrokenReason, "The API server did not start within 10m0s"),
				"done":         {Type: infrav1.RestoredCondition, Status: metav1.ConditionTrue, Reason: infrav1.RestoredReason, LastTransitionTime: metav1.NewTime(now)},
			} {
				f.Create(restoreOf(f.Meta(name), "c1", restored))
			}
			f.Create(restoreOf(f.Meta("of-another"), "c2", condition(infrav1.RestoredCondition, infrav1.RestoreRefusedReason, "No such host")))
		},
	}
}

func TestExplainCluster(t *testing.T) {
	for name, situation := range clusters() {
		t.Run(name, func(t *testing.T) { expectExplanation(t, "cluster-"+name, situation, "cluster", "c1") })
	}
}

// A person who has only the output confirms one restore, deletes another one, and lets an upgrade go on.
func TestRemediesOfClusters(t *testing.T) {
	explained := func(t *testing.T, situation string) (*fixture, string) {
		t.Helper()
		f := newFixture(t)
		clusters()[situation](f)
		text, err := f.run("explain", "cluster", "c1")
		f.Expect(err).NotTo(HaveOccurred())
		return f, text
	}

	f, text := explained(t, "restores")
	f.carryOut(text, "patch elementaletcdrestore")
	confirmed, others := f.restore("back-to-noon"), f.restore("of-another")
	f.Expect(confirmed.Spec.Confirm).To(Equal("c1"))
	f.Expect(others.Spec.Confirm).To(BeEmpty())
	f.carryOut(text, "delete elementaletcdrestore")
	f.Expect(f.Exists(&infrav1.ElementalEtcdRestore{ObjectMeta: f.Meta("left-broken")})).To(BeFalse())
	f.restore("back-to-noon")

	f, text = explained(t, "machines")
	cluster := &clusterv1.Cluster{ObjectMeta: f.Meta("c1")}
	f.kubectl("label", "cluster", "c1", infrav1.HoldUpgradeLabel+"=true")
	f.carryOut(text, "label cluster")
	f.Refresh(cluster)
	f.Expect(cluster.Labels).NotTo(HaveKey(infrav1.HoldUpgradeLabel))
}

// restore returns an ElementalEtcdRestore.
func (f *fixture) restore(name string) *infrav1.ElementalEtcdRestore {
	f.T.Helper()
	r := &infrav1.ElementalEtcdRestore{ObjectMeta: f.Meta(name)}
	f.Refresh(r)
	return r
}

// Programs read the same report as people.
func TestExplainAsJSON(t *testing.T) {
	f := newFixture(t)
	waits(nil, with(dirty))(f)
	text, err := f.run("explain", "machine", "m1", "-o", "json")
	f.Expect(err).NotTo(HaveOccurred())
	report := &explain.Report{}
	f.Expect(json.Unmarshal([]byte(text), report)).To(Succeed())
	f.Expect(report.Problems).To(ConsistOf(HaveField("Reason", infrav1.NoHostReason)))
	f.Expect(report.Hosts.RuledOut).To(ConsistOf(And(
		HaveField("Reason", infrav1.LeftoversReason), HaveField("Count", 1), HaveField("Hosts", ConsistOf(HaveField("Name", "h1"))))))
}
