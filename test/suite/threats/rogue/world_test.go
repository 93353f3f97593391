//go:build embedded

package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/ports"
)

const (
	// tenant is the victims' namespace, hostile the rogue's. In shared, the rogue's tenant may create objects and enrol hosts
	// beside those of victims. The tenant of squatters has hosts that obey.
	tenant, hostile, shared, squatters = "tenant", "hostile", "shared", "squatters"
	// secretData is in the victims' bootstrap data.
	secretData = "only-for-the-victim"
	// maxPending is the limit of pending hosts of the tenant's registration.
	maxPending = 20
	// maxUnauthenticated and maxHandshakes are limits of the manager, lower than by default.
	maxUnauthenticated, maxHandshakes = 600, 200
	soon                              = 2 * time.Minute
	often                             = 100 * time.Millisecond
)

// world is a management cluster with two tenants.
type world struct {
	*WithT

	t       *testing.T
	cluster *embedded.Cluster
	// gateway is where the manager passes connections on to clusters.
	gateway string
	admin   client.Client
	raw     *rest.RESTClient
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t}
	w.SetDefaultEventuallyTimeout(soon)
	w.SetDefaultEventuallyPollingInterval(often)
	var free ports.Set
	t.Cleanup(free.Release)
	port, err := free.Reserve()
	w.Expect(err).NotTo(HaveOccurred())
	w.gateway = fmt.Sprintf("127.0.0.1:%d", port)
	w.cluster, err = embedded.Start(t.Context(), embedded.Options{
		Alone: true, OneVersion: true, Progress: os.Stderr,
		ManagerArgs: []string{
			fmt.Sprintf("--agent-api-max-unauthenticated=%d", maxUnauthenticated), fmt.Sprintf("--agent-api-max-handshakes=%d", maxHandshakes),
			"--gateway-passthrough-address=" + w.gateway, "--cluster-domain=cluster.local", "--agent-api-proxies=127.250.0.0/16",
		},
	})
	w.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		if err := w.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme, infrav1.AddToScheme,
	} {
		w.Expect(add(scheme)).To(Succeed())
	}
	w.admin, err = client.New(w.cluster.Config, client.Options{Scheme: scheme})
	w.Expect(err).NotTo(HaveOccurred())
	config := rest.CopyConfig(w.cluster.Config)
	config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &infrav1.GroupVersion, "/apis", clientgoscheme.Codecs.WithoutConversion()
	w.raw, err = rest.RESTClientFor(config)
	w.Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{tenant, hostile, shared, squatters} {
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return w
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		w.Expect(w.admin.Create(w.t.Context(), o)).To(Succeed())
	}
}

func (w *world) get(o client.Object) error {
	return w.admin.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)
}

// registration creates an ElementalRegistration that re-adopts hosts, which the rogue can abuse most, and returns its token.
func (w *world) registration(namespace, name string, change func(*infrav1.ElementalRegistrationSpec)) string {
	w.t.Helper()
	r := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	r.Spec.Token.MaxUses, r.Spec.Readoption = 100, infrav1.ReadoptionPending
	change(&r.Spec)
	w.create(r)
	w.Eventually(func() *infrav1.LocalReference {
		w.Expect(w.get(r)).To(Succeed())
		return r.Status.TokenSecretRef
	}).ShouldNot(BeNil())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.Status.TokenSecretRef.Name}}
	w.Expect(w.get(secret)).To(Succeed())
	config, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
	w.Expect(err).NotTo(HaveOccurred())
	return config.Token
}

// plan returns the host's plan without the time.
func (w *world) plan(h *honest) protocol.Plan {
	w.t.Helper()
	plan, err := h.client.Plan(w.t.Context(), "", "boot")
	w.Expect(err).NotTo(HaveOccurred())
	plan.ServerTime = time.Time{}
	return *plan
}

// host reads a host.
func (w *world) host(namespace, name string) *infrav1.ElementalHost {
	w.t.Helper()
	h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	w.Expect(w.get(h)).To(Succeed())
	return h
}

