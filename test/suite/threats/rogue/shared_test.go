//go:build embedded

package main_test

import (
	"encoding/json"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

const (
	// servers is the registration of the victims' hosts in the shared namespace, guests one that the rogue has a token of.
	servers, guests = "servers", "guests"
	// bound is the victim there, unbound a host that was declared for a machine that has not come yet.
	bound, unbound = "rack-2", "rack-1"
	// waiting is a Machine that waits for a host of the registration servers.
	waiting = "waits"
	// sized is a template whose expression reads inventories.
	sized = "sized"
	// secretOfConfig is the bootstrap data of a Machine with a bootstrap configuration.
	secretOfKubeconfig, secretOfCA, secretOfConfig = shared + "-kubeconfig", shared + "-ca", shared + "-config"
	// sharedAddress is the victim's, and that of its cluster's endpoint.
	sharedAddress = "192.0.2.20"
)

// serialOf returns the serial number that a host was declared for.
func serialOf(host string) string { return "SN-" + host }

// addShared adds what victims have in the shared namespace, and returns the victim and what guests get.
func (w *world) addShared() (victim *honest, given map[string]any) {
	w.t.Helper()
	for _, name := range []string{unbound, bound} {
		h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{
			Namespace: shared, Name: name, Labels: map[string]string{infrav1.RegistrationLabel: servers},
		}}
		h.Spec.Identity = &infrav1.HostIdentity{Match: &infrav1.IdentityMatch{SerialNumber: serialOf(name)}}
		h.Spec.RegistrationRef = &infrav1.LocalReference{Name: servers}
		w.create(h)
		w.Eventually(func() []metav1.Condition { return w.host(shared, name).Status.Conditions }).ShouldNot(BeEmpty(), "the manager knows it")
	}
	token := w.registration(shared, servers, func(*infrav1.ElementalRegistrationSpec) {})
	given = map[string]any{
		"guestToken":       w.registration(shared, guests, func(*infrav1.ElementalRegistrationSpec) {}),
		"guestManualToken": w.registration(shared, guests+"-manual", func(s *infrav1.ElementalRegistrationSpec) { s.Approval = infrav1.ApprovalManual }),
		"serials":          []string{serialOf(unbound), serialOf(bound)},
	}
	victim = w.machine()
	victim.serial = serialOf(bound)
	w.work(w.registerMachine(victim, token, sharedAddress))
	w.Expect(victim.name).To(Equal(bound))
	w.addCluster(shared, shared, func(p *infrav1.ControlPlaneEndpointPolicy) { p.Host = &infrav1.EndpointHostPolicy{} })
	w.Expect(w.bootstrapped(shared, shared).Name).To(Equal(bound))
	w.addMachine(shared, shared, waiting, nil, ofRegistration(servers))
	w.addSecrets()
	w.addSized(shared)
	return victim, given
}

// ofRegistration has a machine select the hosts of a registration.
func ofRegistration(name string) func(*clusterv1.Machine, *infrav1.ElementalMachine) {
	return func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Spec.HostSelector = &infrav1.HostSelector{MatchLabels: infrav1.Labels{infrav1.RegistrationLabel: name}}
	}
}

// addSecrets adds Secrets of the shared cluster that Cluster API makes.
func (w *world) addSecrets() {
	w.t.Helper()
	config := &bootstrapv1.KubeadmConfig{ObjectMeta: metaOf(shared, shared, "honest")}
	w.create(config)
	kubeconfig := "apiVersion: v1\nkind: Config\nclusters:\n- name: shared\n  cluster:\n    server: https://" + sharedAddress + ":6443\n# "
	for name, text := range map[string]string{secretOfKubeconfig: kubeconfig, secretOfCA: "", secretOfConfig: "#cloud-config\n# "} {
		secret := &corev1.Secret{ObjectMeta: metaOf(shared, shared, name), Type: clusterv1.ClusterSecretType}
		secret.Data = map[string][]byte{"value": []byte(text + secretData + "-" + name + "\n")}
		if name == secretOfConfig {
			secret.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: bootstrapv1.GroupVersion.String(), Kind: "KubeadmConfig", Name: config.Name, UID: config.UID, Controller: new(true),
			}}
		}
		w.create(secret)
	}
}

// addSized adds a template that victims' hosts match, and waits until it shows their capacity.
func (w *world) addSized(namespace string) {
	w.t.Helper()
	template := &infrav1.ElementalMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sized}}
	template.Spec.Template.Spec = &infrav1.ElementalMachineSpec{HostSelector: &infrav1.HostSelector{
		Expression: `host.inventory.cpu.cores >= 4 && host.inventory.disks.exists(d, d.sizeBytes > 1)`,
	}}
	w.create(template)
	w.Eventually(func() corev1.ResourceList {
		w.Expect(w.get(template)).To(Succeed())
		return template.Status.Capacity
	}).ShouldNot(BeEmpty())
}

// capacities returns what the templates show that victims' hosts match.
func (w *world) capacities() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, namespace := range []string{tenant, shared} {
		template := &infrav1.ElementalMachineTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sized}}
		w.Expect(w.get(template)).To(Succeed())
		text, err := json.Marshal(template.Status)
		w.Expect(err).NotTo(HaveOccurred())
		out[namespace] = string(text)
	}
	return out
}
