package server_test

import (
	"context"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server"
)

// chain has the objects that lead from a host's claim to bootstrap data.
type chain struct {
	host             string
	claim            infrav1.HostClaim
	elementalMachine infrav1.ElementalMachine
	machine          clusterv1.Machine
	secret           corev1.Secret
}

func (h *harness) chain(host, name string) *chain {
	labels := map[string]string{clusterv1.ClusterNameLabel: "c"}
	meta := metav1.ObjectMeta{Namespace: h.namespace, Name: name, Labels: labels}
	secretName := name + "-data"
	return &chain{
		host:  host,
		claim: infrav1.HostClaim{ID: "claim-" + name, ClusterName: "c", MachineName: name, Phase: infrav1.ClaimBound},
		elementalMachine: infrav1.ElementalMachine{
			ObjectMeta: meta,
			Spec:       infrav1.ElementalMachineSpec{HostRef: &infrav1.HostReference{Name: host, ClaimID: "claim-" + name}},
		},
		machine: clusterv1.Machine{
			ObjectMeta: meta,
			Spec: clusterv1.MachineSpec{
				ClusterName:       "c",
				Bootstrap:         clusterv1.Bootstrap{DataSecretName: &secretName},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachine", Name: name},
			},
		},
		secret: corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: secretName, Labels: labels},
			Type:       clusterv1.ClusterSecretType,
			Data:       map[string][]byte{"value": []byte("#cloud-config of " + name), "format": []byte("cloud-config")},
		},
	}
}

// create creates the chain and then the host's claim.
func (c *chain) create(h *harness) {
	h.tb.Helper()
	ctx := context.Background()
	h.must(h.admin.Create(ctx, &c.secret))
	h.must(h.admin.Create(ctx, &c.machine))
	if len(c.elementalMachine.OwnerReferences) == 0 {
		c.elementalMachine.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: c.machine.Name, UID: c.machine.UID,
		}}
	}
	h.must(h.admin.Create(ctx, &c.elementalMachine))
	h.cachedSoon(&c.machine)
	h.cachedSoon(&c.elementalMachine)
	h.cachedSoon(h.patch(c.host, func(host *infrav1.ElementalHost) { host.Spec.Claim = &c.claim }))
}

func (a *agent) bootstrap(id string) answer {
	a.h.tb.Helper()
	return a.call(http.MethodGet, protocol.PathBootstrap+"?operation="+id, nil)
}

func TestThreat25_BootstrapServedOnce(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	a := h.ready()
	c := h.chain(a.name, "m1")
	c.create(h)
	for range 2 {
		got := a.bootstrap("claim-m1")
		g.Expect(got.status).To(Equal(http.StatusOK), got.body)
		g.Expect(got.body).To(Equal("#cloud-config of m1"))
		g.Expect(got.header.Get(protocol.HeaderBootstrapFormat)).To(Equal(protocol.FormatCloudConfig))
		g.Expect(got.header.Get("Cache-Control")).To(Equal("no-store"))
	}
	g.Expect(h.logs.text()).NotTo(ContainSubstring("#cloud-config of"))
	g.Expect(h.logs.text()).To(ContainSubstring(`"decision":"BootstrapServed"`))

	refused := func() {
		t.Helper()
		got := a.bootstrap("claim-m1")
		g.Expect(got.status).To(Equal(http.StatusNotFound))
		g.Expect(got.problem().Type).To(Equal(protocol.ProblemNoOperation))
	}
	g.Expect(a.bootstrap("").status).To(Equal(http.StatusNotFound))
	g.Expect(a.bootstrap("claim-m2").status).To(Equal(http.StatusNotFound))
	g.Expect(a.reportOperation(protocol.OperationBootstrap, "claim-m1", protocol.StateSucceeded).status).To(Equal(http.StatusNoContent))
	refused()
	h.patch(a.name, releasing)
	refused()
	g.Expect(h.writes.take()).To(Equal([]string{"patch ElementalHost/status"}), "the server never writes the Secret")
}