// addCluster creates a Cluster with one control-plane Machine, which Cluster API's controllers would make, too.
func (w *world) addCluster(namespace, name string, policy func(*infrav1.ControlPlaneEndpointPolicy), change ...func(*infrav1.ElementalCluster)) {
	w.t.Helper()
	meta := func() metav1.ObjectMeta { return metaOf(namespace, name, name) }
	template := &infrav1.ElementalMachineTemplate{ObjectMeta: meta()}
	template.Spec.Template.Spec = &infrav1.ElementalMachineSpec{}
	reference := func(kind string) clusterv1.ContractVersionedObjectReference {
		return clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: kind, Name: name}
	}
	w.create(template, &controlplanev1.KubeadmControlPlane{ObjectMeta: meta(), Spec: controlplanev1.KubeadmControlPlaneSpec{
		Version: "v1.36.3",
		MachineTemplate: controlplanev1.KubeadmControlPlaneMachineTemplate{
			Spec: controlplanev1.KubeadmControlPlaneMachineTemplateSpec{InfrastructureRef: reference("ElementalMachineTemplate")},
		},
		KubeadmConfigSpec: bootstrapv1.KubeadmConfigSpec{},
	}})
	cluster := &clusterv1.Cluster{ObjectMeta: meta()}
	cluster.Spec.InfrastructureRef = reference("ElementalCluster")
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane", Name: name}
	w.create(cluster)
	infra := &infrav1.ElementalCluster{ObjectMeta: meta()}
	infra.OwnerReferences = ownedBy("Cluster", cluster)
	policy(&infra.Spec.ControlPlaneEndpointPolicy)
	for _, f := range change {
		f(infra)
	}
	w.create(infra)
	// The rogue's cluster gets its endpoint from the rogue, later. That of a squatter gets none.
	w.Eventually(func(g Gomega) {
		if namespace == hostile || namespace == squatters {
			return
		}
		g.Expect(w.get(infra)).To(Succeed())
		g.Expect(infra.Status.Initialization.Provisioned).To(HaveValue(BeTrue()), "%v", infra.Status.Conditions)
	}).Should(Succeed())
	before := cluster.DeepCopy()
	cluster.Status.Initialization.InfrastructureProvisioned = new(true)
	w.Expect(w.admin.Status().Patch(w.t.Context(), cluster, client.MergeFrom(before))).To(Succeed())

	w.create(&corev1.Secret{ObjectMeta: meta(), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{
		"value": []byte("#cloud-config\n# " + secretData + "-" + name + "\n"), "format": []byte("cloud-config"),
	}})
	w.addMachine(namespace, name, name, map[string]string{clusterv1.MachineControlPlaneLabel: ""})
}

// metaOf returns the metadata of an object of a cluster.
func metaOf(namespace, cluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}
}

// ownedBy names an object of Cluster API as owner.
func ownedBy(kind string, o client.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: kind, Name: o.GetName(), UID: o.GetUID()}}
}

// addMachine creates a Machine of a cluster, with the bootstrap data of its control plane.
func (w *world) addMachine(namespace, cluster, name string, labels map[string]string, change ...func(*clusterv1.Machine, *infrav1.ElementalMachine)) {
	w.t.Helper()
	meta := metaOf(namespace, cluster, name)
	maps.Copy(meta.Labels, labels)
	machine := &clusterv1.Machine{ObjectMeta: *meta.DeepCopy(), Spec: clusterv1.MachineSpec{
		ClusterName: cluster, Bootstrap: clusterv1.Bootstrap{DataSecretName: &cluster},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name},
	}}
	infraMachine := &infrav1.ElementalMachine{ObjectMeta: meta}
	for _, f := range change {
		f(machine, infraMachine)
	}
	w.create(machine)
	infraMachine.OwnerReferences = ownedBy("Machine", machine)
	w.create(infraMachine)
}

// bootstrapped waits until the machine of a cluster has run its bootstrap on a host.
func (w *world) bootstrapped(namespace, name string) *infrav1.ElementalHost {
	w.t.Helper()
	m, h := &infrav1.ElementalMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, &infrav1.ElementalHost{}
	w.Eventually(func(g Gomega) {
		g.Expect(w.get(m)).To(Succeed())
		g.Expect(m.Spec.HostRef).NotTo(BeNil(), "%v", m.Status.Conditions)
		h = w.host(namespace, m.Spec.HostRef.Name)
		g.Expect(h.IsBootstrapped()).To(BeTrue())
	}).Should(Succeed())
	return h
}

