package manifests_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/grant"
)

// ofThePool is in the name of each object of the pool that a tenant must not see.
const ofThePool = "of-the-pool"

// A tenant that is `admin` of its namespace, as docs/sharing.md binds it, reads the host that was
// granted to it and the Events on it. It reads nothing in the namespace of the pool, and nothing of
// the pool is in what it reads, apart from the name of that namespace.
func TestThreat103_TenantSeesWhatWasGranted(t *testing.T) {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(time.Minute)
	pool, tenant := env.Namespace(t), env.Namespace(t)
	createPool(t, pool)
	grantHost(t, pool, tenant)
	reader := bindAdmin(t, tenant)

	hosts := &infrav1.ElementalHostList{}
	g.Eventually(func() error { return reader.List(t.Context(), hosts, client.InNamespace(tenant)) }).Should(Succeed())
	g.Expect(hosts.Items).To(HaveLen(1))
	host := &infrav1.ElementalHost{}
	g.Expect(reader.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "edge-1"}, host)).To(Succeed())
	recorded := &corev1.EventList{}
	g.Eventually(func() ([]corev1.Event, error) {
		err := reader.List(t.Context(), recorded, client.InNamespace(tenant))
		return recorded.Items, err
	}).Should(ConsistOf(HaveField("Message", "Namespace "+pool+" has granted the host")))
	for _, seen := range []any{host, recorded} {
		text, err := json.Marshal(seen)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(text)).NotTo(ContainSubstring(ofThePool))
	}

	for _, o := range []client.Object{
		&infrav1.ElementalHost{}, &infrav1.ElementalHostGrant{}, &infrav1.ElementalRegistration{}, &corev1.Secret{}, &corev1.Event{},
	} {
		t.Run(fmt.Sprintf("%T", o), func(t *testing.T) { expectForbidden(t, reader, pool, o) })
	}
}

// expectForbidden checks that an object of the pool exists, and that the reader gets it neither by
// its name nor in a list.
func expectForbidden(t *testing.T, reader client.Client, pool string, o client.Object) {
	t.Helper()
	g := NewWithT(t)
	gvk, err := reader.GroupVersionKindFor(o)
	g.Expect(err).NotTo(HaveOccurred())
	made, err := env.Scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	g.Expect(err).NotTo(HaveOccurred())
	list, isList := made.(client.ObjectList)
	g.Expect(isList).To(BeTrue())
	key := client.ObjectKey{Namespace: pool, Name: ofThePool}
	g.Expect(env.Client(t).Get(t.Context(), key, o)).To(Succeed())
	for what, got := range map[string]error{
		"get":              reader.Get(t.Context(), key, o),
		"list":             reader.List(t.Context(), list, client.InNamespace(pool)),
		"list everywhere":  reader.List(t.Context(), list),
		"list by its name": reader.List(t.Context(), list, client.InNamespace(pool), client.MatchingFields{"metadata.name": ofThePool}),
	} {
		g.Expect(apierrors.IsForbidden(got)).To(BeTrue(), "%s: %v", what, got)
	}
}

// createPool creates an object of each kind that a pool has, and the free host edge-1.
func createPool(t *testing.T, pool string) {
	t.Helper()
	g, admin := NewWithT(t), env.Client(t)
	meta := metav1.ObjectMeta{Namespace: pool, Name: ofThePool}
	for _, o := range []client.Object{
		&infrav1.ElementalRegistration{ObjectMeta: meta},
		&corev1.Secret{ObjectMeta: meta},
		&corev1.Event{ObjectMeta: meta, InvolvedObject: corev1.ObjectReference{Namespace: pool}},
		controllertest.FreeHost(pool, ofThePool, time.Now()),
	} {
		g.Expect(admin.Create(t.Context(), o)).To(Succeed())
	}
	host := controllertest.FreeHost(pool, "edge-1", time.Now())
	host.Labels = map[string]string{"size": "big", infrav1.RegistrationLabel: ofThePool}
	host.Annotations = map[string]string{"pool.example.com/contract": ofThePool}
	host.Spec.RegistrationRef = &infrav1.LocalReference{Name: ofThePool}
	host.Spec.Identity = &infrav1.HostIdentity{KeyFingerprint: fmt.Sprintf("sha256:%064x", 1), Generation: 1}
	status := host.Status
	g.Expect(admin.Create(t.Context(), host)).To(Succeed())
	before := host.DeepCopy()
	host.Status = status
	host.Status.KeyFingerprint = host.Spec.Identity.KeyFingerprint
	g.Expect(admin.Status().Patch(t.Context(), host, client.MergeFrom(before))).To(Succeed())
}

// grantHost grants a host of the pool to the tenant, as the manager does.
func grantHost(t *testing.T, pool, tenant string) {
	t.Helper()
	g, admin := NewWithT(t), env.Client(t)
	granted := &infrav1.ElementalHostGrant{ObjectMeta: metav1.ObjectMeta{Namespace: pool, Name: ofThePool}}
	granted.Spec.Namespace, granted.Spec.Count = tenant, new(int32(1))
	granted.Spec.Hosts.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"size": "big"}}
	g.Expect(admin.Create(t.Context(), granted)).To(Succeed())
	clients, err := kubernetes.NewForConfig(env.Config)
	g.Expect(err).NotTo(HaveOccurred())
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clients.EventsV1()})
	t.Cleanup(broadcaster.Shutdown)
	g.Expect(broadcaster.StartRecordingToSinkWithContext(t.Context())).To(Succeed())
	reconciler := &grant.Reconciler{
		Client: admin, APIReader: admin, Recorder: broadcaster.NewRecorder(env.Scheme, "elemental"), Clock: clock.RealClock{},
	}
	_, err = reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(granted)})
	g.Expect(err).NotTo(HaveOccurred())
}

// bindAdmin binds Kubernetes' role admin, with the release's part of it, to a user in a namespace.
// It returns a client of that user.
func bindAdmin(t *testing.T, in string) client.Client {
	t.Helper()
	g, admin := NewWithT(t), env.Client(t)
	roles := releasedRoles(t)
	list := &rbacv1.ClusterRoleList{}
	g.Expect(admin.List(t.Context(), list)).To(Succeed())
	for i := range list.Items {
		roles[list.Items[i].Name] = &list.Items[i]
	}
	// In a cluster, kube-controller-manager does this.
	role := roles["admin"]
	before := role.Rules
	role.Rules = aggregated(g, roles, role)
	g.Expect(admin.Update(t.Context(), role)).To(Succeed())
	t.Cleanup(func() {
		role.Rules = before
		g.Expect(admin.Update(context.WithoutCancel(t.Context()), role)).To(Succeed(), "other tests share the API server")
	})
	user := "leads-of-" + in
	g.Expect(admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: "leads"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
	c, err := client.New(env.AddUser(t, user), client.Options{Scheme: env.Scheme})
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

// aggregated returns the rules of a role and of all roles that become part of it.
func aggregated(g Gomega, roles map[string]*rbacv1.ClusterRole, of *rbacv1.ClusterRole) []rbacv1.PolicyRule {
	if of.AggregationRule == nil {
		return of.Rules
	}
	var rules []rbacv1.PolicyRule
	for i := range of.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&of.AggregationRule.ClusterRoleSelectors[i])
		g.Expect(err).NotTo(HaveOccurred())
		for _, name := range slices.Sorted(maps.Keys(roles)) {
			if selector.Matches(labels.Set(roles[name].Labels)) {
				rules = append(rules, aggregated(g, roles, roles[name])...)
			}
		}
	}
	return rules
}
