package conversion_test

import (
	"context"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/selector"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/audit"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/webhook"
)

// serve runs the webhooks of the product, which are registered for v1beta2, until the test ends.
func (r *rig) serve() {
	r.t.Helper()
	options := r.env.ManagerOptions()
	options.WebhookServer = r.env.WebhookServer()
	mgr, err := ctrl.NewManager(r.env.Config, options)
	r.Expect(err).NotTo(HaveOccurred())
	selectors, err := selector.NewCompiler()
	r.Expect(err).NotTo(HaveOccurred())
	requests, err := audit.New(clock.RealClock{}, prometheus.NewRegistry())
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(webhook.Setup(mgr, webhook.Options{
		Selectors: selectors, Recorder: mgr.GetEventRecorder("test"), Requests: requests, Reviews: r.client,
	})).To(Succeed())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		r.Expect(<-ended).To(Succeed())
	})
	r.Eventually(func() error { return mgr.GetWebhookServer().StartedChecker()(nil) }).Should(Succeed())
}

// testRights: the webhook that asks for the verb approve is registered for v1beta2 only, and is
// asked for requests in v1beta3 too.
func testRights(r *rig) {
	ctx := r.t.Context()
	r.Expect(r.client.Create(ctx, &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "pending"}})).To(Succeed())
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{newerGroupVersion.Group}, Resources: []string{"elementalhosts"}, Verbs: []string{"get", "update", "patch"}},
	}}
	r.Expect(r.client.Create(ctx, role)).To(Succeed())
	r.Expect(r.client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "editors"}},
	})).To(Succeed())
	user, err := client.New(r.env.AddUser(r.t, "ann", "editors"), client.Options{Scheme: r.env.Scheme})
	r.Expect(err).NotTo(HaveOccurred())

	approve := func() error {
		host := &ElementalHost{}
		if err := user.Get(ctx, r.key("pending"), host); err != nil {
			return err
		}
		host.Spec.Approval = infrav1.ApprovalApproved
		return user.Update(ctx, host)
	}
	const lacks = "needs the verb approve on elementalhosts"
	r.Eventually(approve).Should(MatchError(ContainSubstring(lacks)))
	r.Expect(apierrors.IsForbidden(approve())).To(BeTrue())
	role.Rules[0].Verbs = append(role.Rules[0].Verbs, "approve")
	r.Expect(r.client.Update(ctx, role)).To(Succeed())
	r.Eventually(approve).Should(Succeed())
	r.Expect(r.old("pending").Spec.Approval).To(Equal(infrav1.ApprovalApproved))
}
