package manifests_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// The webhook that records who changes a host is required for the changes that it records,
// and for no others: nothing serves it here, so a change that needs it is refused.
func TestThreat56_NoChangeIsUnrecorded(t *testing.T) {
	g := NewWithT(t)
	admin, ns := env.Client(t), env.Namespace(t)
	newHost := func() *infrav1.ElementalHost {
		host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: ns, Finalizers: []string{"test/hold"}}}
		host.Spec.Claim = &infrav1.HostClaim{ClusterName: "c", MachineName: "m", ID: "1", Phase: infrav1.ClaimHeld}
		host.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned}
		return host
	}
	host := newHost()
	g.Expect(admin.Create(t.Context(), host)).To(Succeed())
	requireWebhook(t, "audit.elementalhost.infrastructure.cluster.x-k8s.io")
	g.Eventually(func() error { return admin.Create(t.Context(), newHost(), client.DryRunAll) }).WithTimeout(time.Minute).
		Should(MatchError(ContainSubstring("failed calling webhook")))

	for name, tc := range map[string]struct {
		change  func(h *infrav1.ElementalHost)
		refused bool
	}{
		"approval":  {func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalApproved }, true},
		"rejection": {func(h *infrav1.ElementalHost) { h.Spec.Approval = infrav1.ApprovalRejected }, true},
		"unlock":    {func(h *infrav1.ElementalHost) { h.Spec.Lock = nil }, true},
		"fence":     {func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "stolen"} }, true},
		"phase":     {func(h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimReleasing }, true},
		"no claim":  {func(h *infrav1.ElementalHost) { h.Spec.Claim = nil }, true},
		"identity": {func(h *infrav1.ElementalHost) {
			h.Spec.Identity = &infrav1.HostIdentity{Match: &infrav1.IdentityMatch{SerialNumber: "1"}}
		}, true},
		"bundle": {func(h *infrav1.ElementalHost) {
			h.Spec.Bundle = &infrav1.HostBundle{Version: "v1.34.1", SHA256: strings.Repeat("ab", 32), SizeBytes: 1, Sources: []string{"manager"}}
		}, true},
		"upgrade": {func(h *infrav1.ElementalHost) {
			h.Spec.NodeUpgrade = &infrav1.HostNodeUpgrade{ID: "1", Role: infrav1.UpgradeWorker, OSImage: "oci:a"}
		}, true},
		"OS upgrade": {func(h *infrav1.ElementalHost) { h.Spec.OSUpgrade = &infrav1.HostOSUpgrade{ID: "1", Image: "oci:a"} }, true},
		"restore": {func(h *infrav1.ElementalHost) {
			h.Spec.EtcdRestore = &infrav1.HostEtcdRestore{ID: "1", RestoreName: "r", SnapshotID: "s", SHA256: strings.Repeat("ab", 32)}
		}, true},
		"host ID":            {func(h *infrav1.ElementalHost) { h.Spec.HostID = "1" }, true},
		"registration":       {func(h *infrav1.ElementalHost) { h.Spec.RegistrationRef = &infrav1.LocalReference{Name: "r"} }, true},
		"reason":             {func(h *infrav1.ElementalHost) { h.Spec.PendingReason = infrav1.PendingReturned }, true},
		"end of maintenance": {func(h *infrav1.ElementalHost) { h.Spec.MaintenanceEndedAt = metav1.Unix(1, 0) }, false},
		"cordon":             {func(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "full"} }, false},
		"reboot":             {func(h *infrav1.ElementalHost) { h.Spec.Reboot = &infrav1.HostReboot{ID: "1"} }, false},
		"label":              {func(h *infrav1.ElementalHost) { h.Labels = map[string]string{"a": "b"} }, false},
		"finalizer":          {func(h *infrav1.ElementalHost) { h.Finalizers = append(h.Finalizers, "test/more") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := host.DeepCopy()
			tc.change(changed)
			expectRefusal(t, admin.Update(t.Context(), changed.DeepCopy(), client.DryRunAll), tc.refused)
			expectRefusal(t, clientAs(t, "system:serviceaccount:"+namespace+":elemental-manager").Update(t.Context(), changed.DeepCopy(), client.DryRunAll), false)
			expectRefusal(t, clientAs(t, "system:serviceaccount:"+ns+":elemental-manager").Update(t.Context(), changed.DeepCopy(), client.DryRunAll), tc.refused)
		})
	}
	t.Run("status", func(t *testing.T) {
		changed := host.DeepCopy()
		changed.Status.KeyFingerprint = "sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
		expectRefusal(t, admin.Status().Update(t.Context(), changed), false)
	})
	t.Run("deletion", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(admin.Delete(t.Context(), host)).To(Succeed())
		g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(host), host)).To(Succeed())
		host.Finalizers = nil
		g.Expect(admin.Update(t.Context(), host)).To(Succeed())
	})
}

func expectRefusal(t *testing.T, err error, refused bool) {
	t.Helper()
	if g := NewWithT(t); refused {
		g.Expect(err).To(MatchError(ContainSubstring("failed calling webhook")))
	} else {
		g.Expect(err).NotTo(HaveOccurred())
	}
}

// requireWebhook registers a webhook of the release at an address where nothing listens.
func requireWebhook(t *testing.T, name string) {
	t.Helper()
	g := NewWithT(t)
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	for _, obj := range objects(t, filepath.Join(release(t), "infrastructure-components.yaml"), nil) {
		if obj.GetKind() == "ValidatingWebhookConfiguration" {
			convert(g, obj, configuration)
		}
	}
	for _, hook := range configuration.Webhooks {
		if hook.Name == name {
			hook.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}
			configuration.Webhooks = []admissionregistrationv1.ValidatingWebhook{hook}
		}
	}
	g.Expect(configuration.Webhooks).To(HaveLen(1))
	configuration.ObjectMeta = metav1.ObjectMeta{GenerateName: "test-"}
	g.Expect(env.Client(t).Create(t.Context(), configuration)).To(Succeed())
	t.Cleanup(func() {
		if err := env.Client(t).Delete(context.Background(), configuration); err != nil {
			t.Errorf("removing the webhook: %v", err)
		}
		awaitNoWebhooks(t)
	})
}

// awaitNoWebhooks waits until the API server calls no webhook any more. It learns of removed ones
// late, and other tests write objects that the webhooks validate.
func awaitNoWebhooks(t *testing.T) {
	t.Helper()
	admin, meta := env.Client(t), metav1.ObjectMeta{GenerateName: "test-", Namespace: env.Namespace(t)}
	NewWithT(t).Eventually(func() error {
		host := &infrav1.ElementalHost{ObjectMeta: meta, Spec: infrav1.ElementalHostSpec{Approval: infrav1.ApprovalApproved}}
		return errors.Join(
			admin.Create(context.Background(), host, client.DryRunAll),
			admin.Create(context.Background(), &infrav1.ElementalMachine{ObjectMeta: meta}, client.DryRunAll),
			admin.Create(context.Background(), &infrav1.ElementalEtcdRestore{ObjectMeta: meta, Spec: infrav1.ElementalEtcdRestoreSpec{
				ClusterName: "c", Source: infrav1.EtcdRestoreSource{Snapshot: &infrav1.EtcdRestoreSnapshot{HostName: "h", ID: "s"}},
			}}, client.DryRunAll),
		)
	}).WithTimeout(time.Minute).Should(Succeed())
}

// clientAs returns an administrator's client with the name of another user.
func clientAs(t *testing.T, user string) client.Client {
	t.Helper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	c, err := client.New(config, client.Options{Scheme: env.Scheme})
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	return c
}
