package index_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/index"
)

type recorded map[string]client.IndexerFunc

func (r recorded) IndexField(_ context.Context, _ client.Object, field string, values client.IndexerFunc) error {
	r[field] = values
	return nil
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return errBroken
}

func TestRegister(t *testing.T) {
	g := NewWithT(t)
	indexes := recorded{}
	g.Expect(index.Register(t.Context(), indexes)).To(Succeed())
	g.Expect(index.Register(t.Context(), broken{})).To(MatchError(errBroken))

	host := func(claim *infrav1.HostClaim) *infrav1.ElementalHost {
		return &infrav1.ElementalHost{Spec: infrav1.ElementalHostSpec{Claim: claim}}
	}
	free, known := host(nil), host(nil)
	known.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "sha256:ab"}
	rotating, declared, again := host(nil), host(nil), host(nil)
	rotating.Spec.Identity = &infrav1.HostIdentity{
		KeyFingerprint: "b", NextKeyFingerprint: "c", FormerKeyFingerprint: "a", Match: &infrav1.IdentityMatch{KeyFingerprint: "0"},
	}
	declared.Spec.Identity = &infrav1.HostIdentity{Match: &infrav1.IdentityMatch{KeyFingerprint: "m"}, FormerKeyFingerprint: "a"}
	again.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: "b", Match: &infrav1.IdentityMatch{SerialNumber: " s "}}
	pending, readopted, returned, labelled := host(nil), host(nil), host(nil), host(nil)
	for _, p := range []*infrav1.ElementalHost{pending, readopted, returned, labelled} {
		p.Spec.Approval = infrav1.ApprovalPending
	}
	pending.Spec.RegistrationRef = &infrav1.LocalReference{Name: "edge"}
	readopted.Spec.PendingReason, readopted.Spec.RegistrationRef = infrav1.PendingReadopted, &infrav1.LocalReference{Name: "edge"}
	returned.Spec.PendingReason, returned.Spec.RegistrationRef = infrav1.PendingReturned, &infrav1.LocalReference{Name: "edge"}
	labelled.Labels = map[string]string{infrav1.RegistrationLabel: "lab"}
	reserved := host(&infrav1.HostClaim{ClusterName: "c", Phase: infrav1.ClaimReserved})
	bound := host(&infrav1.HostClaim{ID: "1", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound})
	ofCluster := &infrav1.ElementalCluster{}
	ofCluster.Labels = map[string]string{clusterv1.ClusterNameLabel: "c"}
	cluster := func(host string, conditions ...metav1.Condition) *infrav1.ElementalCluster {
		c := &infrav1.ElementalCluster{Status: infrav1.ElementalClusterStatus{Conditions: conditions}}
		if host != "" {
			c.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: host}
		}
		return c
	}
	ready := func(status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: infrav1.ControlPlaneEndpointReadyCondition, Status: status}
	}
	followed := metav1.Condition{Type: infrav1.ControlPlaneEndpointFollowedCondition, Status: metav1.ConditionFalse}
	racks := cluster("")
	racks.Spec.FailureDomains.HostLabel = "rack"
	machine := &infrav1.ElementalMachine{Spec: infrav1.ElementalMachineSpec{HostRef: &infrav1.HostReference{Name: "h", ClaimID: "1"}}}
	for _, tc := range []struct {
		index  string
		object client.Object
		want   []string
	}{
		{index.HostByKey, free, nil},
		{index.HostByKey, known, []string{"sha256:ab"}},
		{index.HostByKey, rotating, []string{"b", "c", "a"}},
		{index.HostByKey, declared, nil},
		{index.HostByMatchedKey, declared, []string{"m"}},
		{index.HostByMatchedKey, rotating, nil},
		{index.HostByMatchedKey, free, nil},
		{index.HostByMatchedSerial, declared, nil},
		{index.HostByMatchedSerial, again, []string{"s"}},
		{index.PendingHost, free, nil},
		{index.PendingHost, pending, []string{"edge"}},
		{index.PendingHost, labelled, []string{"lab"}},
		{index.PendingHost, readopted, []string{index.ReadoptedHosts}},
		{index.PendingHost, returned, []string{"edge"}},
		{index.HostByCluster, free, []string{index.Free}},
		{index.HostByCluster, reserved, []string{"c"}},
		{index.HostByCluster, bound, []string{"c"}},
		{index.HostByMachine, free, nil},
		{index.HostByMachine, reserved, nil},
		{index.HostByMachine, bound, []string{"m"}},
		{index.HostByLabel, free, nil},
		{index.HostByLabel, labelled, []string{infrav1.RegistrationLabel}},
		{index.MachineByClaim, &infrav1.ElementalMachine{}, nil},
		{index.MachineByClaim, machine, []string{"1"}},
		{index.ClusterByName, &infrav1.ElementalCluster{}, nil},
		{index.ClusterByName, ofCluster, []string{"c"}},
		{index.ClusterByEndpointHost, cluster(""), nil},
		{index.ClusterByEndpointHost, cluster("", ready("False")), []string{index.Seeking}},
		{index.ClusterByEndpointHost, cluster("h", ready("False")), []string{"h", index.Seeking}},
		{index.ClusterByEndpointHost, cluster("h", ready("True")), []string{"h"}},
		{index.ClusterByEndpointHost, cluster("h", ready("Unknown")), []string{"h"}},
		{index.ClusterByEndpointHost, cluster("h", ready("False"), followed), []string{"h"}},
		{index.ClusterByDomainLabel, cluster(""), []string{infrav1.DefaultFailureDomainLabel}},
		{index.ClusterByDomainLabel, racks, []string{"rack"}},
		{index.MachineByCluster, &clusterv1.Machine{}, nil},
		{index.MachineByCluster, &clusterv1.Machine{ObjectMeta: ofCluster.ObjectMeta}, []string{"c"}},
		{index.TokenByHash, &corev1.Secret{}, nil},
		{index.TokenByHash, &corev1.Secret{Data: map[string][]byte{index.TokenHashKey: []byte("h")}}, []string{"h"}},
	} {
		g.Expect(indexes).To(HaveKey(tc.index))
		g.Expect(indexes[tc.index](tc.object)).To(Equal(tc.want), tc.index)
		g.Expect(indexes[tc.index](&corev1.ConfigMap{})).To(BeNil(), "objects of other kinds are in no index")
	}
}
