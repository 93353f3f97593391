//go:build embedded

package main_test

import (
	"crypto/x509"
	"fmt"
	"net"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/enrolment"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/identity"
)

const (
	// impostor begins the names of objects that claim to belong to the victims' objects, stolen those of hosts that are
	// declared for their keys.
	impostor, stolen = "impostor", "stolen"
	// hostAddress is the first victim's, and that of its cluster's endpoint. virtualIP is that of another cluster's.
	hostAddress, virtualIP = "192.0.2.10", "192.0.2.200"
	// forgedAddress belongs to no host.
	forgedAddress = "203.0.113.77"
)

// addHostile adds the hostile tenant's registrations, hosts and clusters, and returns what the rogue gets.
func (w *world) addHostile() map[string]any {
	w.t.Helper()
	token := w.registration(hostile, "edge", func(*infrav1.ElementalRegistrationSpec) {})
	fenced, deleted := w.register(token, "198.51.100.9"), w.register(token, "198.51.100.8")
	host := w.host(hostile, fenced.name)
	host.Spec.Fence = &infrav1.HostFence{Reason: "stolen"}
	w.Expect(w.admin.Update(w.t.Context(), host)).To(Succeed())
	w.Expect(w.admin.Delete(w.t.Context(), w.host(hostile, deleted.name))).To(Succeed())
	w.Eventually(func() error {
		_, err := deleted.client.Plan(w.t.Context(), "", "boot")
		return err
	}).Should(HaveOccurred())
	fencedKey, err := x509.MarshalECPrivateKey(fenced.private)
	w.Expect(err).NotTo(HaveOccurred())
	deletedKey, err := x509.MarshalECPrivateKey(deleted.private)
	w.Expect(err).NotTo(HaveOccurred())
	out := map[string]any{
		"token": token, "fencedKey": fencedKey, "deletedKey": deletedKey, "movedToken": w.movedToken("edge"), "forgedAddress": forgedAddress,
		"manualToken": w.registration(hostile, "manual", func(s *infrav1.ElementalRegistrationSpec) { s.Approval = infrav1.ApprovalManual }),
		"singleToken": w.registration(hostile, "single", func(s *infrav1.ElementalRegistrationSpec) { s.Token.MaxUses = 1 }),
	}
	w.addCluster(hostile, "theirs", func(p *infrav1.ControlPlaneEndpointPolicy) { p.Host = &infrav1.EndpointHostPolicy{} })
	w.addCluster(hostile, "behind", ofTypeTunnel)
	w.addMachine(hostile, "behind", "behind-worker", nil)
	// Its registrations compete for the serving certificate.
	for i := range 100 {
		r := &infrav1.ElementalRegistration{ObjectMeta: metav1.ObjectMeta{Namespace: hostile, Name: fmt.Sprintf("a%d", i)}}
		r.Spec.Endpoint.URL = fmt.Sprintf("https://a%d.example", i)
		w.create(r)
	}
	return out
}

func ofTypeTunnel(p *infrav1.ControlPlaneEndpointPolicy) { p.Type = infrav1.EndpointTypeTunnel }

func ofTypeVIP(address string) func(*infrav1.ControlPlaneEndpointPolicy) {
	return func(p *infrav1.ControlPlaneEndpointPolicy) {
		p.Type, p.VIP = infrav1.EndpointTypeVIP, &infrav1.EndpointVIP{Address: address}
	}
}

// movedToken creates the Secret of a long-lived token as a move or a restore does it a day before the token expires.
func (w *world) movedToken(registration string) string {
	w.t.Helper()
	const day = 24 * time.Hour
	plain := identity.NewToken()
	secret := &corev1.Secret{Type: infrav1.TokenSecretType, ObjectMeta: metav1.ObjectMeta{
		Namespace: hostile, Name: "moved", Labels: map[string]string{infrav1.RegistrationLabel: registration},
	}}
	enrolment.Token{
		Hash: identity.HashToken(plain), IssuedAt: time.Now().Add(-29 * day), ExpiresAt: time.Now().Add(day), MaxUses: 100,
	}.WriteTo(secret)
	w.create(secret)
	return plain
}

// plot is what the hostile tenant does beside the rogue.
type plot struct {
	// invited is a machine whose key the tenant knows before it enrols.
	invited *honest
	// squatters are hosts whose clusters want addresses of victims.
	squatters []*honest
}

// conspire does what somebody can do who may create objects in a namespace.
func (w *world) conspire(first, inShared *honest) plot {
	w.t.Helper()
	p := plot{invited: w.machine()}
	w.declareKeys(first.fingerprint, p.invited.fingerprint)
	w.impersonate(w.host(shared, inShared.name))
	w.addDeputies()
	token := w.registration(squatters, "edge", func(*infrav1.ElementalRegistrationSpec) {})
	for i := range squats() {
		p.squatters = append(p.squatters, w.enrol(token, fmt.Sprintf("192.0.2.%d", 66+i)))
	}
	for _, s := range squats() {
		w.addCluster(squatters, s.name, ofTypeVIP(s.address), func(c *infrav1.ElementalCluster) {
			if s.inSpec {
				c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: s.address, Port: 6443}
			}
		})
	}
	return p
}

