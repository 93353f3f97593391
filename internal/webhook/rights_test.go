package webhook_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/rights"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/webhook"
)

// Users, and the roles of the release that they have in their namespace. Nothing aggregates roles
// here.
const (
	editor   = "editor"
	admin    = "admin"
	operator = "operator"
	manager  = "manager"
	cloner   = "cloner"
)

func rolesOf() map[string][]string {
	return map[string][]string{
		editor:   {"view_role.yaml", "edit_role.yaml"},
		admin:    {"view_role.yaml", "edit_role.yaml", "admin_role.yaml"},
		operator: {"host_operator_role.yaml"},
		manager:  {"role.yaml"},
		cloner:   {"view_role.yaml", "edit_role.yaml", "cluster_api_role.yaml"},
	}
}

// team has clients of users with the roles of the release in one namespace.
type team struct {
	namespace string
	clients   map[string]client.Client
}

func newTeam(t *testing.T) team {
	t.Helper()
	g, c := NewWithT(t), env.Client(t)
	made := team{namespace: env.Namespace(t), clients: map[string]client.Client{}}
	for user, files := range rolesOf() {
		for _, file := range files {
			role := readRole(t, file)
			if err := c.Create(t.Context(), role); !apierrors.IsAlreadyExists(err) {
				g.Expect(err).NotTo(HaveOccurred())
			}
			// Of groups the API server knows by the request only.
			g.Expect(c.Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: made.namespace},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: made.namespace + ":" + user}},
			})).To(Succeed())
		}
		as, err := client.New(env.AddUser(t, user, made.namespace+":"+user), client.Options{Scheme: env.Scheme})
		g.Expect(err).NotTo(HaveOccurred())
		made.clients[user] = as
	}
	return made
}

// readRole returns the ClusterRole of a file of config/rbac.
func readRole(t *testing.T, file string) *rbacv1.ClusterRole {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join("../../config/rbac", file))
	g.Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		g.Expect(yaml.Unmarshal([]byte(document), role)).To(Succeed())
		if role.Kind == "ClusterRole" {
			role.Name = "elemental-" + role.Name
			return role
		}
	}
	t.Fatalf("%s has no ClusterRole", file)
	return nil
}

// decision is a change that needs a verb.
type decision struct {
	verb rights.Verb
	// resource that the verb is needed on.
	resource string
	// try makes the change as somebody, in a dry run.
	try func(ctx context.Context, c client.Client) error
	// may are users who have the verb.
	may []string
}

