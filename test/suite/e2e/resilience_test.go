//go:build e2e

package e2e

import (
	"context"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// runsFile gets a line each time bootstrap data runs on a host.
const runsFile = "/var/log/bootstrap-runs"

var _ = Describe("A cluster whose manager and agents are killed", func() {
	It("runs nevertheless, and no bootstrap runs twice", Label("resilience"), func(ctx context.Context) {
		w := workload{lab.Cluster{Name: "killed", ControlPlanes: 1, Workers: 1}}
		DeferCleanup(func(ctx context.Context) {
			for _, host := range hosts.Hosts() {
				_, _ = host.Exec(ctx, "rm", "-f", runsFile)
			}
		})
		step("killed: cluster applied", func() { w.createCounting(ctx) })

		killing, stop := context.WithCancel(ctx)
		var killers sync.WaitGroup
		for _, host := range hosts.Hosts() {
			killers.Go(func() { killAgent(killing, host) })
		}
		killers.Go(func() { w.killManager(killing) })
		DeferCleanup(func() {
			stop()
			killers.Wait()
		})
		step("killed: 1+1 running while agents and manager were killed", func() { w.expectRunning(ctx, 2) })
		stop()
		killers.Wait()

		step("killed: every bootstrap ran once", func() { w.expectRanOnce(ctx) })
		step("killed: cluster deleted, hosts available", func() {
			w.delete(ctx)
			expectAllAvailable(ctx)
		})
	}, SpecTimeout(30*time.Minute))
})

// killAgent kills a host's agent every 8 s; systemd starts it again after 5 s.
func killAgent(ctx context.Context, host *engine.Host) {
	tick := time.NewTicker(8 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, _ = host.Exec(ctx, "systemctl", "kill", "--kill-who=main", "--signal=KILL", "elemental-agent")
		}
	}
}

// killManager kills the manager at each step of a machine's provisioning. The kubelet restarts it
// with increasing delays.
func (w workload) killManager(ctx context.Context) {
	steps := []func(m *infrav1.ElementalMachine) bool{
		func(*infrav1.ElementalMachine) bool { return true },
		func(m *infrav1.ElementalMachine) bool { return m.Spec.HostRef != nil },
		func(m *infrav1.ElementalMachine) bool { return m.Spec.ProviderID != "" },
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(steps) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list := &infrav1.ElementalMachineList{}
		if err := management.List(ctx, list, w.inCluster()...); err != nil || len(list.Items) == 0 {
			continue
		}
		if steps[0](&list.Items[0]) {
			_, _ = hosts.Management().Exec(ctx, "pkill", "-KILL", "-f", "agent-api-url")
			steps = steps[1:]
		}
	}
}

// createCounting applies a generated cluster whose bootstrap data records each run.
func (w workload) createCounting(ctx context.Context) {
	GinkgoHelper()
	w.createWithKubeadmConfig(ctx, func(spec map[string]any) {
		spec["preKubeadmCommands"] = []any{"echo run >> " + runsFile}
	})
}

// createWithKubeadmConfig applies a generated cluster after edit has changed each
// KubeadmConfigSpec.
func (w workload) createWithKubeadmConfig(ctx context.Context, edit func(spec map[string]any)) {
	GinkgoHelper()
	w.createModified(ctx, func(object *unstructured.Unstructured) {
		var path []string
		switch object.GetKind() {
		case "KubeadmControlPlane":
			path = []string{"spec", "kubeadmConfigSpec"}
		case "KubeadmConfigTemplate":
			path = []string{"spec", "template", "spec"}
		default:
			return
		}
		spec, _, err := unstructured.NestedMap(object.Object, path...)
		Expect(err).NotTo(HaveOccurred())
		edit(spec)
		Expect(unstructured.SetNestedMap(object.Object, spec, path...)).To(Succeed())
	})
}

// createModified applies a generated cluster after change was called for each object.
func (w workload) createModified(ctx context.Context, change func(object *unstructured.Unstructured)) {
	GinkgoHelper()
	manifests, err := hosts.GenerateCluster(ctx, w.Cluster)
	Expect(err).NotTo(HaveOccurred())
	var out strings.Builder
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); err != nil || object.Object == nil {
			break
		}
		change(object)
		text, err := yaml.Marshal(object.Object)
		Expect(err).NotTo(HaveOccurred())
		out.WriteString("---\n")
		out.Write(text)
	}
	apply(ctx, out.String())
}

// expectRanOnce counts the runs on the hosts themselves.
func (w workload) expectRanOnce(ctx context.Context) {
	GinkgoHelper()
	list := &infrav1.ElementalHostList{}
	Expect(management.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	claimed := 0
	for _, host := range list.Items {
		want := ""
		if host.Spec.Claim != nil && host.Spec.Claim.ClusterName == w.Name {
			claimed++
			want = "run\n"
		}
		for _, box := range hosts.Hosts() {
			if !hasAddress(&host, box.Address) {
				continue
			}
			got, err := box.Exec(ctx, "sh", "-c", "cat "+runsFile+" 2>/dev/null || true")
			Expect(err).NotTo(HaveOccurred())
			Expect(strings.TrimSpace(got)).To(Equal(strings.TrimSpace(want)), "host %s", host.Name)
		}
	}
	Expect(claimed).To(Equal(2))
}

func hasAddress(host *infrav1.ElementalHost, address string) bool {
	for _, a := range host.Status.Addresses {
		if a.Address == address {
			return true
		}
	}
	return false
}
