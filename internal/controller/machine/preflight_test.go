package machine_test

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/preflight"
)

// ready is the status of a host on which kubeadm v1.36 works.
func ready(s *infrav1.ElementalHostStatus) {
	equipped("v1.36.3", infrav1.RuntimeContainerd, infrav1.OriginPackage)(s)
	s.Inventory.Preflight = &infrav1.HostPreflight{
		Swap: infrav1.FeatureDisabled, BridgeNetfilter: infrav1.FeatureEnabled, IPForwarding: infrav1.FeatureEnabled,
	}
}

func ofKubeadm(ignored ...infrav1.FindingName) func(*clusterv1.Machine, *infrav1.ElementalMachine) {
	return func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
		m.Spec.IgnoreFindings = ignored
		o.Spec.Version = "v1.36.3"
		o.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: o.Name}
	}
}

// lack is something that a host may lack.
type lack struct {
	change  func(*infrav1.ElementalHostStatus)
	finding infrav1.FindingName
	// named is what Prepared says of it; blank if only Machines of another version can have
	// the host.
	named string
}

func lacks() map[string]lack {
	type host = infrav1.ElementalHostStatus
	return map[string]lack{
		"swap":           {func(s *host) { s.Inventory.Preflight.Swap = infrav1.FeatureEnabled }, infrav1.FindingSwap, "Swap is on"},
		"wrong kubelet":  {func(s *host) { s.Inventory.Kubernetes.Kubelet.Version = "v1.35.4" }, infrav1.FindingVersions, "kubelet is v1.35.4"},
		"wrong programs": {equipped("v1.35.4", infrav1.RuntimeContainerd, infrav1.OriginPackage), infrav1.FindingVersions, ""},
		"no programs":    {bare, infrav1.FindingPrograms, "kubelet is missing"},
		"taken port":     {func(s *host) { s.Inventory.Preflight.TakenPorts = []int32{6443} }, infrav1.FindingPorts, "Port 6443 is taken"},
		"no br_netfilter": {func(s *host) { s.Inventory.Preflight.BridgeNetfilter = infrav1.FeatureDisabled },
			infrav1.FindingBridgeNetfilter, "br_netfilter is not in use"},
		"a dead runtime": {func(s *host) { s.Inventory.Preflight.RuntimeSocket = infrav1.FeatureDisabled }, infrav1.FindingRuntime, "The container runtime does not run"},
		"a full disk":    {func(s *host) { s.Inventory.Preflight.FreeBytes = 1 }, infrav1.FindingDiskSpace, "Less than 1 GiB is free"},
		"no name server": {func(s *host) { s.Inventory.Preflight.NameServers = infrav1.FeatureMissing }, infrav1.FindingNameServers, "names no name server"},
		"cgroup v1": {func(s *host) {
			s.Inventory.Preflight.CgroupVersion, s.Inventory.Preflight.KubeletCgroupV1 = 1, infrav1.FeatureDisabled
		}, infrav1.FindingCgroupVersion, "The host has cgroup v1"},
		"a wrong clock": {func(s *host) { s.Agent.ClockSkewSeconds = -3600 }, infrav1.FindingClock, "The clock is 60 minutes behind"},
	}
}

// A host on which kubeadm would fail is named, never claimed and counted, and claimed once it is
// mended. The report that says so wakes the machine.
func TestUnpreparedHostsAreNotClaimed(t *testing.T) {
	for name, tc := range lacks() {
		t.Run(name, func(t *testing.T) {
			f := newFreeHostsFixture(t)
			host := f.Host("h1")
			f.Report(host, ready)
			f.Report(host, tc.change)
			f.woken(nil, host)
			_, machine := f.Machine("c", "m", ofKubeadm())
			f.reconcile(machine)
			c := f.ExpectCondition(machine, infrav1.HostClaimedCondition, no, infrav1.NoHostReason)
			f.Expect(c.Message).To(Equal("None of 1 hosts can be used: 1 NotPrepared"))
			f.Refresh(host)
			f.Expect(host.Spec.Claim).To(BeNil())
			f.Expect(host.Spec.Quarantine).To(BeNil())
			if tc.named != "" {
				c := f.ExpectCondition(host, infrav1.PreparedCondition, no, infrav1.NotPreparedReason)
				f.Expect(c.Message).To(ContainSubstring(tc.named))
			} else {
				c := f.ExpectCondition(host, infrav1.PreparedCondition, yes, infrav1.PreparedReason)
				f.Expect(c.Message).To(Equal("For Machines of Kubernetes v1.35"))
			}

			before := host.DeepCopy()
			f.Report(host, ready)
			f.Expect(f.woken(before, host)).To(ConsistOf("m"))
			f.reconcile(machine)
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal("Bound m"))
		})
	}
}

