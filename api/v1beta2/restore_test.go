package v1beta2_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// runningCluster is what a running cluster's objects look like, each with every
// field that survives.
func runningCluster(namespace string) []client.Object {
	meta := func(name string, finalizers ...string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: name, Namespace: namespace, Finalizers: finalizers,
			Labels:      map[string]string{clusterv1.ClusterNameLabel: "c", infrav1.RegistrationLabel: "r"},
			Annotations: map[string]string{clusterv1.PausedAnnotation: "", "clusterctl.cluster.x-k8s.io/block-move": ""},
		}
	}
	machine := infrav1.ElementalMachineSpec{
		HostSelector: &infrav1.HostSelector{
			MatchLabels: map[string]string{"role": "worker"},
			MatchExpressions: []infrav1.HostSelectorRequirement{
				{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
			},
		},
		Release: infrav1.ReleasePolicy{
			Policy: infrav1.ReleaseHold, EraseDataDisks: infrav1.EraseZero, DisconnectedTimeoutSeconds: ptr.To[int32](300),
		},
	}
	remediation := infrav1.ElementalRemediationSpec{Reboots: ptr.To[int32](2), RecoverySeconds: ptr.To[int32](60)}
	until := metav1.NewTime(time.Date(2026, time.January, 2, 0, 0, 0, 0, time.UTC))
	bound := *machine.DeepCopy()
	bound.ProviderID = "elemental://" + namespace + "/edge-1"
	bound.HostRef = &infrav1.HostReference{Name: "edge-1", ClaimID: "claim-1"}
	cluster := infrav1.ElementalClusterSpec{
		ControlPlaneEndpoint:       infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443},
		ControlPlaneEndpointPolicy: infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeHost},
		FailureDomains:             infrav1.FailureDomainSource{HostLabel: "zone"},
	}
	filled := *cluster.DeepCopy()
	filled.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{
		Name: "edge-1", ChosenAt: metav1.NewTime(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)),
	}
	tunnelled := *cluster.DeepCopy()
	tunnelled.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "tunnelled-endpoint.sites.svc.cluster.local", Port: 16443}
	tunnelled.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{Type: infrav1.EndpointTypeTunnel}
	return []client.Object{
		&infrav1.ElementalCluster{ObjectMeta: meta("c", infrav1.ClusterFinalizer), Spec: filled},
		&infrav1.ElementalCluster{ObjectMeta: meta("tunnelled", infrav1.ClusterFinalizer), Spec: tunnelled},
		&infrav1.ElementalClusterTemplate{ObjectMeta: meta("c"), Spec: infrav1.ElementalClusterTemplateSpec{
			Template: infrav1.ElementalClusterTemplateResource{Spec: &cluster},
		}},
		&infrav1.ElementalMachine{ObjectMeta: meta("m", infrav1.MachineFinalizer), Spec: bound},
		&infrav1.ElementalMachine{
			ObjectMeta: meta("pinned", infrav1.MachineFinalizer), Spec: infrav1.ElementalMachineSpec{
				HostName: "edge-1", HostRef: bound.HostRef, ProviderID: bound.ProviderID, Release: bound.Release,
			},
		},
		&infrav1.ElementalMachineTemplate{ObjectMeta: meta("m"), Spec: infrav1.ElementalMachineTemplateSpec{
			Template: infrav1.ElementalMachineTemplateResource{
				ObjectMeta: clusterv1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: &machine,
			},
		}},
		&infrav1.ElementalHost{ObjectMeta: meta("edge-1", "test/hold"), Spec: infrav1.ElementalHostSpec{
			HostID: "h1",
			Identity: &infrav1.HostIdentity{
				KeyFingerprint: key("0f"), NextKeyFingerprint: key("0e"), FormerKeyFingerprint: key("0d"),
				Match: &infrav1.IdentityMatch{SerialNumber: "4711"}, Generation: 3,
			},
			Lock:            &infrav1.HostLock{Reason: infrav1.LockCloned, Message: "a former key was used"},
			RegistrationRef: &infrav1.LocalReference{Name: "r"},
			Approval:        infrav1.ApprovalApproved,
			PendingReason:   infrav1.PendingReadopted,
			Claim:           &infrav1.HostClaim{ID: "claim-1", ClusterName: "c", MachineName: "m", Phase: infrav1.ClaimBound},
			Cordon:          &infrav1.HostCordon{Reason: "rack moves"},
			Maintenance:     &infrav1.HostMaintenance{Reason: "new disk", Until: until},
			Quarantine:      &infrav1.HostQuarantine{Reason: "failed", Until: until, Failures: 2},
			Fence:           &infrav1.HostFence{Reason: "dead"},
			Reboot:          &infrav1.HostReboot{ID: "reboot-1"},
			OSUpgrade:       &infrav1.HostOSUpgrade{ID: "upgrade-1", Image: "oci:registry.example.com/os:v2"},
			Hostname:        "edge-1",
		}},
		&infrav1.ElementalHost{ObjectMeta: meta("edge-2", "test/hold"), Spec: infrav1.ElementalHostSpec{
			Approval: infrav1.ApprovalApproved,
			Claim: &infrav1.HostClaim{
				ID: "claim-2", ClusterName: "c", MachineName: "m2", Phase: infrav1.ClaimHeld, Erase: infrav1.EraseDiscard,
			},
		}},
		&infrav1.ElementalRemediation{ObjectMeta: meta("m"), Spec: remediation},
		&infrav1.ElementalRemediationTemplate{ObjectMeta: meta("m"), Spec: infrav1.ElementalRemediationTemplateSpec{
			Template: infrav1.ElementalRemediationTemplateResource{Spec: &remediation},
		}},
		&infrav1.ElementalRegistration{ObjectMeta: meta("r"), Spec: infrav1.ElementalRegistrationSpec{
			HostTemplate: infrav1.HostTemplate{
				Labels: map[string]string{"site": "berlin"}, Annotations: map[string]string{"note": "first floor"},
				NamePattern: "edge-{{ .HostID }}",
			},
			Token:    infrav1.TokenPolicy{TTLSeconds: 3600, MaxUses: 10},
			Approval: infrav1.ApprovalManual, Readoption: infrav1.ReadoptionPending, MaxPendingHosts: 7,
			Agent: &infrav1.AgentRelease{Version: "v1.2.3", Binaries: []infrav1.AgentBinary{
				{Architecture: "arm64", SHA256: strings.Repeat("0f", 32)},
			}},
			Endpoint: infrav1.RegistrationEndpoint{URL: "https://elemental.example.com"},
		}},
	}
}

