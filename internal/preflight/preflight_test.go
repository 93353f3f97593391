package preflight_test

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/preflight"
)

// good returns a free host on which kubeadm v1.36 works.
func good(changes ...func(*infrav1.HostInventory)) *infrav1.ElementalHost {
	program := func(name string) infrav1.HostProgram {
		return infrav1.HostProgram{Path: "/usr/bin/" + name, Version: "v1.36.3", Origin: infrav1.OriginPackage}
	}
	inventory := &infrav1.HostInventory{
		Architecture: "arm64",
		Kubernetes: &infrav1.HostKubernetes{
			Kubelet: program("kubelet"), Kubeadm: program("kubeadm"),
			ContainerRuntime: infrav1.HostContainerRuntime{Name: infrav1.RuntimeContainerd, Path: "/usr/bin/containerd", Version: "2.1.4"},
		},
		Preflight: &infrav1.HostPreflight{
			Swap: infrav1.FeatureDisabled, BridgeNetfilter: infrav1.FeatureEnabled, IPForwarding: infrav1.FeatureEnabled, CgroupVersion: 2,
			RuntimeSocket: infrav1.FeatureEnabled, NameServers: infrav1.FeatureEnabled, FreeBytes: 4 << 30,
		},
	}
	for _, change := range changes {
		change(inventory)
	}
	host := &infrav1.ElementalHost{}
	host.Status.Inventory = inventory
	host.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"Bundle"}}
	return host
}

func os(change func(*infrav1.HostPreflight)) func(*infrav1.HostInventory) {
	return func(i *infrav1.HostInventory) { change(i.Preflight) }
}

func programs(change func(*infrav1.HostKubernetes)) func(*infrav1.HostInventory) {
	return func(i *infrav1.HostInventory) { change(i.Kubernetes) }
}

// The needs of machines in the tests.
var (
	newer   = preflight.Need{Version: "v1.37.0"}
	same    = preflight.Need{Version: "v1.36.0"}
	older   = preflight.Need{Version: "v1.35.4"}
	ancient = preflight.Need{Version: "v1.34.1"}
	worker  = preflight.Need{Version: "v1.36.3", Worker: true}
	bundled = preflight.Need{Version: "v1.36.3", Bundles: []string{"amd64", "arm64"}}
	replace = preflight.Need{Version: "v1.36.3", Bundles: []string{"arm64"}, Replace: true}
	foreign = preflight.Need{Version: "v1.36.3", Bundles: []string{"amd64"}, Replace: true}
)

func swap(p *infrav1.HostPreflight)         { p.Swap = infrav1.FeatureEnabled }
func noModule(p *infrav1.HostPreflight)     { p.BridgeNetfilter = infrav1.FeatureMissing }
func noNetfilter(p *infrav1.HostPreflight)  { p.BridgeNetfilter = infrav1.FeatureDisabled }
func noForwarding(p *infrav1.HostPreflight) { p.IPForwarding = infrav1.FeatureDisabled }
func noResolver(p *infrav1.HostPreflight)   { p.NameServers = infrav1.FeatureMissing }
func deadRuntime(p *infrav1.HostPreflight)  { p.RuntimeSocket = infrav1.FeatureDisabled }
func noKubelet(k *infrav1.HostKubernetes)   { k.Kubelet = infrav1.HostProgram{} }
func mute(k *infrav1.HostKubernetes)        { k.Kubeadm.Version = "" }
func noRuntime(k *infrav1.HostKubernetes)   { k.ContainerRuntime = infrav1.HostContainerRuntime{} }
func oldRuntime(k *infrav1.HostKubernetes)  { k.ContainerRuntime.Version = "v1.7.28" }
func oldPrograms(k *infrav1.HostKubernetes) {
	k.Kubelet.Version, k.Kubeadm.Version = "v1.35.4", "v1.35.4"
}
func ancientPrograms(k *infrav1.HostKubernetes) {
	k.Kubelet.Version, k.Kubeadm.Version = "v1.34.1", "v1.34.1"
}
func mixedPrograms(k *infrav1.HostKubernetes) { k.Kubelet.Version = "v1.35.4" }

