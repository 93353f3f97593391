//go:build embedded

package main_test

import (
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// checkDeclared checks that hosts that were declared for the key with that number are nobody, and say so. They do not tell
// which namespace the machine is in.
func (w *world) checkDeclared(number int) {
	w.t.Helper()
	for _, way := range []string{"key", "match", "next", "former"} {
		name := fmt.Sprintf("%s-%s-%d", stolen, way, number)
		w.Eventually(func(g Gomega) {
			h := w.host(hostile, name)
			g.Expect(h.Status.KeyFingerprint).To(BeEmpty(), name)
			g.Expect(h.Spec.Claim).To(BeNil(), name)
			if way == "key" || way == "match" {
				c := meta.FindStatusCondition(h.Status.Conditions, infrav1.KeyAcceptedCondition)
				g.Expect(c).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", infrav1.DeclaredElsewhereReason))), name)
				g.Expect(c.Message).NotTo(ContainSubstring(tenant))
			}
		}).Should(Succeed())
	}
}

// checkSquatters checks that clusters have got no address of a victim, whether they have hosts or not, and that their hosts
// are told neither to announce it nor to bootstrap.
func (w *world) checkSquatters(hosts []*honest) {
	w.t.Helper()
	for _, s := range squats() {
		machine := &infrav1.ElementalMachine{ObjectMeta: metav1.ObjectMeta{Namespace: squatters, Name: s.name}}
		w.Eventually(func() bool {
			w.Expect(w.get(machine)).To(Succeed())
			return machine.Spec.HostRef != nil
		}).Should(Equal(s.inSpec), "a machine waits for its cluster's endpoint")
		cluster := &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: squatters, Name: s.name}}
		w.Eventually(func(g Gomega) {
			g.Expect(w.get(cluster)).To(Succeed())
			c := meta.FindStatusCondition(cluster.Status.Conditions, infrav1.ControlPlaneEndpointReadyCondition)
			g.Expect(c).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", infrav1.VIPInUseReason))), s.name)
		}).Should(Succeed())
		w.Expect(cluster.Status.VirtualIP).To(BeEmpty(), s.name)
		w.Expect(cluster.Status.Initialization.Provisioned).To(BeNil(), s.name)
		w.Expect(s.is(cluster.Spec.ControlPlaneEndpoint.Host)).To(Equal(s.inSpec), "only its tenant has written the endpoint of %s", s.name)
	}
	for _, h := range hosts {
		w.Expect(w.plan(h).Desired.Files).To(BeEmpty(), h.name)
		w.Expect(w.plan(h).Operation).To(BeNil(), h.name)
	}
}

// checkImpostors checks that impostors say what they are, and that nothing changes by their deletion.
func (w *world) checkImpostors(before map[string]string) {
	w.t.Helper()
	clusters, machine := impostors()
	objects := []client.Object{machine}
	mismatch := func(object client.Object, conditions *[]metav1.Condition) {
		w.Eventually(func(g Gomega) {
			g.Expect(w.get(object)).To(Succeed())
			c := meta.FindStatusCondition(*conditions, infrav1.ReadyCondition)
			g.Expect(c).To(HaveValue(HaveField("Reason", infrav1.ReferenceMismatchReason)), object.GetName())
		}).Should(Succeed())
	}
	mismatch(machine, &machine.Status.Conditions)
	for _, c := range clusters {
		mismatch(c, &c.Status.Conditions)
		objects = append(objects, c)
	}
	for _, o := range objects {
		w.Expect(w.admin.Delete(w.t.Context(), o)).To(Succeed())
		w.Eventually(func() error { return w.get(o) }).Should(MatchError(apierrors.IsNotFound, "IsNotFound"), o.GetName())
	}
	w.Expect(w.settled()).To(Equal(before), "the victims' objects, versions included")
}

// hostsOf returns the hosts that the rogue became in an attempt.
func (w *world) hostsOf(results map[string]result, attempt string) []*infrav1.ElementalHost {
	w.t.Helper()
	var out []*infrav1.ElementalHost
	for _, name := range results[attempt].Hosts {
		namespace, name, _ := strings.Cut(name, "/")
		out = append(out, w.host(namespace, name))
	}
	return out
}

// checkGuests checks that nobody has approved hosts that only an administrator may approve, and that Machines have got none
// of them.
func (w *world) checkGuests(results map[string]result) {
	w.t.Helper()
	const shape, serials, returned, moved = "shape the capacity with hosts that nobody has approved", "enrol with the serial numbers of others",
		"return after its deletion without a word", "use a long-lived token that was moved"
	for attempt, namespaces := range map[string][]string{
		shape: {tenant, shared, hostile}, serials: {shared, hostile}, returned: {hostile}, moved: {hostile},
	} {
		found := map[string]bool{}
		for _, h := range w.hostsOf(results, attempt) {
			found[h.Namespace] = true
			w.Expect(h.Spec.Approval).To(Equal(infrav1.ApprovalPending), "%s: %s", attempt, h.Name)
			w.Expect(h.Spec.Claim).To(BeNil(), "%s: %s", attempt, h.Name)
			w.Expect(attempt != returned || h.Spec.PendingReason == infrav1.PendingReturned).To(BeTrue())
		}
		w.Expect(found).To(HaveLen(len(namespaces)), attempt)
		for _, namespace := range namespaces {
			w.Expect(found).To(HaveKey(namespace), attempt)
		}
	}
	w.Expect(results[returned].Hosts).To(HaveLen(1))
	w.Expect(slices.Contains(results[serials].Hosts, shared+"/"+unbound)).To(BeTrue(), "the machine came, and waits for an administrator")
	w.Expect(slices.Contains(results[serials].Hosts, shared+"/"+bound)).To(BeFalse())
	machine := &infrav1.ElementalMachine{ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: waiting}}
	w.Expect(w.get(machine)).To(Succeed())
	w.Expect(machine.Spec.HostRef).To(BeNil())

	deputies := w.hostsOf(results, "ask for keys and kubeconfigs as bootstrap data")
	w.Expect(deputies).To(HaveLen(4))
	for _, h := range deputies {
		w.Expect(h.Spec.Claim).To(HaveValue(HaveField("MachineName", HavePrefix("deputy-"))))
		w.Expect(h.IsBootstrapped()).To(BeFalse())
	}
}
