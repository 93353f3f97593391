//go:build simulator

package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/simulation"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload"
)

// The versions of a cluster before and after an upgrade.
const (
	former = "v1.35.4"
	newer  = "v1.36.3"
	newest = "v1.36.4"
	last   = "v1.36.5"
)

// director records the upgrades of virtual hosts, and holds or fails them.
type director struct {
	mu sync.Mutex
	// began has the roles of the upgrades that have begun, in turn.
	began []protocol.UpgradeRole
	// held are the hosts whose upgrade waits, and waiting those that do.
	held, waiting map[string]chan struct{}
	// failures are the errors of the hosts' next upgrades.
	failures map[string]error
}

// during is fleet.Settings.DuringUpgrade.
func (d *director) during(ctx context.Context, h *fleet.Host, to protocol.NodeUpgrade) error {
	d.mu.Lock()
	d.began = append(d.began, to.Role)
	failure, held := d.failures[h.Name], d.held[h.Name]
	delete(d.failures, h.Name)
	if held != nil {
		d.waiting[h.Name] = held
	}
	d.mu.Unlock()
	if held == nil {
		return failure
	}
	select {
	case <-held:
		return failure
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hold makes the upgrades of a host wait until release is called.
func (d *director) hold(h *fleet.Host) (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := make(chan struct{})
	d.held[h.Name] = held
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.held, h.Name)
		close(held)
	})
}

func (d *director) isWaiting(h *fleet.Host) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting[h.Name] != nil
}

// fail makes the next upgrade of a host fail.
func (d *director) fail(h *fleet.Host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failures[h.Name] = errors.New("the kubelet did not start")
}

func (d *director) roles() []protocol.UpgradeRole {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.began)
}

// upgradable is a scenario whose cluster upgrades in place on as many hosts as it has Machines.
type upgradable struct {
	*scenario
	*director

	controlPlanes, workers int32
}

func newUpgradable(t *testing.T, controlPlanes, workers int) *upgradable {
	t.Helper()
	u := newHosts(t, controlPlanes, workers)
	u.step(fmt.Sprintf("%d control planes and %d workers of Kubernetes %s running", controlPlanes, workers, former), func() {
		u.Expect(u.Create(t.Context(), simulation.Cluster{
			Name: name, ControlPlanes: controlPlanes, Workers: workers, Version: former, Change: u.inPlace,
		})).To(Succeed())
		u.eventually(func(ctx context.Context) error { return u.CheckRunning(ctx, name, controlPlanes+workers) })
	})
	return u
}

// newHosts starts a scenario without its cluster.
func newHosts(t *testing.T, controlPlanes, workers int) *upgradable {
	t.Helper()
	d := &director{held: map[string]chan struct{}{}, waiting: map[string]chan struct{}{}, failures: map[string]error{}}
	s := newScenario(t, workload.Options{}, func(o *simulation.Options) {
		o.Hosts = controlPlanes + workers
		o.Management.InPlaceUpdates, o.Fleet.DuringUpgrade = true, d.during
	})
	u := &upgradable{scenario: s, director: d, controlPlanes: int32(controlPlanes), workers: int32(workers)}
	u.offer(true)
	u.step(fmt.Sprintf("%d hosts enrolled and free", controlPlanes+workers), func() {
		s.Expect(s.Fleet.PowerOn(t.Context(), 0)).To(Succeed())
		s.eventually(func(ctx context.Context) error { return s.CheckFreeHosts(ctx, controlPlanes+workers) })
	})
	return u
}

// offer has Cluster API ask the hooks in the namespace, or not.
func (u *upgradable) offer(offered bool) {
	u.t.Helper()
	namespace := &corev1.Namespace{}
	u.Expect(u.Admin.Get(u.t.Context(), client.ObjectKey{Name: simulation.Namespace}, namespace)).To(Succeed())
	before := namespace.DeepCopy()
	metav1.SetMetaDataLabel(&namespace.ObjectMeta, infrav1.InPlaceLabel, strconv.FormatBool(offered))
	u.Expect(u.Admin.Patch(u.t.Context(), namespace, client.MergeFrom(before))).To(Succeed())
}

// inPlace changes the template for upgrades without a spare host.
func (u *upgradable) inPlace(object *unstructured.Unstructured) error {
	set := func(values map[string]any) error {
		return unstructured.SetNestedMap(object.Object, values, "spec", "rollout", "strategy")
	}
	switch object.GetKind() {
	case "ElementalCluster":
		return unstructured.SetNestedField(object.Object, string(infrav1.InPlaceRequired), "spec", "inPlace", "mode")
	case "ElementalMachineTemplate":
		// Virtual hosts begin with programs of another version, which virtual kubeadm accepts.
		return unstructured.SetNestedStringSlice(object.Object, []string{string(infrav1.FindingVersions)}, "spec", "template", "spec", "ignoreFindings")
	case "KubeadmControlPlane":
		if u.controlPlanes > 1 {
			return set(map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(0)}})
		}
	case "MachineDeployment":
		return set(map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(0), "maxUnavailable": int64(1)}})
	}
	return nil
}

