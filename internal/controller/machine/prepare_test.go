package machine_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
)

// bare is the status of a host without kubelet and kubeadm.
func bare(s *infrav1.ElementalHostStatus) {
	s.Agent = &infrav1.HostAgent{Capabilities: []string{"Bootstrap", "Reset", "Bundle"}}
	s.Inventory = &infrav1.HostInventory{Architecture: "amd64", Kubernetes: &infrav1.HostKubernetes{}}
}

func program(version string, origin infrav1.ProgramOrigin) infrav1.HostProgram {
	return infrav1.HostProgram{Path: "/usr/bin/x", Version: version, Origin: origin}
}

// equipped returns the status of a host with kubelet and kubeadm, and a container runtime unless
// its name is blank.
func equipped(version string, runtime infrav1.ContainerRuntimeName, origin infrav1.ProgramOrigin) func(*infrav1.ElementalHostStatus) {
	return func(s *infrav1.ElementalHostStatus) {
		bare(s)
		k := s.Inventory.Kubernetes
		k.Kubelet, k.Kubeadm = program(version, origin), program(version, origin)
		if runtime != "" {
			k.ContainerRuntime = infrav1.HostContainerRuntime{Name: runtime, Path: "/usr/bin/runtime", Origin: origin}
		}
	}
}

// preparing has a host, and a machine of kubeadm for v1.36.3 whose bootstrap data might install
// programs.
type preparing struct {
	*fixture

	host    *infrav1.ElementalHost
	owner   *clusterv1.Machine
	machine *infrav1.ElementalMachine
}

func newPreparing(t *testing.T, changes ...func(*infrav1.ElementalHostStatus)) *preparing {
	t.Helper()
	f := newFixture(t)
	host := f.Host("h1")
	f.Report(host, func(s *infrav1.ElementalHostStatus) {
		for _, change := range changes {
			change(s)
		}
	})
	f.Cluster("c")
	owner, machine := f.Machine("c", "m", func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Spec.IgnoreFindings = []infrav1.FindingName{infrav1.FindingPrograms, infrav1.FindingVersions}
		o.Spec.Version = "v1.36.3"
		o.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: "m"}
	})
	return &preparing{fixture: f, host: host, owner: owner, machine: machine}
}

func (p *preparing) release(version, architecture string) *infrav1.HostBundle {
	p.T.Helper()
	r := &infrav1.ElementalKubernetesRelease{ObjectMeta: p.Meta(version)}
	r.Spec = infrav1.ElementalKubernetesReleaseSpec{Version: version, Bundles: []infrav1.KubernetesBundle{
		{Architecture: architecture, SHA256: strings.Repeat("a", 64), SizeBytes: 7},
	}}
	p.Create(r)
	return &infrav1.HostBundle{Version: version, SHA256: strings.Repeat("a", 64), SizeBytes: 7, Sources: []string{"manager"}}
}

// claimed reconciles the machine and returns the message of Bootstrapped.
func (p *preparing) claimed() string {
	p.T.Helper()
	p.reconcile(p.machine)
	p.Refresh(p.host)
	p.Expect(claimOf(p.host)).To(Equal("Bound m"))
	p.reconcile(p.machine)
	return p.ExpectCondition(p.machine, infrav1.BootstrappedCondition, no, infrav1.BootstrappingReason).Message
}

