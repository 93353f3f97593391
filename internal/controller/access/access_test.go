package access_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

const (
	yes   = metav1.ConditionTrue
	no    = metav1.ConditionFalse
	label = "infrastructure.cluster.x-k8s.io/elemental-access"
)

var env *envtest.Environment

const group = "rbac.authorization.k8s.io "

func TestBindingsAreApplied(t *testing.T) {
	longest := strings.Repeat("x", 253)
	f := newFixture(t, view(), infrav1.AccessBinding{ClusterRole: "cluster-admin", Groups: []string{"root"}},
		infrav1.AccessBinding{ClusterRole: longest, Groups: []string{"ops"}})
	result := f.reconcile()
	f.Expect(subjects(f.binding("view"))).To(Equal(group + "User ann, " + group + "User management:system:serviceaccount:ci:bot, " + group + "Group ops"))
	f.Expect(f.binding("cluster-admin").RoleRef).To(Equal(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}))
	f.Expect(f.bindings()).To(HaveLen(3))
	is := f.ExpectCondition(f.infra, infrav1.AccessReadyCondition, yes, infrav1.ClusterRoleMissingReason)
	f.Expect(is.Message).To(ContainSubstring("permit nothing: "+longest), "that is no error")
	f.Expect(f.Events()).To(ConsistOf(HavePrefix("Warning ClusterRoleMissing ")))

	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.Access.Bindings = c.Spec.Access.Bindings[:2] })
	result = f.again(result)
	f.Expect(f.bindings()).To(HaveLen(2), "what spec no longer has is deleted")
	f.ExpectCondition(f.infra, infrav1.AccessReadyCondition, yes, infrav1.BindingsAppliedReason)
	f.Expect(f.Events()).To(ConsistOf(HavePrefix("Normal BindingsApplied ")))
	f.Client.Forget()
	before := f.binding("view").ResourceVersion
	f.again(result)
	f.Expect(f.Client.Writes()).To(BeEmpty())
	f.Expect(f.binding("view").ResourceVersion).To(Equal(before))
	f.Expect(f.Events()).To(BeEmpty())
}

// T15-T17: bindings are put back when somebody edits or deletes them.
func TestThreat62_BindingsArePutBack(t *testing.T) {
	for name, edit := range map[string]func(*fixture){
		"more subjects": func(f *fixture) {
			controllertest.Change(f.Fixture, f.binding("view"), func(b *rbacv1.ClusterRoleBinding) {
				b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"})
			})
		},
		"no subjects": func(f *fixture) {
			controllertest.Change(f.Fixture, f.binding("view"), func(b *rbacv1.ClusterRoleBinding) { b.Subjects = nil })
		},
		"deleted": func(f *fixture) { f.Delete(f.binding("view")) },
		"another ClusterRole": func(f *fixture) {
			b := f.binding("view")
			f.Delete(b)
			b.ResourceVersion, b.UID, b.RoleRef.Name = "", "", "cluster-admin"
			f.Expect(f.Admin.Create(f.Ctx, b)).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, view())
			result := f.reconcile()
			want := subjects(f.binding("view"))
			f.Events()
			edit(f)
			result = f.again(result)
			f.Expect(subjects(f.binding("view"))).To(Equal(want))
			f.Expect(f.binding("view").RoleRef.Name).To(Equal("view"))
			f.ExpectCondition(f.infra, infrav1.AccessReadyCondition, yes, infrav1.BindingsAppliedReason)
			f.Expect(f.Events()).To(ConsistOf(And(HavePrefix("Warning BindingRestored "), ContainSubstring("elemental-access:view"))))
			f.again(result)
			f.Expect(f.Events()).To(BeEmpty())
		})
	}
}

// What a user adds to a binding stays as far as it permits nothing.
func TestLabelsOfUsersStay(t *testing.T) {
	f := newFixture(t, view())
	result := f.reconcile()
	controllertest.Change(f.Fixture, f.binding("view"), func(b *rbacv1.ClusterRoleBinding) {
		b.Labels["team"], b.Subjects = "shop", nil
	})
	f.again(result)
	f.Expect(f.binding("view").Labels).To(HaveKeyWithValue("team", "shop"))
	f.Expect(f.binding("view").Subjects).To(HaveLen(3))
}