// release creates the release of a version. Virtual hosts stage its bundle without fetching it.
func (u *upgradable) release(version string) {
	u.t.Helper()
	u.Expect(u.Admin.Create(u.t.Context(), &infrav1.ElementalKubernetesRelease{
		ObjectMeta: metav1.ObjectMeta{Namespace: simulation.Namespace, Name: version},
		Spec: infrav1.ElementalKubernetesReleaseSpec{Version: version, Bundles: []infrav1.KubernetesBundle{{
			Architecture: runtime.GOARCH, SHA256: strings.Repeat("0a", 32), SizeBytes: 1, Sources: []string{"file:/bundle.tar"},
		}}},
	})).To(Succeed())
}

// bump changes the version of the control plane and of the workers at once.
func (u *upgradable) bump(version string) {
	u.t.Helper()
	kcp := u.controlPlane()
	before := kcp.DeepCopy()
	kcp.Spec.Version = version
	u.Expect(u.Admin.Patch(u.t.Context(), kcp, client.MergeFrom(before))).To(Succeed())
	workers := u.deployment()
	old := workers.DeepCopy()
	workers.Spec.Template.Spec.Version = version
	u.Expect(u.Admin.Patch(u.t.Context(), workers, client.MergeFrom(old))).To(Succeed())
}

func (u *upgradable) deployment() *clusterv1.MachineDeployment {
	u.t.Helper()
	workers := &clusterv1.MachineDeployment{}
	u.Expect(u.Admin.Get(u.t.Context(), client.ObjectKey{Namespace: simulation.Namespace, Name: name + "-md-0"}, workers)).To(Succeed())
	return workers
}

// awaitUpgrade waits until all of the cluster has a version.
func (u *upgradable) awaitUpgrade(version string) {
	u.t.Helper()
	u.Eventually(func() error { return u.isUpgraded(version) }).Should(Succeed())
}

// isUpgraded returns an error until all of the cluster has a version.
func (u *upgradable) isUpgraded(version string) error {
	if err := u.areMachinesUpgraded(version); err != nil {
		return err
	}
	kcp, workers := u.controlPlane(), u.deployment()
	if is := kcp.Status.Versions; len(is) != 1 || is[0].Version != version || ptr.Deref(kcp.Status.UpToDateReplicas, 0) != u.controlPlanes {
		return fmt.Errorf("the control plane has versions %v", is)
	}
	if ptr.Deref(workers.Status.UpToDateReplicas, 0) != u.workers {
		return errors.New("the MachineDeployment is not up to date")
	}
	return nil
}

// areMachinesUpgraded returns an error until all Machines and Nodes have a version and run.
func (u *upgradable) areMachinesUpgraded(version string) error {
	ctx := u.t.Context()
	all, err := u.Machines(ctx, name)
	if err != nil {
		return err
	}
	for i := range all {
		m := &all[i]
		if m.Spec.Version != version || !meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineUpToDateCondition) {
			infra := &infrav1.ElementalMachine{}
			if err := u.Admin.Get(ctx, client.ObjectKey{Namespace: simulation.Namespace, Name: m.Spec.InfrastructureRef.Name}, infra); err != nil {
				return err
			}
			return fmt.Errorf("machine %s, of version %s, is not up to date: %s", m.Name, m.Spec.Version, conditionOf(infra))
		}
	}
	nodes, err := u.Nodes(ctx, name)
	if err != nil {
		return err
	}
	for i := range nodes {
		if is := nodes[i].Status.NodeInfo.KubeletVersion; is != version {
			return fmt.Errorf("node %s has version %s", nodes[i].Name, is)
		}
	}
	return u.CheckRunning(ctx, name, int(u.controlPlanes+u.workers))
}

func conditionOf(machine *infrav1.ElementalMachine) string {
	c := meta.FindStatusCondition(machine.Status.Conditions, infrav1.KubernetesUpToDateCondition)
	if c == nil {
		return "it has no condition KubernetesUpToDate"
	}
	return c.Reason + ": " + c.Message
}

// infraOn returns the ElementalMachine on a virtual host.
func (u *upgradable) infraOn(h *fleet.Host) *infrav1.ElementalMachine {
	u.t.Helper()
	infra := &infrav1.ElementalMachine{}
	u.Expect(u.Admin.Get(u.t.Context(), client.ObjectKey{Namespace: simulation.Namespace, Name: u.machineOf(h).Spec.InfrastructureRef.Name}, infra)).To(Succeed())
	return infra
}

// identities are what must not change in an upgrade: each Machine's and ElementalMachine's UID, and its claim of a host.
func (u *upgradable) identities() map[string]string {
	u.t.Helper()
	all, err := u.Machines(u.t.Context(), name)
	u.Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for i := range all {
		infra := &infrav1.ElementalMachine{}
		u.Expect(u.Admin.Get(u.t.Context(), client.ObjectKey{Namespace: simulation.Namespace, Name: all[i].Spec.InfrastructureRef.Name}, infra)).To(Succeed())
		u.Expect(infra.Spec.HostRef).NotTo(BeNil())
		found[all[i].Name] = fmt.Sprint(all[i].UID, infra.UID, *infra.Spec.HostRef)
	}
	return found
}

// hostsOf returns the hosts of the control plane or of the workers.
func (u *upgradable) hostsOf(controlPlane bool) (found []*fleet.Host) {
	u.t.Helper()
	for _, h := range u.Fleet.Hosts() {
		if _, is := u.machineOf(h).Labels[clusterv1.MachineControlPlaneLabel]; is == controlPlane {
			found = append(found, h)
		}
	}
	return found
}