func TestThreat33_ConfusedDeputy(t *testing.T) {
	g := NewWithT(t)
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 100 })
	victim := h.enrolled(token)
	h.chain(victim.name, "victim").create(h)
	h.cluster("d") // a missing Cluster counts as paused

	// The operation's ID is not enough, and neither is a host object that was edited to
	// have the victim's claim.
	attacker := h.enrolled(token)
	g.Expect(attacker.bootstrap("claim-victim").status).To(Equal(http.StatusNotFound))
	h.cachedSoon(h.patch(attacker.name, func(host *infrav1.ElementalHost) {
		host.Spec.Claim = &infrav1.HostClaim{ID: "claim-victim", ClusterName: "c", MachineName: "victim", Phase: infrav1.ClaimBound}
	}))
	g.Expect(attacker.bootstrap("claim-victim").status).To(Equal(http.StatusNotFound))

	for name, breakLink := range map[string]func(*chain){
		"another type of Secret": func(c *chain) { c.secret.Type = corev1.SecretTypeOpaque },
		"a Secret of no cluster": func(c *chain) { c.secret.Labels = nil },
		"a Secret of another":    func(c *chain) { c.secret.Labels = map[string]string{clusterv1.ClusterNameLabel: "d"} },
		"a Machine of another":   func(c *chain) { c.machine.Spec.ClusterName = "d" },
		"a Machine without data": func(c *chain) {
			c.machine.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{APIGroup: "b.x", Kind: "B", Name: "b"}}
		},
		"a Machine of another infra": func(c *chain) { c.machine.Spec.InfrastructureRef.Name = "victim" },
		"a claim of another Machine": func(c *chain) { c.claim.MachineName = "victim" },
		"a claim of another cluster": func(c *chain) { c.claim.ClusterName = "d" },
		"a claim on another host":    func(c *chain) { c.elementalMachine.Spec.HostRef.Name = "other" },
		"another claim":              func(c *chain) { c.elementalMachine.Spec.HostRef.ClaimID = "other" },
		"a releasing claim":          func(c *chain) { c.claim.Phase = infrav1.ClaimReleasing },
		"an owner of the same name": func(c *chain) {
			c.elementalMachine.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: c.machine.Name, UID: "stale"}}
		},
		"an owner of another kind": func(c *chain) {
			c.elementalMachine.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Machine", Name: c.machine.Name, UID: "x"}}
		},
		"no data": func(c *chain) { c.secret.Data = nil },
	} {
		t.Run(name, func(t *testing.T) {
			a := h.enrolled(token)
			c := h.chain(a.name, "m-"+a.id)
			breakLink(c)
			c.create(h)
			NewWithT(t).Expect(a.bootstrap(c.claim.ID).status).To(Equal(http.StatusNotFound))
		})
	}
}

// A Machine can't make the manager serve other Secrets of its cluster: with a bootstrap
// configuration, the configuration must control the Secret; without one, the Secret must
// neither be a configuration's nor a kubeconfig or CA.
func TestThreat50_SecretsOfTheCluster(t *testing.T) {
	h := start(t)
	h.registration("edge")
	token, _ := h.token("edge", func(t *enrolment.Token) { t.MaxUses = 100 })
	const group = "bootstrap.cluster.x-k8s.io"
	configured := func(c *chain) {
		c.machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: "KubeadmConfig", Name: c.machine.Name}
	}
	controlled := func(c *chain, apiVersion, kind, name string) {
		c.secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "u", Controller: new(true)}}
	}
	named := func(c *chain, name string) {
		c.secret.Name = name
		c.machine.Spec.Bootstrap.DataSecretName = &name
	}
	for name, test := range map[string]struct {
		change func(*chain)
		want   int
	}{
		"data of the Machine's configuration": {func(c *chain) {
			configured(c)
			controlled(c, group+"/v1beta2", "KubeadmConfig", c.machine.Name)
		}, http.StatusOK},
		"data of another Machine's configuration": {func(c *chain) {
			configured(c)
			controlled(c, group+"/v1beta2", "KubeadmConfig", "victim")
		}, http.StatusNotFound},
		"the cluster's kubeconfig": {func(c *chain) {
			configured(c)
			named(c, "c-kubeconfig")
			controlled(c, "controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane", "c")
		}, http.StatusNotFound},
		"a kubeconfig without an owner":           {func(c *chain) { configured(c); named(c, "c-user-kubeconfig") }, http.StatusNotFound},
		"a kubeconfig, without a configuration":   {func(c *chain) { named(c, "c-admin-kubeconfig") }, http.StatusNotFound},
		"a CA, without a configuration":           {func(c *chain) { named(c, "c-ca") }, http.StatusNotFound},
		"another Machine's, without":              {func(c *chain) { controlled(c, group+"/v1beta2", "KubeadmConfig", "victim") }, http.StatusNotFound},
		"a user's data, without a configuration":  {func(*chain) {}, http.StatusOK},
		"a user's data, although there is config": {configured, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			a := h.enrolled(token)
			c := h.chain(a.name, "m-"+a.id)
			test.change(c)
			c.create(h)
			NewWithT(t).Expect(a.bootstrap(c.claim.ID).status).To(Equal(test.want))
		})
	}
}

// The cache may receive the host before the ElementalMachine.
func TestBootstrapIsServedBeforeTheCacheHasTheClaim(t *testing.T) {
	g := NewWithT(t)
	h := start(t, func(o *server.Options) {
		o.Client = interceptor.NewClient(o.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				err := c.Get(ctx, key, o, opts...)
				if m, ok := o.(*infrav1.ElementalMachine); ok {
					m.Spec.HostRef = nil
				}
				return err
			},
		})
	})
	a := h.ready()
	h.chain(a.name, "m1").create(h)
	g.Expect(a.bootstrap("claim-m1").body).To(Equal("#cloud-config of m1"))
}
