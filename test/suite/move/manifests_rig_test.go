//go:build embedded

package move

import (
	"context"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/authority"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
)

// manifests are a backup of objects.
type manifests struct {
	authority *unstructured.Unstructured
	// objects are those of the namespace of the hosts.
	objects []*unstructured.Unstructured
}

// backup returns what `kubectl get -o yaml` prints, without the fields that docs/operating.md removes.
func (m *management) backup() manifests {
	m.t.Helper()
	secrets := schemaKind(corev1.SchemeGroupVersion.String(), "Secret")
	authorityOf := secrets.DeepCopy()
	m.Expect(m.admin.Get(m.t.Context(), client.ObjectKey{Namespace: "elemental-system", Name: authority.SecretName}, authorityOf)).To(Succeed())
	kinds := &apiextensionsv1.CustomResourceDefinitionList{}
	m.Expect(m.admin.List(m.t.Context(), kinds)).To(Succeed())
	out := manifests{authority: written(authorityOf), objects: m.objects(secrets)}
	for i := range kinds.Items {
		kind := &kinds.Items[i].Spec
		if kind.Scope == apiextensionsv1.NamespaceScoped && (kind.Group == infrav1.GroupVersion.Group || kind.Group == clusterv1.GroupVersion.Group) {
			out.objects = append(out.objects, m.objects(schemaKind(kind.Group+"/v1beta2", kind.Names.Kind))...)
		}
	}
	return out
}

func schemaKind(version, kind string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetAPIVersion(version)
	out.SetKind(kind)
	return out
}

// objects returns the objects of a kind as they are in a backup.
func (m *management) objects(of *unstructured.Unstructured) []*unstructured.Unstructured {
	m.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(of.GetAPIVersion())
	list.SetKind(of.GetKind() + "List")
	m.list(list)
	out := make([]*unstructured.Unstructured, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, written(&list.Items[i]))
	}
	return out
}

// written removes what nobody writes into a manifest.
func written(o *unstructured.Unstructured) *unstructured.Unstructured {
	unstructured.RemoveNestedField(o.Object, "status")
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "ownerReferences",
	} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	return o
}

// reinstall replaces the management cluster by a new one with the authority of a backup, and nothing else of it.
func (m *management) reinstall(from manifests) {
	m.t.Helper()
	m.Expect(m.embedded.Reinstall(m.t.Context(), func(ctx context.Context, admin client.Client) error {
		return admin.Create(ctx, from.authority.DeepCopy())
	})).To(Succeed())
	m.Expect(m.admin.Create(m.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sites}})).To(Succeed())
}

// apply creates the objects of a backup, and writes what Cluster API's controllers would write of them.
func (m *management) apply(from manifests) {
	m.t.Helper()
	for _, o := range from.objects {
		m.Expect(m.admin.Create(m.t.Context(), o.DeepCopy())).To(Succeed(), "%s %s", o.GetKind(), o.GetName())
	}
	m.settle()
	all := &clusterv1.MachineList{}
	m.list(all)
	for i := range all.Items {
		machine := &all.Items[i]
		patch(m, &infrav1.ElementalMachine{ObjectMeta: meta(machine.Name)}, func(infra *infrav1.ElementalMachine) {
			infra.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID, Controller: new(true),
			}}
		})
	}
}

// lastConnected returns the connected host that was the last to connect, and when it did.
func (m *management) lastConnected() (name string, at time.Time) {
	m.t.Helper()
	for _, h := range m.hosts() {
		c := h.Status.Connection
		if c != nil && c.State == infrav1.ConnectionConnected && c.Since.After(at) {
			name, at = h.Name, c.Since.Time
		}
	}
	return name, at
}

// claims returns the claims of all hosts by name.
func (m *management) claims() map[string]*infrav1.HostClaim {
	m.t.Helper()
	out := map[string]*infrav1.HostClaim{}
	for _, h := range m.hosts() {
		out[h.Name] = h.Spec.Claim
	}
	return out
}

// awaitDeletion waits until a Machine that was being deleted at the time of the backup is being deleted again.
func (m *management) awaitDeletion(name string) {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		machine := &clusterv1.Machine{ObjectMeta: meta(name)}
		g.Expect(m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		g.Expect(machine.DeletionTimestamp.IsZero()).To(BeFalse())
	}).Should(Succeed(), "the deletion of Machine %s", name)
}

// awaitRegistered waits until a registration is ready, and has the token that it had before.
func (m *management) awaitRegistered(name, token string) {
	m.t.Helper()
	m.Eventually(func(g Gomega) {
		r := &infrav1.ElementalRegistration{ObjectMeta: meta(name)}
		g.Expect(m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(r), r)).To(Succeed())
		g.Expect(apimeta.IsStatusConditionTrue(r.Status.Conditions, infrav1.ReadyCondition)).To(BeTrue(), "%+v", r.Status.Conditions)
		g.Expect(r.Status.TokenSecretRef).NotTo(BeNil())
		secret := &corev1.Secret{ObjectMeta: meta(r.Status.TokenSecretRef.Name)}
		g.Expect(m.admin.Get(m.t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		g.Expect(metav1.IsControlledBy(secret, r)).To(BeTrue())
		config, err := enrolment.DecodeAgentConfig(secret.Data[enrolment.ConfigKey])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(config.Token).To(Equal(token))
	}).Should(Succeed(), "registration %s", name)
}

// awaitReadopted lets a host back in that the backup does not have.
func (m *management) awaitReadopted(enrolled *fleet.Host) {
	m.t.Helper()
	patch(m, &infrav1.ElementalRegistration{ObjectMeta: meta("edge")}, func(r *infrav1.ElementalRegistration) {
		r.Spec.Readoption = infrav1.ReadoptionPending
	})
	m.Eventually(func() bool { return m.exists(enrolled) }).Should(BeTrue())
	m.awaitCondition(enrolled, infrav1.ReadyCondition, Equal(infrav1.ReadoptedReason), "")
	m.change(enrolled, func(s *infrav1.ElementalHostSpec) { s.Approval = infrav1.ApprovalApproved })
	m.awaitCondition(enrolled, infrav1.ReadyCondition, Equal(infrav1.LeftoversReason), "installed")
}