// A binding without the label is somebody else's, and so is one of another name.
func TestForeignBindings(t *testing.T) {
	f := newFixture(t, view(), infrav1.AccessBinding{ClusterRole: "edit", Groups: []string{"dev"}})
	foreign := func(name string, labels map[string]string) *rbacv1.ClusterRoleBinding {
		b := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		}
		f.Create(b)
		t.Cleanup(func() { _ = env.Client(t).Delete(context.Background(), b) })
		return b
	}
	taken, labelled := foreign("elemental-access:view", nil), foreign("own", map[string]string{label: ""})
	result := f.reconcile()
	f.Expect(f.binding("view").ResourceVersion).To(Equal(taken.ResourceVersion))
	f.Expect(f.binding("edit").Subjects).To(HaveLen(1), "the others are there")
	f.Refresh(labelled)
	is := f.ExpectCondition(f.infra, infrav1.AccessReadyCondition, no, infrav1.BindingNameTakenReason)
	f.Expect(is.Message).To(And(ContainSubstring("elemental-access:view"), ContainSubstring(label), Not(ContainSubstring("edit"))))
	f.Expect(f.Events()).To(ConsistOf(HavePrefix("Warning BindingNameTaken ")))
	f.Delete(taken)
	f.again(result)
	f.ExpectCondition(f.infra, infrav1.AccessReadyCondition, yes, infrav1.BindingsAppliedReason)

	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.Access = nil })
	f.reconcile()
	f.Expect(f.bindings()).To(ConsistOf(HaveField("Name", "own")))
}

// Access that is taken away is taken away in the workload cluster too, even if that takes a
// while.
func TestThreat62_BindingsArePruned(t *testing.T) {
	f := newFixture(t, view())
	f.reconcile()
	f.Events()
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.Access = nil })
	f.workload.lost = errors.New("no host has a tunnel")
	result := f.reconcile()
	f.ExpectCondition(f.infra, infrav1.AccessReadyCondition, no, infrav1.ClusterUnreachableReason)
	f.Expect(f.infra.HasTunnels()).To(BeTrue(), "the hosts keep their tunnels until then")
	f.workload.lost = nil
	result = f.again(result)
	f.Expect(f.bindings()).To(BeEmpty())
	f.Expect(meta.FindStatusCondition(f.infra.Status.Conditions, infrav1.AccessReadyCondition)).To(BeNil())
	f.Expect(f.infra.HasTunnels()).To(BeFalse())
	f.Expect(result).To(Equal(ctrl.Result{}))
	f.Expect(f.Events()).To(HaveLen(2))
	connections := f.workload.connections
	f.reconcile()
	f.Expect(f.workload.connections).To(Equal(connections), "nothing is left to look for")
}

// A move and a restore carry no status. Bindings of access that was taken away meanwhile are deleted
// all the same.
func TestThreat62_BindingsArePrunedWithoutStatus(t *testing.T) {
	f := newFixture(t, view())
	f.reconcile()
	controllertest.ChangeStatus(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Status = infrav1.ElementalClusterStatus{} })
	controllertest.ChangeStatus(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Status.Initialization.ControlPlaneInitialized = nil })
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.Access = nil })
	f.reconcile()
	f.ExpectCondition(f.infra, infrav1.AccessReadyCondition, no, infrav1.WaitingForControlPlaneReason)
	f.Expect(f.infra.HasTunnels()).To(BeTrue(), "the hosts open tunnels for that")
	controllertest.ChangeStatus(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Status.Initialization.ControlPlaneInitialized = new(true) })
	f.setTunnels(yes, infrav1.TunnelReadyReason)
	f.Expect(f.reconcile()).To(Equal(ctrl.Result{}))
	f.Expect(f.bindings()).To(BeEmpty())
	f.Expect(f.infra.HasTunnels()).To(BeFalse())
	connections := f.workload.connections
	f.Client.Forget()
	f.reconcile()
	f.Expect(f.workload.connections).To(Equal(connections), "nothing is left to look for")
	f.Expect(f.Client.Writes()).To(BeEmpty())
}

// Access without bindings, for certificates alone, is ready too.
func TestNoBindings(t *testing.T) {
	f := newFixture(t)
	f.Expect(f.reconcile()).To(Equal(ctrl.Result{}))
	f.Expect(f.workload.connections).To(BeZero(), "clusters without access cost nothing")
	controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
		c.Spec.Access = &infrav1.Access{Direct: &infrav1.DirectAccess{}}
	})
	f.reconcile()
	f.ExpectCondition(f.infra, infrav1.AccessReadyCondition, yes, infrav1.BindingsAppliedReason)
}

func TestObstacles(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterrolebindings"}, "x", errors.New(strings.Repeat("é", 5000)))
	for name, tc := range map[string]struct {
		change  func(*fixture)
		reason  string
		message string
		// again: the cluster is looked at again without an event.
		again bool
	}{
		"a control plane that is not there yet": {func(f *fixture) {
			controllertest.ChangeStatus(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Status.Initialization.ControlPlaneInitialized = nil })
		}, infrav1.WaitingForControlPlaneReason, "not initialized", false},
		"no tunnel": {func(f *fixture) { f.setTunnels(no, infrav1.NoTunnelReason) }, infrav1.ClusterUnreachableReason, "as the test says", false},
		"no tunnel was looked for": {func(f *fixture) {
			controllertest.ChangeStatus(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Status.Conditions = nil })
		}, infrav1.ClusterUnreachableReason, "Waiting for the condition TunnelReady", false},
		"no connection":           {func(f *fixture) { f.workload.lost = errors.New("agent does not answer") }, infrav1.ClusterUnreachableReason, "agent does not answer", true},
		"an API server's refusal": {func(f *fixture) { f.workload.refused = forbidden }, infrav1.BindingsRefusedReason, "forbidden", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, view())
			tc.change(f)
			result := f.reconcile()
			is := f.ExpectCondition(f.infra, infrav1.AccessReadyCondition, no, tc.reason)
			f.Expect(is.Message).To(ContainSubstring(tc.message))
			f.Expect(len(is.Message)).To(BeNumerically("<", 1100), "a workload cluster can't fill the management cluster")
			isAsked, isAskedAgain := f.workload.connections > 0, result.RequeueAfter > 0
			f.Expect(isAsked).To(Equal(tc.again), "whoever can't be reached costs nothing")
			f.Expect(isAskedAgain).To(Equal(tc.again))
			f.Expect(f.bindings()).To(BeEmpty())
		})
	}
}

