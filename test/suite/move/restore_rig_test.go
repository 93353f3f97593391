//go:build embedded

package move

import (
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

// host returns the ElementalHost of a virtual host.
func (m *management) host(h *fleet.Host) *infrav1.ElementalHost {
	m.t.Helper()
	host := &infrav1.ElementalHost{ObjectMeta: meta(h.Status().ElementalHost)}
	m.Expect(m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(host), host)).To(Succeed())
	return host
}

// change changes the ElementalHost of a virtual host.
func (m *management) change(h *fleet.Host, change func(*infrav1.ElementalHostSpec)) {
	m.t.Helper()
	patch(m, m.host(h), func(host *infrav1.ElementalHost) { change(&host.Spec) })
}

// machine creates a worker for one host.
func (m *management) machine(name string, on *fleet.Host) {
	m.t.Helper()
	labelled := meta(name)
	labelled.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster}
	secret := &corev1.Secret{ObjectMeta: labelled, Type: clusterv1.ClusterSecretType, Data: map[string][]byte{
		"value": []byte("#cloud-config\n"), "format": []byte("cloud-config"),
	}}
	machine := &clusterv1.Machine{ObjectMeta: labelled, Spec: clusterv1.MachineSpec{
		ClusterName: cluster, Bootstrap: clusterv1.Bootstrap{DataSecretName: &name},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name},
	}}
	infra := &infrav1.ElementalMachine{ObjectMeta: labelled}
	infra.Spec.HostName = on.Status().ElementalHost
	for _, o := range []client.Object{secret, machine, infra} {
		if o == infra {
			infra.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: machine.UID}}
		}
		m.Expect(m.admin.Create(m.t.Context(), o)).To(Succeed())
	}
}

// bootstrapped creates a worker for one host and waits until the host runs its Node.
func (m *management) bootstrapped(name string, on *fleet.Host) {
	m.t.Helper()
	m.machine(name, on)
	m.awaitProvisioned(name)
}

func (m *management) awaitProvisioned(name string) {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		infra := &infrav1.ElementalMachine{ObjectMeta: meta(name)}
		g.Expect(m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		g.Expect(infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()), "%+v", infra.Status.Conditions)
	}).Should(Succeed(), name)
}

// remove deletes a Machine, as Cluster API does at the end of the deletion of its infrastructure.
func (m *management) remove(name string) {
	m.t.Helper()
	for _, o := range []client.Object{&infrav1.ElementalMachine{ObjectMeta: meta(name)}, &clusterv1.Machine{ObjectMeta: meta(name)}} {
		m.Expect(client.IgnoreNotFound(m.admin.Delete(m.t.Context(), o))).To(Succeed())
	}
}

func (m *management) awaitFree(h *fleet.Host) {
	m.t.Helper()
	m.Eventually(func() *infrav1.HostClaim { return m.host(h).Spec.Claim }).Should(BeNil(), h.Name)
	m.awaitCondition(h, infrav1.AvailableCondition, Equal(infrav1.AvailableReason), "")
}

// awaitClaim waits until the claim of a host is in a phase.
func (m *management) awaitClaim(h *fleet.Host, phase infrav1.ClaimPhase) {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		claim := m.host(h).Spec.Claim
		g.Expect(claim).NotTo(BeNil())
		g.Expect(claim.Phase).To(Equal(phase))
	}).Should(Succeed(), h.Name)
}

// awaitCondition waits until a condition of a host has a reason, and names something.
func (m *management) awaitCondition(h *fleet.Host, condition string, reason types.GomegaMatcher, names string) {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		is := apimeta.FindStatusCondition(m.host(h).Status.Conditions, condition)
		g.Expect(is).NotTo(BeNil())
		g.Expect(is.Reason).To(reason, "%+v", is)
		g.Expect(is.Message).To(ContainSubstring(names))
	}).Should(Succeed(), "%s of %s", condition, h.Name)
}

// awaitOperation waits until the manager knows that a host has ended the operation of its claim.
func (m *management) awaitOperation(h *fleet.Host, kind infrav1.OperationType, state infrav1.OperationState, names string) {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		host := m.host(h)
		g.Expect(host.Spec.Claim).NotTo(BeNil())
		op := host.Operation(kind, host.Spec.Claim.ID)
		g.Expect(op).NotTo(BeNil())
		g.Expect(op.State).To(Equal(state), "%+v", op)
		g.Expect(op.Message).To(ContainSubstring(names))
	}).Should(Succeed(), "%s of %s", kind, h.Name)
}

// awaitReboot waits until the host says that it has rebooted for the request.
func (m *management) awaitReboot(h *fleet.Host, id string) {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		op := m.host(h).Operation(infrav1.OperationReboot, id)
		g.Expect(op).NotTo(BeNil())
		g.Expect(op.State).To(Equal(infrav1.OperationSucceeded))
	}).Should(Succeed(), "reboot of %s", h.Name)
}

// exists reports whether the ElementalHost of a virtual host exists.
func (m *management) exists(h *fleet.Host) bool {
	m.t.Helper()
	err := m.admin.Get(m.t.Context(), client.ObjectKey{Namespace: sites, Name: h.Status().ElementalHost}, &infrav1.ElementalHost{})
	if !apierrors.IsNotFound(err) {
		m.Expect(err).NotTo(HaveOccurred())
	}
	return err == nil
}

// deeds are what hosts have done.
type deeds map[string]fleet.Done

func deedsOf(hosts []*fleet.Host) deeds {
	out := deeds{}
	for _, h := range hosts {
		done := h.Status().Done
		done.Cuts = 0
		out[h.Name] = done
	}
	return out
}

// setNetwork cuts all hosts off, or connects them.
func setNetwork(hosts []*fleet.Host, up bool) {
	for _, h := range hosts {
		h.SetNetwork(up)
	}
}

func hostsOf(fleets ...*fleet.Fleet) []*fleet.Host {
	var out []*fleet.Host
	for _, f := range fleets {
		out = append(out, f.Hosts()...)
	}
	return out
}