func decisions(t *testing.T, namespace string) map[string]decision {
	t.Helper()
	g, c := NewWithT(t), env.Client(t)
	meta := metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace}
	host := &infrav1.ElementalHost{ObjectMeta: meta}
	host.Spec.Claim = &infrav1.HostClaim{ClusterName: "c", MachineName: "m", ID: "1", Phase: infrav1.ClaimHeld}
	host.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned}
	g.Expect(c.Create(t.Context(), host)).To(Succeed())
	machine := newMachine(namespace, good)
	g.Expect(c.Create(t.Context(), machine)).To(Succeed())
	restore := newRestore(namespace)
	g.Expect(c.Create(t.Context(), restore)).To(Succeed())

	ofHost := func(verb rights.Verb, change func(*infrav1.ElementalHostSpec), may ...string) decision {
		return decision{verb, "elementalhosts", func(ctx context.Context, c client.Client) error {
			changed := host.DeepCopy()
			change(&changed.Spec)
			return c.Patch(ctx, changed, client.MergeFrom(host), client.DryRunAll)
		}, may}
	}
	ofMachine := func(verb rights.Verb, change func(*infrav1.ElementalMachineSpec), may ...string) decision {
		return decision{verb, "elementalmachines", func(ctx context.Context, c client.Client) error {
			changed := machine.DeepCopy()
			change(&changed.Spec)
			return c.Patch(ctx, changed, client.MergeFrom(machine), client.DryRunAll)
		}, may}
	}
	ofTemplate := func(verb rights.Verb, change func(*infrav1.ElementalMachineSpec), may ...string) decision {
		return decision{verb, "elementalmachinetemplates", func(ctx context.Context, c client.Client) error {
			made := newTemplate(namespace)
			change(made.Spec.Template.Spec)
			return c.Create(ctx, made, client.DryRunAll)
		}, may}
	}
	bundle := infrav1.HostBundle{Version: "v1.34.1", SHA256: strings.Repeat("ab", 32), SizeBytes: 1, Sources: []string{"manager"}}
	zero := func(s *infrav1.ElementalMachineSpec) { s.Release.EraseDataDisks = infrav1.EraseZero }
	image := func(s *infrav1.ElementalMachineSpec) { s.OSImage = "oci:registry.example.com/os" }
	return map[string]decision{
		"approval":    ofHost(rights.Approve, func(s *infrav1.ElementalHostSpec) { s.Approval = infrav1.ApprovalApproved }, operator, manager),
		"unlock":      ofHost(rights.Approve, func(s *infrav1.ElementalHostSpec) { s.Lock = nil }, operator, manager),
		"fence":       ofHost(rights.Fence, func(s *infrav1.ElementalHostSpec) { s.Fence = &infrav1.HostFence{Reason: "dead"} }, admin, operator),
		"release":     ofHost(rights.Release, func(s *infrav1.ElementalHostSpec) { s.Claim.Phase = infrav1.ClaimReleasing }, admin, operator, manager),
		"bundle":      ofHost(rights.Install, func(s *infrav1.ElementalHostSpec) { s.Bundle = &bundle }, operator, manager),
		"OS upgrade":  ofHost(rights.Install, func(s *infrav1.ElementalHostSpec) { s.OSUpgrade = &infrav1.HostOSUpgrade{ID: "1", Image: "oci:a"} }, operator, manager),
		"erasure":     ofMachine(rights.Erase, zero, admin, operator, cloner),
		"image":       ofMachine(rights.Install, image, operator, cloner),
		"erasing":     ofTemplate(rights.Erase, zero, admin, operator, cloner),
		"with image":  ofTemplate(rights.Install, image, operator, cloner),
		"log":         ofHost(rights.Logs, func(s *infrav1.ElementalHostSpec) { s.LogRequest = logRequest() }, admin, operator, manager),
		"restoration": ofHost(rights.Restore, restoring, admin, operator, manager),
		"confirmation": {rights.Restore, "elementaletcdrestores", func(ctx context.Context, c client.Client) error {
			changed := restore.DeepCopy()
			changed.Spec.Confirm = "c"
			return c.Patch(ctx, changed, client.MergeFrom(restore), client.DryRunAll)
		}, []string{admin, operator, manager}},
	}
}

func logRequest() *infrav1.HostLogRequest {
	return &infrav1.HostLogRequest{ID: "1", Operation: infrav1.OperationBootstrap, Until: metav1.Unix(4e9, 0)}
}

func restoring(s *infrav1.ElementalHostSpec) {
	s.EtcdRestore = &infrav1.HostEtcdRestore{ID: "1", RestoreName: "r", SnapshotID: "s", SHA256: strings.Repeat("ab", 32)}
}

func newRestore(namespace string) *infrav1.ElementalEtcdRestore {
	return &infrav1.ElementalEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace},
		Spec: infrav1.ElementalEtcdRestoreSpec{
			ClusterName: "c", Source: infrav1.EtcdRestoreSource{Snapshot: &infrav1.EtcdRestoreSnapshot{HostName: "h", ID: "s"}},
		},
	}
}

// The role edit changes hosts, and decides nothing; the roles that have a verb do.
func TestThreat82_DecisionsNeedAVerb(t *testing.T) {
	serve(t, io.Discard)
	users := newTeam(t)
	for name, d := range decisions(t, users.namespace) {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			err := d.try(t.Context(), users.clients[editor])
			g.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			g.Expect(err).To(MatchError(ContainSubstring("this change needs the verb %s on %s in namespace %s; it is in the ClusterRole %s",
				d.verb, d.resource, users.namespace, strings.Join(d.verb.Roles(), " and in "))))
			for _, user := range d.may {
				g.Expect(d.try(t.Context(), users.clients[user])).To(Succeed(), user)
			}
			if len(d.verb.Roles()) == 1 {
				g.Expect(d.try(t.Context(), users.clients[admin])).To(MatchError(ContainSubstring("needs the verb")))
			}
		})
	}
	t.Run("elsewhere", func(t *testing.T) {
		g := NewWithT(t)
		other := newTeam(t)
		for name, d := range decisions(t, other.namespace) {
			g.Expect(apierrors.IsForbidden(d.try(t.Context(), users.clients[operator]))).To(BeTrue(), name)
		}
	})
	t.Run("creation", func(t *testing.T) {
		g := NewWithT(t)
		host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: users.namespace}}
		host.Spec.Approval = infrav1.ApprovalApproved
		g.Expect(users.clients[editor].Create(t.Context(), host.DeepCopy())).NotTo(Succeed())
		g.Expect(users.clients[operator].Create(t.Context(), host)).To(Succeed())
	})
	t.Run("what everybody may change", func(t *testing.T) {
		g := NewWithT(t)
		host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: users.namespace}}
		g.Expect(env.Client(t).Create(t.Context(), host)).To(Succeed())
		host.Labels = map[string]string{"rack": "7"}
		host.Spec.Cordon, host.Spec.Reboot = &infrav1.HostCordon{Reason: "full"}, &infrav1.HostReboot{ID: "1"}
		host.Spec.Maintenance = &infrav1.HostMaintenance{Reason: "fan"}
		g.Expect(users.clients[editor].Update(t.Context(), host)).To(Succeed())
		g.Expect(users.clients[editor].Create(t.Context(), newTemplate(users.namespace))).To(Succeed())
		g.Expect(users.clients[editor].Create(t.Context(), newRestore(users.namespace))).To(Succeed())
	})
}

