//go:build embedded

package docs_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded"
)

// sites are Clusters of one host in a management cluster, whose upgrades the test makes.
type sites struct {
	*WithT

	t       *testing.T
	admin   client.Client
	station *station
}

const sitesNamespace = "default"

func newSites(t *testing.T, waves map[string]string) *sites {
	t.Helper()
	cluster := startManagement(t, embedded.Options{Alone: true, OneVersion: true})
	s := &sites{WithT: NewWithT(t), t: t, station: newStation(t, cluster.Kubeconfig, "kubectl")}
	s.SetDefaultEventuallyTimeout(time.Minute)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, controlplanev1.AddToScheme, infrav1.AddToScheme} {
		s.Expect(add(scheme)).To(Succeed())
	}
	var err error
	s.admin, err = client.New(cluster.Config, client.Options{Scheme: scheme})
	s.Expect(err).NotTo(HaveOccurred())
	// The scripts wait less between two looks.
	s.station.program("sleep", "#!/bin/sh\nexec /bin/sleep 0.2\n")
	for name, wave := range waves {
		s.create(name, wave)
	}
	return s
}

func (s *sites) create(name, wave string) {
	s.t.Helper()
	meta := metav1.ObjectMeta{Namespace: sitesNamespace, Name: name, Labels: map[string]string{"wave": wave}}
	machine := metav1.ObjectMeta{Namespace: sitesNamespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: name}}
	kcp := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: sitesNamespace, Name: "cp-" + name}}
	kcp.Spec.Version = "v1.35.4"
	kcp.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "ElementalMachineTemplate", Name: "t",
	}
	cluster := &clusterv1.Cluster{ObjectMeta: meta}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: controlplanev1.GroupVersion.Group, Kind: "KubeadmControlPlane", Name: kcp.Name,
	}
	for _, o := range []client.Object{cluster, kcp, &infrav1.ElementalMachine{ObjectMeta: machine}} {
		s.Expect(s.admin.Create(s.t.Context(), o)).To(Succeed())
	}
}

// report sets the reason of the condition KubernetesUpToDate of a site's host.
func (s *sites) report(name, reason string) {
	s.t.Helper()
	machine := &infrav1.ElementalMachine{}
	s.Expect(s.admin.Get(s.t.Context(), client.ObjectKey{Namespace: sitesNamespace, Name: name}, machine)).To(Succeed())
	before := machine.DeepCopy()
	machine.Status.Conditions = []metav1.Condition{{
		Type: infrav1.KubernetesUpToDateCondition, Status: metav1.ConditionFalse, Reason: reason, Message: "UpToDate\nRolledBack", LastTransitionTime: metav1.Now(),
	}}
	s.Expect(s.admin.Status().Patch(s.t.Context(), machine, client.MergeFrom(before))).To(Succeed())
}

// held returns the names of the Clusters that are held back.
func (s *sites) held() []string {
	s.t.Helper()
	clusters := &clusterv1.ClusterList{}
	s.Expect(s.admin.List(s.t.Context(), clusters, client.HasLabels{infrav1.HoldUpgradeLabel})).To(Succeed())
	var names []string
	for i := range clusters.Items {
		names = append(names, clusters.Items[i].Name)
	}
	return names
}

// run runs a script, and returns its output.
func (s *sites) run(ctx context.Context, script string) (string, error) {
	command := exec.CommandContext(ctx, "sh", "-c", script)
	command.Dir, command.Env = s.station.work, s.station.env
	out, err := command.CombinedOutput()
	return string(out), err
}

// TestWaves runs the scripts of the documentation: all sites are held back and get the version, then each wave is
// released, until too many of one fail.
func TestWaves(t *testing.T) {
	all := map[string]string{"a": "1", "b1": "2", "b2": "2", "b3": "2", "b4": "2", "c": "3"}
	s := newSites(t, all)
	block := func(first string) string { return s.station.script("docs/upgrading.md", "Many sites", first) }
	bump, count, wave, release := block("kubectl label clusters"), block("kubectl get elementalmachines"), block("#!/bin/sh"), block("for wave in")
	s.Expect(os.WriteFile(filepath.Join(s.station.work, "upgrade-wave"), []byte(wave), 0o600)).To(Succeed())

	out, err := s.run(t.Context(), bump)
	s.Expect(err).NotTo(HaveOccurred(), out)
	s.Expect(s.held()).To(ConsistOf("a", "b1", "b2", "b3", "b4", "c"))
	for name := range all {
		kcp := &controlplanev1.KubeadmControlPlane{}
		s.Expect(s.admin.Get(t.Context(), client.ObjectKey{Namespace: sitesNamespace, Name: "cp-" + name}, kcp)).To(Succeed())
		s.Expect(kcp.Spec.Version).To(Equal("v1.36.3"))
		s.report(name, infrav1.UpgradeHeldReason)
	}
	s.report("c", infrav1.UpgradeStagingReason)
	out, err = s.run(t.Context(), count)
	s.Expect(err).NotTo(HaveOccurred(), out)
	s.Expect(strings.Fields(out)).To(Equal([]string{"5", "Held", "1", "Staging"}))

	type end struct {
		out string
		err error
	}
	ended := make(chan end, 1)
	go func() {
		out, err := s.run(t.Context(), release)
		ended <- end{out, err}
	}()
	s.Eventually(s.held).Should(ConsistOf("b1", "b2", "b3", "b4", "c"))
	s.report("a", infrav1.KubernetesUpToDateReason)
	s.Eventually(s.held).Should(ConsistOf("c"), "the next wave begins when the first is done")
	s.report("b1", infrav1.UpgradeRolledBackReason)
	s.report("b2", infrav1.UpgradeFailedReason)
	s.Consistently(s.held, time.Second).Should(ConsistOf("c"), "two may fail")
	s.report("b3", infrav1.UpgradeNotPossibleReason)
	var result end
	s.Eventually(ended).Should(Receive(&result))
	s.Expect(result.err).NotTo(HaveOccurred())
	s.Expect(result.out).To(ContainSubstring("wave 2: 0 of 4 hosts are done, 3 have failed"))
	s.Expect(s.held()).To(ConsistOf("b1", "b2", "b3", "b4", "c"), "the wave is held back again, and the next one was not released")

	t.Log("The same wave again, after the causes were removed")
	for name, wave := range all {
		if wave == "2" {
			s.report(name, infrav1.KubernetesUpToDateReason)
		}
	}
	s.report("b4", infrav1.UpgradeRolledBackReason)
	out, err = s.run(t.Context(), "sh upgrade-wave 2 2")
	s.Expect(err).NotTo(HaveOccurred(), out)
	s.Expect(out).To(ContainSubstring("wave 2: 3 of 4 hosts are done, 1 have failed"))
	out, err = s.run(t.Context(), "sh upgrade-wave 4 2")
	s.Expect(err).To(HaveOccurred())
	s.Expect(out).To(ContainSubstring("wave 4 has no clusters"))
}
