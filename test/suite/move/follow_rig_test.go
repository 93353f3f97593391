//go:build embedded

package move

import (
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/plan"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/suite/bench/machines"
)

const (
	sites   = "sites"
	cluster = "edge"
)

// management is a management cluster with the real manager. Cluster API's managers do not run; the test writes what
// they would write.
type management struct {
	*WithT

	t        *testing.T
	name     string
	embedded *embedded.Cluster
	admin    client.WithWatch
}

func startManagement(t *testing.T, name string, args ...string) *management {
	t.Helper()
	m := &management{WithT: NewWithT(t), t: t, name: name}
	m.SetDefaultEventuallyTimeout(soon)
	// Each look at all objects takes time from the programs that are waited for.
	m.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	var err error
	m.embedded, err = embedded.Start(t.Context(), embedded.Options{Alone: true, OneVersion: true, Simulation: true, ManagerArgs: args, Progress: os.Stderr})
	m.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { m.Expect(m.embedded.Stop()).To(Succeed()) })
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme,
	} {
		m.Expect(add(scheme)).To(Succeed())
	}
	m.admin, err = client.NewWithWatch(m.embedded.Config, client.Options{Scheme: scheme})
	m.Expect(err).NotTo(HaveOccurred())
	// clusterctl labels the kinds that it installs, and moves only objects of those.
	kinds := &apiextensionsv1.CustomResourceDefinitionList{}
	m.Expect(m.admin.List(t.Context(), kinds)).To(Succeed())
	for i := range kinds.Items {
		patch(m, &kinds.Items[i], func(kind *apiextensionsv1.CustomResourceDefinition) {
			metav1.SetMetaDataLabel(&kind.ObjectMeta, clusterctlv1.ClusterctlLabel, "")
		})
	}
	m.Expect(m.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sites}})).To(Succeed())
	return m
}

// patch changes spec and metadata of an object.
func patch[T client.Object](m *management, o T, change func(T)) {
	m.t.Helper()
	m.Expect(m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(o), o)).To(Succeed())
	before, _ := o.DeepCopyObject().(T)
	change(o)
	m.Expect(m.admin.Patch(m.t.Context(), o, client.MergeFrom(before))).To(Succeed())
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: sites, Name: name} }

func (m *management) list(list client.ObjectList) {
	m.t.Helper()
	m.Expect(m.admin.List(m.t.Context(), list, client.InNamespace(sites))).To(Succeed())
}

func (m *management) hosts() []infrav1.ElementalHost {
	m.t.Helper()
	list := &infrav1.ElementalHostList{}
	m.list(list)
	return list.Items
}

// register creates a registration and returns its token.
func (m *management) register(name string, approval infrav1.ApprovalPolicy) string {
	m.t.Helper()
	r := &infrav1.ElementalRegistration{ObjectMeta: meta(name)}
	r.Spec.Approval, r.Spec.Token.MaxUses = approval, 1000
	m.Expect(m.admin.Create(m.t.Context(), r)).To(Succeed())
	m.Eventually(func(g Gomega) {
		g.Expect(m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(r), r)).To(Succeed())
		g.Expect(r.Status.TokenSecretRef).NotTo(BeNil())
	}).Should(Succeed())
	secret := &corev1.Secret{ObjectMeta: meta(r.Status.TokenSecretRef.Name)}
	m.Expect(m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	config, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
	m.Expect(err).NotTo(HaveOccurred())
	return config.Token
}

// fleet returns virtual hosts that are on, and enrolled by a registration.
func (m *management) fleet(prefix, token string, count int, change ...func(*fleet.Settings)) *fleet.Fleet {
	m.t.Helper()
	settings := fleet.Settings{
		Count: count, Prefix: prefix, Servers: []string{m.embedded.AgentURL}, TrustBundle: m.embedded.CABundle, Token: token,
		BootTime: 100 * time.Millisecond,
	}
	for _, c := range change {
		c(&settings)
	}
	f, err := fleet.New(settings)
	m.Expect(err).NotTo(HaveOccurred())
	m.t.Cleanup(func() { m.Expect(f.Close()).To(Succeed()) })
	known := len(m.hosts())
	m.Expect(f.PowerOn(m.t.Context(), time.Second)).To(Succeed())
	m.Eventually(func() int { return len(m.hosts()) }).Should(Equal(known + count))
	for _, h := range f.Hosts() {
		m.Eventually(func() string { return h.Status().ElementalHost }).ShouldNot(BeEmpty(), "%s knows that it is enrolled", h.Name)
	}
	return f
}

// workers creates a Cluster with workers, which claim hosts. Their bootstrap data stays when they move.
func (m *management) workers(count int) {
	m.t.Helper()
	c := &machines.Client{Admin: m.admin, Namespace: sites, Cluster: m.embedded, Progress: shell.NewProgress(os.Stderr)}
	m.Expect(c.CreateMachines(m.t.Context(), cluster, count)).To(Succeed())
	m.own()
	m.Expect(c.Release(m.t.Context(), cluster)).To(Succeed())
}