func TestBareHostGetsTheBundle(t *testing.T) {
	p := newPreparing(t, bare)
	bundle := p.release("v1.36.3", "amd64")
	p.reconcile(p.machine)
	p.Refresh(p.host)
	p.Expect(p.host.Spec.Bundle).To(Equal(bundle))
	p.Expect(p.host.Generation).To(Equal(int64(2)), "the bundle is written with the claim: a bootstrap must not begin in between")
	p.Expect(p.claimed()).To(HaveSuffix(". The host has no kubelet, no kubeadm, no container runtime, and it installs the bundle of Kubernetes v1.36.3 first"))

	p.Report(p.host, func(s *infrav1.ElementalHostStatus) {
		s.Bundle = &infrav1.HostBundleStatus{SHA256: bundle.SHA256, Version: "v1.36.3", State: infrav1.BundleFailed, Message: "no space left"}
	})
	p.reconcile(p.machine)
	p.Expect(p.ExpectCondition(p.machine, infrav1.ReadyCondition, no, infrav1.BootstrappingReason).Message).
		To(HaveSuffix("it can't stage the bundle of Kubernetes v1.36.3: no space left"))
	p.Client.Forget()
	p.reconcile(p.machine)
	p.Expect(p.Client.Writes()).To(BeEmpty())

	// A host that was released and reset has neither the bundle nor an upgrade.
	p.ReportOperation(p.host, infrav1.OperationBootstrap, infrav1.OperationSucceeded)
	p.reconcile(p.machine)
	p.Expect(p.machine.Spec.ProviderID).NotTo(BeEmpty())
	p.Refresh(p.host)
	p.Expect(p.host.Spec.Bundle).To(Equal(bundle))
}

func TestHostsWithoutBundle(t *testing.T) {
	for name, tc := range map[string]struct {
		status func(*infrav1.ElementalHostStatus)
		// release is the version and architecture of the release; nil without one.
		release []string
		bundle  bool
		message string
	}{
		"no release": {bare, nil, false, ". The host has no kubelet, no kubeadm, no container runtime, and no ElementalKubernetesRelease v1.36.3 has a bundle for its architecture amd64"},
		"a release for another architecture": {
			bare, []string{"v1.36.3", "arm64"}, false, ". The host has no kubelet, no kubeadm, no container runtime, and no ElementalKubernetesRelease v1.36.3 has a bundle for its architecture amd64",
		},
		"a release of another version": {
			bare, []string{"v1.36.4", "amd64"}, false, ". The host has no kubelet, no kubeadm, no container runtime, and no ElementalKubernetesRelease v1.36.3 has a bundle for its architecture amd64",
		},
		"an agent that can't": {func(s *infrav1.ElementalHostStatus) {
			bare(s)
			s.Agent.Capabilities = []string{"Bootstrap", "Reset"}
		}, []string{"v1.36.3", "amd64"}, false, ". The host has no kubelet, no kubeadm, no container runtime, and its agent can't install a bundle: upgrade the agent"},
		"an agent that does not report programs": {func(s *infrav1.ElementalHostStatus) {
			bare(s)
			s.Inventory.Kubernetes = nil
		}, []string{"v1.36.3", "amd64"}, false, "its progress is in the ElementalHost"},
		"prepared": {
			equipped("v1.36.3", infrav1.RuntimeCRIO, infrav1.OriginPackage), []string{"v1.36.3", "amd64"}, false, "its progress is in the ElementalHost",
		},
		"other versions": {
			equipped("v1.35.1", infrav1.RuntimeContainerd, infrav1.OriginPackage), []string{"v1.36.3", "amd64"}, false,
			". The host has kubeadm v1.35.1 and kubelet v1.35.1, and the version of the Machine is v1.36.3",
		},
		"without a container runtime": {
			equipped("v1.36.3", "", infrav1.OriginPackage), []string{"v1.36.3", "amd64"}, true,
			". The host has no container runtime, and it installs the bundle of Kubernetes v1.36.3 first",
		},
		"without a container runtime, other versions": {
			equipped("v1.35.1", "", infrav1.OriginPackage), []string{"v1.36.3", "amd64"}, true,
			"first. The host has kubeadm v1.35.1 and kubelet v1.35.1, and the version of the Machine is v1.36.3",
		},
		"programs of a former bundle": {
			equipped("v1.36.3", infrav1.RuntimeContainerd, infrav1.OriginBundle), []string{"v1.36.3", "amd64"}, true, "its progress is in the ElementalHost",
		},
		"a container runtime of a former bundle": {func(s *infrav1.ElementalHostStatus) {
			equipped("v1.36.3", infrav1.RuntimeContainerd, infrav1.OriginPackage)(s)
			s.Inventory.Kubernetes.ContainerRuntime.Origin = infrav1.OriginBundle
		}, []string{"v1.36.3", "amd64"}, true, "its progress is in the ElementalHost"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPreparing(t, tc.status)
			if tc.release != nil {
				p.release(tc.release[0], tc.release[1])
			}
			p.Expect(p.claimed()).To(HaveSuffix(tc.message))
			p.Expect(p.host.Spec.Bundle != nil).To(Equal(tc.bundle))
		})
	}
}