// cgroupV1 is a host whose kubelet allows version 1 of control groups, or not.
func cgroupV1(allowed infrav1.FeatureState) func(*infrav1.HostInventory) {
	return os(func(p *infrav1.HostPreflight) { p.CgroupVersion, p.KubeletCgroupV1 = 1, allowed })
}

func free(bytes int64) func(*infrav1.HostInventory) {
	return os(func(p *infrav1.HostPreflight) { p.FreeBytes = bytes })
}

func taken(ports ...int32) func(*infrav1.HostInventory) {
	return os(func(p *infrav1.HostPreflight) { p.TakenPorts = ports })
}

// Names of findings, in order; "" is a warning.
func TestFindings(t *testing.T) {
	const (
		isPrograms, isVersions, isSwap, isNetfilter = infrav1.FindingPrograms, infrav1.FindingVersions, infrav1.FindingSwap, infrav1.FindingBridgeNetfilter
		isForwarding, isPorts                       = infrav1.FindingIPForwarding, infrav1.FindingPorts
		isRuntime, isCgroups, isResolver, isSpace   = infrav1.FindingRuntime, infrav1.FindingCgroupVersion, infrav1.FindingNameServers, infrav1.FindingDiskSpace
	)
	whichever := preflight.Need{}
	for name, tc := range map[string]struct {
		host *infrav1.ElementalHost
		need preflight.Need
		want []infrav1.FindingName
	}{
		"any version":            {good(), whichever, nil},
		"another patch":          {good(), same, nil},
		"a newer version":        {good(), newer, []infrav1.FindingName{isVersions, isVersions}},
		"an older version":       {good(), older, []infrav1.FindingName{isVersions, isVersions}},
		"a kubelet of its own":   {good(programs(mixedPrograms)), whichever, []infrav1.FindingName{isVersions}},
		"a wrong kubelet":        {good(programs(mixedPrograms)), same, []infrav1.FindingName{isVersions}},
		"no kubelet":             {good(programs(noKubelet)), same, []infrav1.FindingName{isPrograms}},
		"no version":             {good(programs(mute)), same, []infrav1.FindingName{isPrograms}},
		"no runtime":             {good(programs(noRuntime)), same, []infrav1.FindingName{isPrograms}},
		"an old runtime":         {good(programs(oldRuntime)), same, []infrav1.FindingName{""}},
		"an old runtime, before": {good(programs(oldRuntime), programs(oldPrograms)), older, nil},
		"an old runtime, after":  {good(programs(oldRuntime)), newer, []infrav1.FindingName{isVersions, isVersions, isVersions}},
		"an old runtime, any":    {good(programs(oldRuntime)), whichever, []infrav1.FindingName{""}},
		"an old agent":           {good(func(i *infrav1.HostInventory) { i.Kubernetes, i.Preflight = nil, nil }), newer, nil},
		"facts that are unknown": {good(func(i *infrav1.HostInventory) { i.Preflight = &infrav1.HostPreflight{} }), same, nil},

		"swap":          {good(os(swap)), whichever, []infrav1.FindingName{isSwap}},
		"no netfilter":  {good(os(noNetfilter)), whichever, []infrav1.FindingName{isNetfilter}},
		"no module":     {good(os(noModule)), whichever, []infrav1.FindingName{isNetfilter}},
		"no forwarding": {good(os(noForwarding)), whichever, []infrav1.FindingName{isForwarding}},

		"cgroup v1, an old agent":                      {good(cgroupV1("")), same, []infrav1.FindingName{""}},
		"cgroup v1, allowed":                           {good(cgroupV1(infrav1.FeatureEnabled)), same, []infrav1.FindingName{""}},
		"cgroup v1, refused":                           {good(cgroupV1(infrav1.FeatureDisabled)), same, []infrav1.FindingName{isCgroups}},
		"cgroup v1, refused by any":                    {good(cgroupV1(infrav1.FeatureDisabled)), whichever, []infrav1.FindingName{isCgroups}},
		"cgroup v1 is refused since v1.35":             {good(cgroupV1(infrav1.FeatureDisabled), programs(oldPrograms)), older, []infrav1.FindingName{isCgroups}},
		"cgroup v1, before it was refused":             {good(cgroupV1(infrav1.FeatureDisabled), programs(ancientPrograms)), ancient, []infrav1.FindingName{""}},
		"cgroup v1, any, before it was refused":        {good(cgroupV1(infrav1.FeatureDisabled), programs(ancientPrograms)), whichever, []infrav1.FindingName{""}},
		"cgroup v1, a kubelet of a bundle":             {good(cgroupV1(""), programs(noKubelet)), bundled, []infrav1.FindingName{""}},
		"cgroup v1, the kubelet is replaced":           {good(cgroupV1(infrav1.FeatureDisabled)), replace, []infrav1.FindingName{""}},
		"cgroup v1, a bundle, and the host's kubelet":  {good(cgroupV1(infrav1.FeatureDisabled), programs(noRuntime)), bundled, []infrav1.FindingName{isCgroups}},
		"little space":                                 {good(free(2 << 30)), whichever, []infrav1.FindingName{""}},
		"enough space":                                 {good(free(4 << 30)), whichever, nil},
		"no space":                                     {good(free(1 << 29)), whichever, []infrav1.FindingName{isSpace}},
		"a full disk":                                  {good(free(1)), whichever, []infrav1.FindingName{isSpace}},
		"a full disk, and a bundle":                    {good(free(1), programs(noKubelet)), bundled, []infrav1.FindingName{isSpace}},
		"no resolver":                                  {good(os(noResolver)), whichever, []infrav1.FindingName{isResolver}},
		"no resolver, and a bundle has the images":     {good(os(noResolver), programs(noKubelet)), bundled, []infrav1.FindingName{""}},
		"no resolver, and the bundle is not installed": {good(os(noResolver)), bundled, []infrav1.FindingName{isResolver}},
		"a runtime that does not run":                  {good(os(deadRuntime)), whichever, []infrav1.FindingName{isRuntime}},
		"a dead runtime of the host, and a bundle":     {good(os(deadRuntime), programs(noKubelet)), bundled, []infrav1.FindingName{isRuntime}},
		"a dead runtime is replaced":                   {good(os(deadRuntime)), replace, nil},
		"a dead runtime of a bundle is replaced": {good(os(deadRuntime), programs(func(k *infrav1.HostKubernetes) {
			k.ContainerRuntime.Origin = infrav1.OriginBundle
		})), bundled, nil},
		"warnings come last": {good(os(func(p *infrav1.HostPreflight) { p.CgroupVersion = 1 }), programs(oldRuntime), os(swap)),
			whichever, []infrav1.FindingName{isSwap, "", ""}},

		"a port of the control plane":         {good(taken(2379)), same, []infrav1.FindingName{isPorts}},
		"a port that a worker does not need":  {good(taken(2379, 10257)), worker, nil},
		"the port of a kubelet":               {good(taken(10250)), worker, []infrav1.FindingName{isPorts}},
		"an API server on a worker":           {good(taken(2380, 6443)), worker, []infrav1.FindingName{isPorts}},
		"all ports are one finding":           {good(taken(2379, 2380, 6443, 10250)), whichever, []infrav1.FindingName{isPorts}},
		"a bundle for what is missing":        {good(programs(noKubelet), programs(noRuntime), os(noNetfilter), os(noForwarding)), bundled, nil},
		"a bundle without a need":             {good(os(noNetfilter), os(noForwarding)), bundled, []infrav1.FindingName{isNetfilter, isForwarding}},
		"a bundle, and a program of the host": {good(programs(noRuntime), programs(oldPrograms)), bundled, []infrav1.FindingName{isVersions, isVersions}},
		"a bundle brings no module":           {good(programs(noKubelet), os(noModule)), bundled, []infrav1.FindingName{isNetfilter}},
		"a bundle turns no swap off":          {good(programs(noKubelet), os(swap)), bundled, []infrav1.FindingName{isSwap}},
		"a bundle replaces":                   {good(programs(oldPrograms), programs(oldRuntime)), replace, nil},
		"a bundle for other hosts":            {good(programs(noKubelet)), foreign, []infrav1.FindingName{isPrograms}},
		"a bundle replaces that of another one": {good(programs(func(k *infrav1.HostKubernetes) {
			oldPrograms(k)
			k.Kubelet.Origin, k.Kubeadm.Origin = infrav1.OriginBundle, infrav1.OriginBundle
		})), bundled, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var names []infrav1.FindingName
			for _, f := range preflight.Findings(tc.host, tc.need) {
				names = append(names, f.Name)
				g.Expect(f.Message).To(MatchRegexp(`^[^\n]+[:,] [^\n]+$`), "what is wrong, and what to do")
			}
			g.Expect(names).To(Equal(tc.want))
		})
	}
}