// own has the Cluster own all Machines: clusterctl moves what it owns.
func (m *management) own() {
	m.t.Helper()
	owner := &clusterv1.Cluster{ObjectMeta: meta(cluster)}
	m.Expect(m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(owner), owner)).To(Succeed())
	all := &clusterv1.MachineList{}
	m.list(all)
	for i := range all.Items {
		machine := &all.Items[i]
		patch(m, machine, func(machine *clusterv1.Machine) {
			machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster, UID: owner.UID}}
		})
	}
}

// settle writes what Cluster API's controllers would write of a Cluster that is well. Status is not moved.
func (m *management) settle() {
	m.t.Helper()
	c := &clusterv1.Cluster{ObjectMeta: meta(cluster)}
	m.Expect(m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(c), c)).To(Succeed())
	before := c.DeepCopy()
	c.Status.Initialization = clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: new(true), ControlPlaneInitialized: new(true)}
	c.Status.Conditions = []metav1.Condition{{
		Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized", LastTransitionTime: metav1.Now(),
	}}
	m.Expect(m.admin.Status().Patch(m.t.Context(), c, client.MergeFrom(before))).To(Succeed())
	all := &clusterv1.MachineList{}
	m.list(all)
	for i := range all.Items {
		machine := &all.Items[i]
		before := machine.DeepCopy()
		machine.Status.NodeRef.Name = machine.Name
		m.Expect(m.admin.Status().Patch(m.t.Context(), machine, client.MergeFrom(before))).To(Succeed())
	}
}

// awaitReached waits until the hosts that are connected have reached the successor that was announced. Hosts that are
// pending may write to the management cluster a few times a minute only, and moves are more frequent: see awaitStored.
func (m *management) awaitReached(digest string) {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		for _, h := range m.hosts() {
			if c := h.Status.Connection; c == nil || c.State != infrav1.ConnectionConnected || h.Spec.Approval == infrav1.ApprovalPending {
				continue
			}
			g.Expect(h.Status.Successor).NotTo(BeNil(), h.Name)
			g.Expect(h.Status.Successor).To(HaveValue(And(HaveField("Digest", digest), HaveField("Reached", HaveValue(BeTrue())))), h.Name)
		}
	}).Should(Succeed())
}

// awaitStored waits until hosts, which are on, know the successor that was announced.
func (m *management) awaitStored(hosts *fleet.Fleet, next *management) {
	m.t.Helper()
	for _, h := range hosts.Hosts() {
		m.Eventually(func() []string { return h.Status().Successor }).Should(Equal([]string{next.embedded.AgentURL}), h.Name)
	}
}

// announceTo names the next management cluster in all registrations, and returns its digest.
func (m *management) announceTo(next *management) string {
	m.t.Helper()
	successor := &infrav1.RegistrationSuccessor{URLs: []string{next.embedded.AgentURL}, TrustBundle: next.embedded.CABundle}
	all := &infrav1.ElementalRegistrationList{}
	m.list(all)
	for i := range all.Items {
		patch(m, &all.Items[i], func(r *infrav1.ElementalRegistration) { r.Spec.Successor = successor })
	}
	return plan.Successor(successor).Digest()
}

// resume ends the pause of the Cluster that an interrupted clusterctl has left, if the Cluster is here.
func (m *management) resume() {
	m.t.Helper()
	c := &clusterv1.Cluster{ObjectMeta: meta(cluster)}
	err := m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(c), c)
	if apierrors.IsNotFound(err) {
		return
	}
	m.Expect(err).NotTo(HaveOccurred())
	patch(m, c, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
}

// removeLeftovers removes the annotation that an interrupted clusterctl has left on objects, as docs/operating.md says.
func (m *management) removeLeftovers(namespace string) {
	m.t.Helper()
	for _, list := range []client.ObjectList{
		&infrav1.ElementalHostList{}, &infrav1.ElementalMachineList{}, &infrav1.ElementalClusterList{}, &infrav1.ElementalHostGrantList{},
	} {
		m.Expect(m.admin.List(m.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
		m.Expect(apimeta.EachListItem(list, func(o runtime.Object) error {
			obj, ok := o.(client.Object)
			if _, left := obj.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]; !ok || !left {
				return nil
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, clusterctlv1.DeleteForMoveAnnotation)
			return m.admin.Patch(m.t.Context(), obj, client.RawPatch(types.MergePatchType, patch))
		})).To(Succeed())
	}
}

// isEmpty reports whether everything has left the management cluster.
func (m *management) isEmpty() bool {
	m.t.Helper()
	err := m.admin.Get(m.t.Context(), client.ObjectKey{Namespace: sites, Name: cluster}, &clusterv1.Cluster{})
	return apierrors.IsNotFound(err) && len(m.hosts()) == 0
}

// connected waits until all hosts but some are connected to this management cluster, and returns how long that took.
func (m *management) connected(except map[string]bool) time.Duration {
	m.t.Helper()
	began := time.Now()
	m.Eventually(func() (missing []string) {
		for _, h := range m.hosts() {
			if c := h.Status.Connection; !except[h.Name] && (c == nil || c.State != infrav1.ConnectionConnected) {
				missing = append(missing, h.Name)
			}
		}
		return missing
	}).Should(BeEmpty(), "hosts that are not connected to %s", m.name)
	return time.Since(began)
}