// hosts lists the hosts of a namespace.
func (w *world) hosts(namespace string) []infrav1.ElementalHost {
	w.t.Helper()
	list := &infrav1.ElementalHostList{}
	w.Expect(w.admin.List(w.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	return list.Items
}

// stored returns the size of a host as the API server stores it.
func (w *world) stored(h *infrav1.ElementalHost) int {
	w.t.Helper()
	raw, err := w.raw.Get().Namespace(h.Namespace).Resource("elementalhosts").Name(h.Name).DoRaw(w.t.Context())
	w.Expect(err).NotTo(HaveOccurred())
	return len(raw)
}

// events returns the Events about each object of a namespace.
func (w *world) events(namespace string) map[string][]eventsv1.Event {
	w.t.Helper()
	list := &eventsv1.EventList{}
	w.Expect(w.admin.List(w.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
	out := map[string][]eventsv1.Event{}
	for _, e := range list.Items {
		out[e.Regarding.Name] = append(out[e.Regarding.Name], e)
	}
	return out
}

// objects returns the victims' objects, as they are stored.
func (w *world) objects() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, kind := range []struct{ version, kind string }{
		{"v1", "Secret"}, {clusterv1.GroupVersion.String(), "Cluster"}, {clusterv1.GroupVersion.String(), "Machine"},
		{controlplanev1.GroupVersion.String(), "KubeadmControlPlane"}, {infrav1.GroupVersion.String(), "ElementalCluster"},
		{infrav1.GroupVersion.String(), "ElementalMachine"}, {infrav1.GroupVersion.String(), "ElementalMachineTemplate"},
		{infrav1.GroupVersion.String(), "ElementalRegistration"}, {infrav1.GroupVersion.String(), "ElementalHost"},
	} {
		for _, namespace := range []string{tenant, shared} {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(kind.version)
			list.SetKind(kind.kind + "List")
			w.Expect(w.admin.List(w.t.Context(), list, client.InNamespace(namespace))).To(Succeed())
			for _, o := range list.Items {
				if !isVictims(o) {
					continue
				}
				text, err := json.MarshalIndent(o.Object, "", " ")
				w.Expect(err).NotTo(HaveOccurred())
				out[kind.kind+" "+namespace+"/"+o.GetName()] = string(text)
			}
		}
	}
	return out
}

// isVictims reports whether nothing that the rogue and its tenant do may change an object: all of the tenant's but its
// re-adopted hosts, and in the shared namespace what has to do with the victims' cluster only.
func isVictims(o unstructured.Unstructured) bool {
	if o.GetNamespace() == tenant {
		reason, _, _ := unstructured.NestedString(o.Object, "spec", "pendingReason")
		return reason != string(infrav1.PendingReadopted)
	}
	// Hosts of guests are hosts for a template that names none.
	ofAllHosts := o.GetKind() == "ElementalMachineTemplate" && o.GetName() == shared
	return !ofAllHosts && slices.Contains([]string{shared, secretOfCA, secretOfKubeconfig, secretOfConfig, sized, servers, bound}, o.GetName())
}

// settled returns the victims' objects once they no longer change.
func (w *world) settled() map[string]string {
	w.t.Helper()
	before := w.objects()
	const quiet = 15 * time.Second
	since := time.Now()
	w.Eventually(func() bool {
		now := w.objects()
		if fmt.Sprint(now) != fmt.Sprint(before) {
			before, since = now, time.Now()
		}
		return time.Since(since) > quiet
	}).Should(BeTrue())
	return before
}

// log returns the manager's log.
func (w *world) log() string {
	w.t.Helper()
	text, err := os.ReadFile(w.cluster.Folder + "/logs/manager.log")
	w.Expect(err).NotTo(HaveOccurred())
	return strings.ToValidUTF8(string(text), "?")
}