func TestIgnoredFindings(t *testing.T) {
	g := NewWithT(t)
	host := good(os(swap), os(noForwarding), os(func(p *infrav1.HostPreflight) { p.CgroupVersion = 1 }))
	left := preflight.Findings(host, preflight.Need{Ignore: []infrav1.FindingName{infrav1.FindingSwap, infrav1.FindingPorts}})
	g.Expect(preflight.Messages(left)).To(HaveLen(2))
	g.Expect(preflight.Blocking(left)).To(HaveLen(1))
	g.Expect(left[0].Name).To(Equal(infrav1.FindingIPForwarding))
	left = preflight.Findings(host, preflight.Need{Ignore: []infrav1.FindingName{infrav1.FindingSwap, infrav1.FindingIPForwarding}})
	g.Expect(preflight.Blocking(left)).To(BeEmpty(), "a warning keeps nobody off")
}

// An agent that can't install bundles gets none.
func TestBundleNeedsTheAgent(t *testing.T) {
	g := NewWithT(t)
	host := good(programs(noKubelet))
	g.Expect(preflight.Findings(host, bundled)).To(BeEmpty())
	host.Status.Agent.Capabilities = nil
	g.Expect(preflight.Findings(host, bundled)).To(HaveLen(1))
}

// Certificates are dated back by five minutes.
func TestClock(t *testing.T) {
	g := NewWithT(t)
	for skew, want := range map[int64]string{
		-360: "The clock is 6 minutes behind the manager's: ", -300: "", 0: "", 300: "", 360: "The clock is 6 minutes ahead of the manager's: ",
	} {
		host := good()
		host.Status.Agent.ClockSkewSeconds = skew
		found := preflight.Findings(host, same)
		if want == "" {
			g.Expect(found).To(BeEmpty(), "%d", skew)
			continue
		}
		g.Expect(found).To(HaveLen(1), "%d", skew)
		g.Expect(found[0].Name).To(Equal(infrav1.FindingClock))
		g.Expect(found[0].Message).To(HavePrefix(want))
	}
}

// Which ports are taken and whether swap is on says nothing about a host in use.
func TestHostsInUse(t *testing.T) {
	g := NewWithT(t)
	for phase, want := range map[infrav1.ClaimPhase]int{
		infrav1.ClaimReserved: 2, infrav1.ClaimBound: 0, infrav1.ClaimHeld: 0, infrav1.ClaimReleasing: 0,
	} {
		host := good(os(swap), taken(6443))
		host.Spec.Claim = &infrav1.HostClaim{ID: "c", Phase: phase}
		g.Expect(preflight.Findings(host, same)).To(HaveLen(want), string(phase))
	}
}
