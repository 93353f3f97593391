package machine_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

func inDomain(name string) func(*infrav1.ElementalHost) {
	return labelled(map[string]string{infrav1.DefaultFailureDomainLabel: name})
}

// publishes sets the failure domains of the Cluster: "+name" for the control plane, "-name"
// for others.
func publishes(domains ...string) func(*clusterv1.Cluster, *infrav1.ElementalCluster) {
	return func(c *clusterv1.Cluster, _ *infrav1.ElementalCluster) {
		c.Status.Initialization.ControlPlaneInitialized = new(true)
		for _, d := range domains {
			c.Status.FailureDomains = append(c.Status.FailureDomains, clusterv1.FailureDomain{Name: d[1:], ControlPlane: new(d[0] == '+')})
		}
	}
}

func ownedBy(kind string) func(*clusterv1.Machine, *infrav1.ElementalMachine) {
	return func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.org/v1", Kind: kind, Name: "owner", UID: "uid", Controller: new(true)}}
	}
}

func fixedTo(domain string) func(*clusterv1.Machine, *infrav1.ElementalMachine) {
	return func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) { o.Spec.FailureDomain = domain }
}

func cordoned(h *infrav1.ElementalHost) { h.Spec.Cordon = &infrav1.HostCordon{Reason: "fan"} }

// A control-plane Machine does not wait in a failure domain without a host while another
// one has a host: its owner creates another Machine there.
func TestWaitingMachineIsReplacedInAnotherDomain(t *testing.T) {
	kubeadm := ownedBy("KubeadmControlPlane")
	for name, tc := range map[string]struct {
		published []string
		host      func(*infrav1.ElementalHost)
		machine   []func(*clusterv1.Machine, *infrav1.ElementalMachine)
		replaced  bool
		reason    string
		advice    string
	}{
		"a host in another published domain": {
			published: []string{"-a", "+b"}, machine: []func(*clusterv1.Machine, *infrav1.ElementalMachine){controllertest.ControlPlane, kubeadm},
			replaced: true, reason: infrav1.NoHostInFailureDomainReason, advice: "is replaced as soon as",
		},
		"its own domain is published still": {
			published: []string{"+a", "+b"}, machine: []func(*clusterv1.Machine, *infrav1.ElementalMachine){controllertest.ControlPlane, kubeadm},
			reason: infrav1.NoHostInFailureDomainReason, advice: "is replaced as soon as",
		},
		"the other domain is not published": {
			published: []string{"-b", "+c"}, machine: []func(*clusterv1.Machine, *infrav1.ElementalMachine){controllertest.ControlPlane, kubeadm},
			reason: infrav1.NoHostInFailureDomainReason, advice: "is replaced as soon as",
		},
		"the other domain's host can't be used": {
			published: []string{"+b"}, host: cordoned, machine: []func(*clusterv1.Machine, *infrav1.ElementalMachine){controllertest.ControlPlane, kubeadm},
			reason: infrav1.NoHostReason, advice: "None of 1 hosts can be used",
		},
		"no owner": {
			published: []string{"+b"}, machine: []func(*clusterv1.Machine, *infrav1.ElementalMachine){controllertest.ControlPlane},
			reason: infrav1.NoHostInFailureDomainReason, advice: "Nothing owns the Machine",
		},
		"a worker, whose replacement would get the same domain": {
			published: []string{"+b"}, machine: []func(*clusterv1.Machine, *infrav1.ElementalMachine){ownedBy("MachineSet")},
			reason: infrav1.NoHostInFailureDomainReason, advice: "change spec.template.spec.failureDomain",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Cluster("c", publishes(tc.published...))
			f.Host("h", inDomain("b"), func(h *infrav1.ElementalHost) {
				if tc.host != nil {
					tc.host(h)
				}
			})
			owner, m := f.Machine("c", "m", append(tc.machine, fixedTo("a"))...)
			f.reconcile(m)
			f.Expect(f.ExpectCondition(m, infrav1.HostClaimedCondition, no, tc.reason).Message).To(ContainSubstring(tc.advice))
			f.Expect(f.Exists(owner)).NotTo(Equal(tc.replaced))
			event := ContainElement(ContainSubstring(infrav1.MachineReplacedReason))
			if !tc.replaced {
				event = Not(event)
			}
			f.Expect(f.Events()).To(event)
		})
	}
}

// The first Machine of a control plane has to have the reserved host.
func TestMachineThatWaitsForTheReservedHostStays(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c", publishes("+b"), func(c *clusterv1.Cluster, infra *infrav1.ElementalCluster) {
		c.Status.Initialization.ControlPlaneInitialized = nil
		infra.Spec.ControlPlaneEndpoint = infrav1.ControlPlaneEndpoint{Host: "10.0.0.1", Port: 6443}
		infra.Spec.ControlPlaneEndpointPolicy.HostRef = &infrav1.EndpointHostReference{Name: "r", ChosenAt: metav1.Now()}
	})
	f.Host("h", inDomain("b"))
	f.Host("r", inDomain("a"), cordoned, func(h *infrav1.ElementalHost) {
		h.Spec.Claim = &infrav1.HostClaim{ClusterName: "c", Phase: infrav1.ClaimReserved}
	})
	owner, m := f.Machine("c", "m", controllertest.ControlPlane, ownedBy("KubeadmControlPlane"), fixedTo("a"))
	f.reconcile(m)
	f.ExpectCondition(m, infrav1.HostClaimedCondition, no, infrav1.NoHostReason)
	f.Expect(f.Exists(owner)).To(BeTrue())
}

// A host that becomes free wakes a control-plane Machine of another failure domain, unless
// a Machine of its own domain waits.
func TestHostWakesControlPlaneOfAnotherDomain(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	f.waitingMachine("control-plane", controllertest.ControlPlane, fixedTo("a"))
	f.waitingMachine("worker", fixedTo("a"))
	f.waitingMachine("near", fixedTo("c"))
	f.Expect(f.woken(nil, f.Host("h1", inDomain("b")))).To(Equal([]string{"control-plane"}))
	f.Expect(f.woken(nil, f.Host("h2", inDomain("c")))).To(Equal([]string{"near"}))
}