// Nothing is changed of a cluster that is paused, is being deleted or belongs to others.
func TestLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*fixture){
		"the Cluster is paused": func(f *fixture) {
			controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) })
		},
		"the object is paused": func(f *fixture) {
			controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
				c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			})
		},
		"externally managed": func(f *fixture) {
			controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) {
				c.Annotations = map[string]string{clusterv1.ManagedByAnnotation: ""}
			})
		},
		"being deleted": func(f *fixture) {
			controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Finalizers = []string{"test/hold"} })
			f.Delete(f.infra)
		},
		"the Cluster is being deleted": func(f *fixture) {
			controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Finalizers = []string{"test/hold"} })
			f.Delete(f.cluster)
		},
		"a Cluster that names another object": func(f *fixture) {
			controllertest.Change(f.Fixture, f.cluster, func(c *clusterv1.Cluster) { c.Spec.InfrastructureRef.Name = "other" })
		},
		"of another manager": func(f *fixture) { f.reconciler.WatchFilter = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, view())
			change(f)
			f.Client.Forget()
			f.Expect(f.reconcile()).To(Equal(ctrl.Result{}))
			f.Expect(f.workload.connections).To(BeZero())
			f.Expect(f.Client.Writes()).To(BeEmpty())
		})
	}
	f := newFixture(t)
	_, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: f.Namespace, Name: "gone"}})
	f.Expect(err).NotTo(HaveOccurred())
}

// Whoever else writes the status meanwhile loses nothing.
func TestConditionOfOthers(t *testing.T) {
	f := newFixture(t, view())
	f.workload.during = func() { f.setTunnels(yes, "Newer") }
	f.Expect(f.reconcile().RequeueAfter).To(BeNumerically("<", time.Second))
	f.ExpectCondition(f.infra, infrav1.TunnelReadyCondition, yes, "Newer")
	f.Expect(meta.FindStatusCondition(f.infra.Status.Conditions, infrav1.AccessReadyCondition)).To(BeNil())
}

// Nor does the Event of what was put back get lost.
func TestRestorationIsReported(t *testing.T) {
	f := newFixture(t, infrav1.AccessBinding{ClusterRole: "late", Groups: []string{"ops"}})
	f.reconcile()
	f.ExpectCondition(f.infra, infrav1.AccessReadyCondition, yes, infrav1.ClusterRoleMissingReason)
	f.Events()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	f.Create(role)
	t.Cleanup(func() { _ = env.Client(t).Delete(context.Background(), role) })
	f.Delete(f.binding("late"))
	f.workload.during = func() { f.setTunnels(yes, "Newer") }
	f.Expect(f.reconcile().RequeueAfter).To(BeNumerically("<", time.Second))
	f.Expect(f.Events()).To(ConsistOf(HavePrefix("Warning BindingRestored ")))
	f.workload.during = nil
	f.reconcile()
	f.Expect(f.Events()).To(ConsistOf(HavePrefix("Normal BindingsApplied ")))
}

func TestAccessSurvivesCrashes(t *testing.T) {
	for n, moment := range controllertest.Crashes(2) {
		t.Run(fmt.Sprintf("%s %d", moment, n), func(t *testing.T) {
			f := newFixture(t, view())
			crash := func() {
				f.Client.FailWrite(n, moment)
				_, err := f.reconciler.Reconcile(f.Ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(f.infra)})
				f.Expect(err).To(MatchError(controllertest.ErrInjected))
			}
			crash()
			f.reconcile()
			f.ExpectCondition(f.infra, infrav1.AccessReadyCondition, yes, infrav1.BindingsAppliedReason)
			f.Expect(f.bindings()).To(HaveLen(1))

			controllertest.Change(f.Fixture, f.infra, func(c *infrav1.ElementalCluster) { c.Spec.Access = nil })
			crash()
			f.reconcile()
			f.Expect(f.bindings()).To(BeEmpty())
			f.Expect(meta.FindStatusCondition(f.infra.Status.Conditions, infrav1.AccessReadyCondition)).To(BeNil())
			f.Expect(f.infra.Annotations).To(BeEmpty())
		})
	}
}
