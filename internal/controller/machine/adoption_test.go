package machine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/cluster-api/util/secret"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// adoptable is a host that declares a Node of cluster c.
func adoptable(role infrav1.AdoptedRole) func(*infrav1.ElementalHost) {
	return func(h *infrav1.ElementalHost) {
		h.Spec.Adoption = &infrav1.HostAdoption{ClusterName: "c", Role: role}
		h.Status.Cleanliness = &infrav1.HostCleanliness{State: infrav1.CleanlinessDirty, Leftovers: []string{"/etc/kubernetes"}}
		h.Status.Agent = &infrav1.HostAgent{Version: "v0.2.0", Capabilities: []string{"Bootstrap", "Reset", "Adopt"}}
	}
}

// adoptedCluster creates cluster c, which ran before, with the Secret of its authority. It returns
// the hash of the authority's key.
func (f *fixture) adoptedCluster() string {
	f.T.Helper()
	authorities := secret.NewCertificatesForInitialControlPlane(nil)
	f.Expect(authorities.Generate()).To(Succeed())
	pair := authorities.GetByPurpose(secret.ClusterCA).KeyPair
	f.Create(&corev1.Secret{ObjectMeta: f.Meta("c-ca"), Type: clusterv1.ClusterSecretType, Data: map[string][]byte{
		"tls.crt": pair.Cert, "tls.key": pair.Key,
	}})
	f.Cluster("c", func(c *clusterv1.Cluster, infra *infrav1.ElementalCluster) {
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.1.1.1", Port: 6443}
		infra.Spec.Origin = infrav1.OriginAdopted
	})
	certificate, err := certs.DecodeCertPEM(pair.Cert)
	f.Expect(err).NotTo(HaveOccurred())
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// The first control-plane machine takes over the declared Node, and has no other host.
func TestAdoption(t *testing.T) {
	f := newFixture(t)
	f.Host("h0")
	hash := f.adoptedCluster()
	_, machine := f.Machine("c", "m", controllertest.ControlPlane, func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) { o.Spec.Version = "v1.36.2" })
	f.reconcile(machine)
	c := f.ExpectCondition(machine, infrav1.HostClaimedCondition, no, infrav1.NoHostReason)
	f.Expect(c.Message).To(ContainSubstring("1 not declared for adoption"))

	host := f.Host("h1", adoptable(infrav1.AdoptedControlPlane))
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound m"))
	f.Expect(host.Spec.Claim.Adoption).To(Equal(&infrav1.ClaimAdoption{AuthorityHash: hash, Endpoint: "10.1.1.1:6443", Version: "v1.36.2"}))
	f.Expect(host.Spec.Bundle).To(BeNil())
	f.ExpectCondition(machine, infrav1.BootstrappedCondition, no, infrav1.BootstrappingReason)

	f.ReportOperation(host, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
	f.reconcile(machine)
	f.Expect(machine.Spec.ProviderID).To(Equal("elemental://" + f.Namespace + "/h1"))
	f.ExpectCondition(machine, infrav1.ReadyCondition, yes, infrav1.ProvisionedReason)
	f.Expect(f.Events()).To(ContainElement(ContainSubstring("Took over the Node on host h1")))
	f.Refresh(host)
	f.Expect(host.Spec.Adoption).To(BeNil())
	f.Expect(host.Spec.Claim.Adoption).To(BeNil())

	// From now on the host is the machine's.
	f.Delete(machine)
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Releasing m"))
}

// Deleting a machine whose Node was not taken over leaves the host as it is, whatever its policy.
func TestThreat102_FailedAdoptionTouchesNothing(t *testing.T) {
	for name, policy := range map[string]infrav1.ReleaseAction{"reset": "", "hold": infrav1.ReleaseHold} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.adoptedCluster()
			host := f.Host("h1", adoptable(infrav1.AdoptedControlPlane))
			_, machine := f.Machine("c", "m", controllertest.ControlPlane, func(_ *clusterv1.Machine, m *infrav1.ElementalMachine) {
				m.Spec.Release.Policy = policy
			})
			f.reconcile(machine)
			f.ReportOperation(host, infrav1.OperationBootstrap, infrav1.OperationFailed)
			f.reconcile(machine)
			failed := f.ExpectCondition(machine, infrav1.BootstrappedCondition, no, infrav1.BootstrapFailedReason)
			f.Expect(failed.Message).To(HavePrefix("The adoption failed on host h1"))
			f.Delete(machine)
			_, err := f.reconciler.Reconcile(f.Ctx, request(machine))
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(f.Exists(machine)).To(BeFalse(), "nothing is waited for")
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal("free"))
			f.Expect(host.Spec.Adoption).NotTo(BeNil(), "another machine can take the Node over")
		})
	}
}

// Without the cluster's own authority nothing is claimed: the agent could not tell its Node.
func TestAdoptionNeedsTheAuthority(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c", func(_ *clusterv1.Cluster, infra *infrav1.ElementalCluster) { infra.Spec.Origin = infrav1.OriginAdopted })
	host := f.Host("h1", adoptable(infrav1.AdoptedControlPlane))
	_, machine := f.Machine("c", "m", controllertest.ControlPlane)
	_, err := f.reconciler.Reconcile(f.Ctx, request(machine))
	f.Expect(err).To(MatchError(ContainSubstring("getting Secret c-ca")))
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("free"))
}