// declareKeys declares each key in the rogue's namespace, in all ways that there are.
func (w *world) declareKeys(keys ...string) {
	w.t.Helper()
	for i, key := range keys {
		for way, declared := range map[string]*infrav1.HostIdentity{
			"key":    {KeyFingerprint: key, Generation: 1},
			"match":  {Match: &infrav1.IdentityMatch{KeyFingerprint: key}},
			"next":   {KeyFingerprint: w.machine().fingerprint, NextKeyFingerprint: key, Generation: 1},
			"former": {KeyFingerprint: w.machine().fingerprint, FormerKeyFingerprint: key, Generation: 2},
		} {
			h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: hostile, Name: fmt.Sprintf("%s-%s-%d", stolen, way, i)}}
			h.Spec.Identity, h.Spec.Approval = declared, infrav1.ApprovalApproved
			w.create(h)
		}
	}
}

// impersonate creates objects that claim to belong to the Cluster and the Machine of a victim. Each would change the
// victim's plan, endpoint or claim.
func (w *world) impersonate(victim *infrav1.ElementalHost) {
	w.t.Helper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: shared}}
	machine := &clusterv1.Machine{ObjectMeta: cluster.ObjectMeta}
	w.Expect(w.get(cluster)).To(Succeed())
	w.Expect(w.get(machine)).To(Succeed())
	ofCluster := func(name string) *infrav1.ElementalCluster {
		c := &infrav1.ElementalCluster{ObjectMeta: metaOf(shared, shared, impostor+"-"+name)}
		c.OwnerReferences = ownedBy("Cluster", cluster)
		c.Annotations = map[string]string{infrav1.MoveEndpointAnnotation: unbound, infrav1.PreventResetAnnotation: ""}
		c.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: sharedAddress, Port: 6443}
		return c
	}
	image, move := ofCluster("image"), ofCluster("move")
	ofTypeVIP(sharedAddress)(&image.Spec.ControlPlaneEndpointPolicy)
	image.Spec.ControlPlaneEndpointPolicy.VIP.Image = "hostile.example/kube-vip:v1"
	move.Spec.ControlPlaneEndpointPolicy = infrav1.ControlPlaneEndpointPolicy{
		Type: infrav1.EndpointTypeHost, HostRef: &infrav1.EndpointHostReference{Name: victim.Name, ChosenAt: metav1.Now()},
	}
	release := &infrav1.ElementalMachine{ObjectMeta: metaOf(shared, shared, impostor+"-release")}
	release.OwnerReferences = ownedBy("Machine", machine)
	release.Spec.HostRef = &infrav1.HostReference{Name: victim.Name, ClaimID: victim.Spec.Claim.ID}
	w.create(image, move, release)
}

// impostors returns the objects that impersonate has created.
func impostors() (clusters []*infrav1.ElementalCluster, machine *infrav1.ElementalMachine) {
	for _, name := range []string{"image", "move"} {
		clusters = append(clusters, &infrav1.ElementalCluster{ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: impostor + "-" + name}})
	}
	return clusters, &infrav1.ElementalMachine{ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: impostor + "-release"}}
}

// addDeputies creates Machines for the rogue's hosts whose bootstrap data is a Secret that is not theirs.
func (w *world) addDeputies() {
	w.t.Helper()
	for name, bootstrap := range map[string]clusterv1.Bootstrap{
		"kubeconfig": {DataSecretName: new(secretOfKubeconfig)},
		"ca":         {DataSecretName: new(secretOfCA)},
		"config":     {DataSecretName: new(secretOfConfig)},
		"configured": {DataSecretName: new(secretOfKubeconfig), ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "honest",
		}},
	} {
		w.addMachine(shared, shared, "deputy-"+name, nil, ofRegistration(guests), func(m *clusterv1.Machine, _ *infrav1.ElementalMachine) {
			m.Spec.Bootstrap = bootstrap
		})
	}
}

// squat is a cluster that wants an address of a victim.
type squat struct {
	name, address string
	// inSpec says that its tenant gives the address as endpoint, too.
	inSpec bool
}

func squats() []squat {
	return []squat{{"squats", virtualIP, false}, {"insists", virtualIP, true}, {"spoofs", hostAddress, true}}
}

// is reports whether an address is the squatted one, whatever its notation.
func (s squat) is(address string) bool { return net.ParseIP(s.address).Equal(net.ParseIP(address)) }