func key(digits string) string { return "sha256:" + strings.Repeat(digits, 32) }

// A move and a restore from backup create objects that are complete from the
// start, and nothing of them may get lost on the way.
func TestRunningClusterCanBeRestored(t *testing.T) {
	g := NewWithT(t)
	c, source, target := strictClient(t), env.Namespace(t), env.Namespace(t)

	g.Expect(create(t.Context(), c, runningCluster(source)...)).To(Succeed())
	for _, want := range runningCluster(target) {
		dump := want.DeepCopyObject().(client.Object)
		dump.SetNamespace(source)
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(dump), dump)).To(Succeed())
		dump.SetNamespace(target)
		dump.SetResourceVersion("")
		dump.SetUID("")
		g.Expect(c.Create(t.Context(), dump)).To(Succeed())

		g.Expect(dump.GetFinalizers()).To(Equal(want.GetFinalizers()))
		g.Expect(dump.GetAnnotations()).To(Equal(want.GetAnnotations()))
		got, expected := spec(g, dump), spec(g, want)
		// The only thing that differs is a name that has the namespace in it.
		if m, ok := got.(map[string]any); ok {
			if id, ok := m["providerID"].(string); ok {
				m["providerID"] = strings.Replace(id, source, target, 1)
			}
		}
		g.Expect(got).To(Equal(expected), "%T %s", want, want.GetName())
	}
}

// A move patches what it has deleted: it drops finalizers and replaces the
// annotations. No rule may be in its way.
func TestDeletedObjectsCanBePatched(t *testing.T) {
	g := NewWithT(t)
	c, namespace := strictClient(t), env.Namespace(t)
	for _, obj := range runningCluster(namespace) {
		obj.SetFinalizers([]string{"test/hold"})
		g.Expect(c.Create(t.Context(), obj)).To(Succeed())
		g.Expect(c.Delete(t.Context(), obj)).To(Succeed())
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"clusterctl.cluster.x-k8s.io/delete-for-move":""}}}`))
		g.Expect(c.Patch(t.Context(), obj, patch)).To(Succeed(), "%T", obj)
		g.Expect(obj.GetDeletionTimestamp().IsZero()).To(BeFalse())
		patch = client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		g.Expect(c.Patch(t.Context(), obj, patch)).To(Succeed(), "%T", obj)
	}
}

func spec(g Gomega, obj client.Object) any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	g.Expect(err).NotTo(HaveOccurred())
	return content["spec"]
}
