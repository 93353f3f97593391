//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// failureShownTime bounds the time from the failure of a bootstrap until each object shows it,
// also on a busy machine. Otherwise it takes less than a second.
const failureShownTime = 10 * time.Second

// failedAtFile is the file in which the bootstrap data below records when it failed.
const failedAtFile = "/run/failed-at"

const failingData = `#cloud-config
runcmd:
- date +%s%N > ` + failedAtFile + `; echo "no such disk" >&2; exit 3
`

// expectFailureShown adds a Machine whose bootstrap fails, which each object has to show soon.
func (w workload) expectFailureShown(ctx context.Context) {
	GinkgoHelper()
	name := w.Name + "-failing"
	labels := map[string]string{clusterv1.ClusterNameLabel: w.Name}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Type:       clusterv1.ClusterSecretType,
		StringData: map[string]string{"value": failingData, "format": "cloud-config"},
	}
	infraMachine := &infrav1.ElementalMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: clusterv1.MachineSpec{
			ClusterName: w.Name,
			Bootstrap:   clusterv1.Bootstrap{DataSecretName: new(name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name,
			},
		},
	}
	for _, object := range []client.Object{secret, infraMachine, machine} {
		Expect(management.Create(ctx, object)).To(Succeed())
	}
	host := &infrav1.ElementalHost{}
	shown := map[string]time.Time{}
	Eventually(func(g Gomega) {
		g.Expect(management.Get(ctx, client.ObjectKeyFromObject(infraMachine), infraMachine)).To(Succeed())
		g.Expect(infraMachine.Spec.HostRef).NotTo(BeNil())
		g.Expect(management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: infraMachine.Spec.HostRef.Name}, host)).To(Succeed())
		g.Expect(management.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		recordFailure(shown, "ElementalHost", host.Status.Conditions, infrav1.BootstrappedCondition)
		recordFailure(shown, "ElementalMachine", infraMachine.Status.Conditions, infrav1.BootstrappedCondition)
		recordFailure(shown, "Machine", machine.Status.Conditions, clusterv1.MachineInfrastructureReadyCondition)
		g.Expect(shown).To(HaveLen(3))
	}).WithTimeout(2 * time.Minute).WithPolling(20 * time.Millisecond).Should(Succeed())

	failedAt := w.failedAt(ctx, host)
	for _, kind := range []string{"ElementalHost", "ElementalMachine", "Machine"} {
		took := shown[kind].Sub(failedAt)
		fmt.Printf("  the failure shows on %s after %.2f s\n", kind, took.Seconds())
		Expect(took).To(BeNumerically("<", failureShownTime), kind)
	}
	condition := meta.FindStatusCondition(infraMachine.Status.Conditions, infrav1.BootstrappedCondition)
	Expect(condition.Message).To(ContainSubstring("no such disk"))
	Expect(management.Delete(ctx, machine)).To(Succeed())
	Expect(management.Delete(ctx, secret)).To(Succeed())
	Eventually(func() error {
		return management.Get(ctx, client.ObjectKeyFromObject(machine), machine)
	}).WithTimeout(resetTimeout).Should(MatchError(ContainSubstring("not found")))
	endQuarantine(ctx, host)
}

// endQuarantine offers the host again. In a lab that is kept, its bootstrap has failed in former
// runs too.
func endQuarantine(ctx context.Context, host *infrav1.ElementalHost) {
	GinkgoHelper()
	Expect(management.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
	if host.Spec.Quarantine == nil {
		return
	}
	before := host.DeepCopy()
	host.Spec.Quarantine = nil
	Expect(management.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
}

// recordFailure records when a condition first showed the failure.
func recordFailure(shown map[string]time.Time, kind string, conditions []metav1.Condition, conditionType string) {
	c := meta.FindStatusCondition(conditions, conditionType)
	if _, known := shown[kind]; !known && c != nil && c.Reason == infrav1.BootstrapFailedReason {
		shown[kind] = time.Now()
	}
}

func (w workload) failedAt(ctx context.Context, host *infrav1.ElementalHost) time.Time {
	GinkgoHelper()
	for _, box := range hosts.Hosts() {
		if !hasAddress(host, box.Address) {
			continue
		}
		text, err := box.Exec(ctx, "cat", failedAtFile)
		Expect(err).NotTo(HaveOccurred())
		nanoseconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		Expect(err).NotTo(HaveOccurred())
		return time.Unix(0, nanoseconds)
	}
	Fail("no host has the address of " + host.Name)
	return time.Time{}
}