// A release that is made after the claim still helps, until the bootstrap begins.
func TestReleaseThatComesLate(t *testing.T) {
	p := newPreparing(t, bare)
	p.Expect(p.claimed()).To(ContainSubstring("no ElementalKubernetesRelease v1.36.3"))
	bundle := p.release("v1.36.3", "amd64")
	p.Expect(p.claimed()).To(ContainSubstring("installs the bundle of Kubernetes v1.36.3 first"))
	p.Refresh(p.host)
	p.Expect(p.host.Spec.Bundle).To(Equal(bundle))

	late := newPreparing(t, bare)
	late.claimed()
	late.Report(late.host, func(s *infrav1.ElementalHostStatus) {
		controllertest.SetOperation(s, infrav1.HostOperation{
			Type: infrav1.OperationBootstrap, ID: late.host.Spec.Claim.ID, State: infrav1.OperationFailed, Step: "runcmd", Message: "kubeadm: not found",
		})
	})
	late.release("v1.36.3", "amd64")
	late.reconcile(late.machine)
	late.Refresh(late.host)
	late.Expect(late.host.Spec.Bundle).To(BeNil())
	late.Expect(late.ExpectCondition(late.machine, infrav1.ReadyCondition, no, infrav1.BootstrapFailedReason).Message).
		To(And(ContainSubstring("kubeadm: not found. "), ContainSubstring("The host has no kubelet, no kubeadm, no container runtime")))
}

// With the policy Replace a host gets the bundle whatever programs it has.
func TestProgramsAreReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		status  func(*infrav1.ElementalHostStatus)
		release bool
		message string
	}{
		"programs of a package": {
			equipped("v1.35.1", infrav1.RuntimeContainerd, infrav1.OriginPackage), true,
			". The programs of the host are to be replaced, and it installs the bundle of Kubernetes v1.36.3 first",
		},
		"none":     {bare, true, ". The programs of the host are to be replaced, and it installs the bundle of Kubernetes v1.36.3 first"},
		"replaced": {equipped("v1.36.3", infrav1.RuntimeContainerd, infrav1.OriginBundle), true, "its progress is in the ElementalHost"},
		"no release": {
			equipped("v1.36.3", infrav1.RuntimeContainerd, infrav1.OriginPackage), false,
			". The programs of the host are to be replaced, and no ElementalKubernetesRelease v1.36.3 has a bundle for its architecture amd64",
		},
		"an agent that can't": {func(s *infrav1.ElementalHostStatus) {
			equipped("v1.36.3", infrav1.RuntimeContainerd, infrav1.OriginPackage)(s)
			s.Agent.Capabilities = nil
		}, false, ". The programs of the host are to be replaced, and its agent can't install a bundle: upgrade the agent"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPreparing(t, tc.status)
			p.machine.Spec.Programs = infrav1.ProgramsReplace
			p.Expect(p.Client.Update(p.Ctx, p.machine)).To(Succeed())
			var bundle *infrav1.HostBundle
			if tc.release {
				bundle = p.release("v1.36.3", "amd64")
				bundle.Programs = infrav1.ProgramsReplace
			}
			p.Expect(p.claimed()).To(HaveSuffix(tc.message))
			p.Expect(p.host.Spec.Bundle).To(Equal(bundle))
		})
	}
}