// brokenReviews fails while it is broken.
type brokenReviews struct {
	client.Client

	broken *atomic.Bool
}

func (r brokenReviews) Create(ctx context.Context, review client.Object, opts ...client.CreateOption) error {
	if r.broken.Load() {
		return errors.New("no route to host")
	}
	return r.Client.Create(ctx, review, opts...)
}

// Not even an administrator decides while nobody can be asked.
func TestThreat82_NothingIsDecidedUnreviewed(t *testing.T) {
	g := NewWithT(t)
	var broken atomic.Bool
	serveWith(t, io.Discard, func(c client.Client) webhook.Reviewer { return brokenReviews{c, &broken} })
	c := env.Client(t)
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: env.Namespace(t)}}
	g.Expect(c.Create(t.Context(), host)).To(Succeed())
	broken.Store(true)
	approved := host.DeepCopy()
	approved.Spec.Approval = infrav1.ApprovalApproved
	err := c.Update(t.Context(), approved)
	g.Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
	g.Expect(err).To(MatchError(ContainSubstring("no route to host; nothing was changed, try again")))
	host.Labels = map[string]string{"rack": "7"}
	g.Expect(c.Update(t.Context(), host)).To(Succeed(), "a label needs no verb")
}

// Whoever may edit hosts neither asks for a log, nor makes a request of somebody else one of its
// own, nor withdraws it.
func TestThreat88_LogsNeedTheirVerb(t *testing.T) {
	g := NewWithT(t)
	serve(t, io.Discard)
	users := newTeam(t)
	host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: users.namespace}}
	asked := host.DeepCopy()
	asked.Spec.LogRequest = logRequest()
	g.Expect(apierrors.IsForbidden(users.clients[editor].Create(t.Context(), asked.DeepCopy()))).To(BeTrue(), "at the creation")
	g.Expect(env.Client(t).Create(t.Context(), host)).To(Succeed())
	change := func(user string, change func(*infrav1.ElementalHostSpec)) error {
		before := host.DeepCopy()
		changed := host.DeepCopy()
		change(&changed.Spec)
		err := users.clients[user].Patch(t.Context(), changed, client.MergeFrom(before))
		if err == nil {
			host = changed
		}
		return err
	}
	ask := func(s *infrav1.ElementalHostSpec) { s.LogRequest = logRequest() }
	g.Expect(change(editor, ask)).To(MatchError(ContainSubstring("needs the verb logs on elementalhosts")))
	g.Expect(change(admin, ask)).To(Succeed())
	for name, changed := range map[string]func(*infrav1.ElementalHostSpec){
		"another operation": func(s *infrav1.ElementalHostSpec) { s.LogRequest.Operation = infrav1.OperationReset },
		"a longer time":     func(s *infrav1.ElementalHostSpec) { s.LogRequest.Until = metav1.Unix(5e9, 0) },
		"withdrawal":        func(s *infrav1.ElementalHostSpec) { s.LogRequest = nil },
	} {
		g.Expect(change(editor, changed)).To(MatchError(ContainSubstring("needs the verb logs")), name)
	}
	g.Expect(change(editor, func(s *infrav1.ElementalHostSpec) { s.Cordon = &infrav1.HostCordon{Reason: "fan"} })).To(Succeed(), "beside a request")
	g.Expect(change(operator, func(s *infrav1.ElementalHostSpec) { s.LogRequest = nil })).To(Succeed())
}