// The user says that the bootstrap data mends it.
func TestIgnoredFindingsDoNotMatter(t *testing.T) {
	for name, tc := range lacks() {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.Cluster("c")
			host := f.Host("h1")
			f.Report(host, ready)
			f.Report(host, tc.change)
			_, other := f.Machine("c", "other", ofKubeadm(infrav1.FindingIPForwarding))
			f.reconcile(other)
			f.ExpectCondition(other, infrav1.HostClaimedCondition, no, infrav1.NoHostReason)
			_, machine := f.Machine("c", "m", ofKubeadm(tc.finding))
			f.reconcile(machine)
			f.Refresh(host)
			f.Expect(claimOf(host)).To(Equal("Bound m"))
		})
	}
}

// Other bootstrap providers bring their own programs and have their own demands.
func TestOtherBootstrapProvidersTakeAnyHost(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	host := f.Host("h1")
	f.Report(host, bare)
	_, machine := f.Machine("c", "m", func(o *clusterv1.Machine, _ *infrav1.ElementalMachine) {
		ofKubeadm()(o, &infrav1.ElementalMachine{})
		o.Spec.Bootstrap.ConfigRef.Kind = "KThreesConfig"
	})
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound m"))
}

// A bundle brings what is missing. Its release may come after the machine.
func TestReleaseMakesHostsSuitable(t *testing.T) {
	f := newFixture(t)
	f.Cluster("c")
	host := f.Host("h1")
	f.Report(host, bare)
	_, machine := f.Machine("c", "m", ofKubeadm())
	f.reconcile(machine)
	f.ExpectCondition(machine, infrav1.HostClaimedCondition, no, infrav1.NoHostReason)
	p := &preparing{fixture: f, host: host, machine: machine}
	bundle := p.release("v1.36.3", "amd64")
	f.reconcile(machine)
	f.Refresh(host)
	f.Expect(claimOf(host)).To(Equal("Bound m"))
	f.Expect(host.Spec.Bundle).To(Equal(bundle))
}

// Of two waiting machines, the report of a host wakes the one that can have it.
func TestHostWakesTheMachineItIsPreparedFor(t *testing.T) {
	f := newFreeHostsFixture(t)
	_, first := f.Machine("c", "m1", ofKubeadm())
	_, second := f.Machine("c", "m2", func(o *clusterv1.Machine, m *infrav1.ElementalMachine) {
		ofKubeadm()(o, m)
		o.Spec.Version = "v1.35.4"
	})
	f.reconcile(first)
	f.reconcile(second)
	host := f.Host("h1")
	f.Report(host, equipped("v1.35.1", infrav1.RuntimeContainerd, infrav1.OriginPackage))
	f.Expect(f.woken(nil, host)).To(ConsistOf("m2"))
}

// Messages are lines, and one condition has them all.
func TestPreparedNamesAllFindings(t *testing.T) {
	f := newFixture(t)
	host := f.Host("h1")
	f.Report(host, ready)
	for name, tc := range lacks() {
		if name == "swap" || name == "taken port" || name == "no br_netfilter" {
			f.Report(host, tc.change)
		}
	}
	message := f.ExpectCondition(host, infrav1.PreparedCondition, no, infrav1.NotPreparedReason).Message
	f.Expect(strings.Split(message, "\n")).To(Equal(preflight.Messages(preflight.Findings(host, preflight.Need{}))))
	f.Expect(strings.Split(message, "\n")).To(HaveLen(3))
}
