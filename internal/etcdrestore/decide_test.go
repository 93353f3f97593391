package etcdrestore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/etcdrestore"
)

func taken() metav1.Time { return metav1.NewTime(time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)) }

// host returns a host that became a Node an hour before the snapshot.
func host(name string, role infrav1.ClaimRole) *infrav1.ElementalHost {
	h := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
	h.Spec.Approval = infrav1.ApprovalApproved
	h.Spec.Claim = &infrav1.HostClaim{ID: "claim-" + name, ClusterName: "c", MachineName: name, Phase: infrav1.ClaimBound, Role: role}
	h.Status.Connection = &infrav1.HostConnection{State: infrav1.ConnectionConnected}
	h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{"EtcdRestore", "ControlPlaneHalt"}}
	h.Status.Operations = []infrav1.HostOperation{{
		Type: infrav1.OperationBootstrap, ID: "claim-" + name, State: infrav1.OperationSucceeded, FinishedAt: metav1.NewTime(taken().Add(-time.Hour)),
	}}
	return h
}

// facts returns facts with which a restore may begin: a control-plane host with a snapshot, and
// a worker.
func facts() etcdrestore.Facts {
	f := etcdrestore.Facts{
		Restore: &infrav1.ElementalEtcdRestore{},
		Cluster: &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", Annotations: map[string]string{}}},
		Hosts:   []*infrav1.ElementalHost{host("worker", infrav1.RoleWorker), host("h", infrav1.RoleInitialControlPlane)},
	}
	f.Restore.Spec.ClusterName = "c"
	f.Restore.Spec.Source.Snapshot = &infrav1.EtcdRestoreSnapshot{HostName: "h", ID: "1"}
	h := f.Hosts[1]
	h.Status.EtcdSnapshots = &infrav1.HostEtcdSnapshots{Items: []infrav1.HostEtcdSnapshot{{ID: "1", CompletedAt: taken(), KubernetesVersion: "v1.36.3"}}}
	h.Status.Inventory = &infrav1.HostInventory{Kubernetes: &infrav1.HostKubernetes{}}
	h.Status.Inventory.Kubernetes.Kubelet.Version = "v1.36.1"
	return f
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(f *etcdrestore.Facts, h *infrav1.ElementalHost)
		want   string
	}{
		"nothing stands in the way": {func(*etcdrestore.Facts, *infrav1.ElementalHost) {}, ""},
		"no cluster":                {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) { f.Cluster = nil }, "There is no Cluster c"},
		"a cluster that is deleted": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) {
			f.Cluster.DeletionTimestamp = new(taken())
		}, "is being deleted"},
		"a paused cluster": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) { f.Cluster.Spec.Paused = new(true) }, "end the pause"},
		"a paused cluster by a mark": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) {
			f.Cluster.Annotations[clusterv1.PausedAnnotation] = ""
		}, "end the pause"},
		"another restore": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) {
			f.Cluster.Annotations[infrav1.RestoreAnnotation] = "r"
		}, "ElementalEtcdRestore r"},
		"no source":              {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) { f.Restore.Spec.Source.Snapshot = nil }, "names no data"},
		"another cluster's host": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) { f.Hosts = f.Hosts[:1] }, "does not belong to the control plane"},
		"a worker": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) {
			f.Restore.Spec.Source.Snapshot.HostName = "worker"
		}, "does not belong to the control plane"},
		"a held host":         {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) { h.Spec.Claim.Phase = infrav1.ClaimHeld }, "it is held"},
		"a locked host":       {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{} }, "locked"},
		"a fenced host":       {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{} }, "fenced"},
		"a host without Node": {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) { h.Status.Operations = nil }, "not bootstrapped"},
		"a disconnected host": {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) { h.Status.Connection = nil }, "not connected"},
		"an old agent":        {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) { h.Status.Agent = nil }, "update the agent"},
		"maintenance":         {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) { h.Spec.Maintenance = &infrav1.HostMaintenance{} }, "in maintenance"},
		"a paused host": {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) {
			h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}, "it is paused"},
		"an operation": {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) {
			h.Status.Operations = append(h.Status.Operations, infrav1.HostOperation{State: infrav1.OperationRunning})
		}, "an operation runs"},
		"no snapshot":          {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) { f.Restore.Spec.Source.Snapshot.ID = "2" }, "lists no snapshot 2"},
		"a healthy API server": {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) { serve(h) }, "spec.replaceHealthy"},
		"a healthy API server, with permission": {func(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
			serve(h)
			f.Restore.Spec.ReplaceHealthy = new(true)
		}, ""},
		"a newer minor version": {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) {
			h.Status.Inventory.Kubernetes.Kubelet.Version = "v1.35.9"
		}, "an older Kubernetes may not read it"},
		"a newer patch version": {func(_ *etcdrestore.Facts, h *infrav1.ElementalHost) {
			h.Status.Inventory.Kubernetes.Kubelet.Version = "v1.36.0"
		}, ""},
		"at the destination": {func(f *etcdrestore.Facts, h *infrav1.ElementalHost) { upload(f, h) }, ""},
		"at the destination, without a control plane": {func(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
			upload(f, h)
			f.Hosts = f.Hosts[:1]
		}, "Cluster c has no control-plane host"},
		"at the destination, with two control-plane hosts": {func(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
			upload(f, h)
			f.Hosts = append(f.Hosts, host("other", infrav1.RoleControlPlane))
		}, "name one of them as restoreOn"},
		"at the destination, with two control-plane hosts, one named": {func(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
			upload(f, h)
			f.Hosts = append(f.Hosts, host("other", infrav1.RoleControlPlane))
			f.Restore.Spec.Source.Uploaded.RestoreOn = "h"
		}, ""},
		"at the destination, with an old agent": {func(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
			upload(f, h)
			h.Status.Agent.Capabilities = []string{"EtcdRestore"}
		}, "can't download snapshots"},
		"at the destination, not usable": {func(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
			upload(f, h)
			f.Uploaded.Unusable = errors.New("no seal")
		}, "The snapshot at the destination can't be used: no seal"},
		"at the destination, of a newer minor version": {func(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
			upload(f, h)
			h.Status.Inventory.Kubernetes.Kubelet.Version = "v1.35.9"
		}, "an older Kubernetes may not read it"},
		"a later Node": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) { joinLater(f.Hosts[0]) }, ""},
		"at the destination, with a later Node": {func(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
			upload(f, h)
			joinLater(f.Hosts[0])
		}, ""},
		"a later Node that is away": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) {
			joinLater(f.Hosts[0])
			f.Hosts[0].Status.Connection = nil
		}, ""},
		"a later Node whose agent can't reboot": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) {
			joinLater(f.Hosts[0])
			f.Hosts[0].Status.Agent.Capabilities = nil
		}, "Host worker became a Node after snapshot 1, which does not have that Node, and must be rebooted to register again: its agent can't do that"},
		"a later Node that is paused": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) {
			joinLater(f.Hosts[0])
			f.Hosts[0].Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}, "it is paused. Delete its Machine first"},
		"too many later Nodes": {func(f *etcdrestore.Facts, _ *infrav1.ElementalHost) {
			for i := range infrav1.MaxEtcdRestoreLaterNodes + 1 {
				h := host(fmt.Sprintf("later-%d", i), infrav1.RoleWorker)
				joinLater(h)
				f.Hosts = append(f.Hosts, h)
			}
		}, "257 hosts became Nodes after snapshot 1, and at most 256"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts()
			test.change(&f, f.Hosts[1])
			got := etcdrestore.Refusal(f)
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, not %q", got, test.want)
			}
		})
	}
}

// joinLater has the host become a Node after the snapshot.
func joinLater(h *infrav1.ElementalHost) {
	h.Status.Agent.Capabilities = append(h.Status.Agent.Capabilities, "Reboot")
	h.Status.Operations[0].FinishedAt = metav1.NewTime(taken().Add(time.Second))
}

// upload has the snapshot at the destination only.
func upload(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
	f.Restore.Spec.Source = infrav1.EtcdRestoreSource{Uploaded: &infrav1.EtcdRestoreUpload{
		HostName: "gone", ID: "1", IdentityRef: infrav1.EtcdRestoreIdentityReference{Name: "identity"},
	}}
	f.Uploaded = etcdrestore.Uploaded{Object: "a/1.gone.tar.age", Snapshot: h.Status.EtcdSnapshots.Items[0]}
	h.Status.Agent.Capabilities = append(h.Status.Agent.Capabilities, "EtcdSnapshotFetch")
	h.Status.EtcdSnapshots = nil
}

func serve(h *infrav1.ElementalHost) {
	h.Status.Endpoint = &infrav1.HostEndpoint{APIServer: &infrav1.HostAPIServer{Result: infrav1.ProbeReachable}}
}

// survive has the host go on with its own data.
func survive(f *etcdrestore.Facts, h *infrav1.ElementalHost) {
	f.Restore.Spec.Source = infrav1.EtcdRestoreSource{Survivor: &infrav1.EtcdRestoreSurvivor{HostName: h.Name}}
	h.Status.Agent.Capabilities = append(h.Status.Agent.Capabilities, "EtcdRestoreOwnData")
	h.Status.EtcdSnapshots = nil
}

// With several control-plane hosts, each of the others has to be halted, or off as a person has said.
func TestThreat90_RefusalOfOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(f *etcdrestore.Facts, h, other *infrav1.ElementalHost)
		want   string
	}{
		"nothing stands in the way": {func(*etcdrestore.Facts, *infrav1.ElementalHost, *infrav1.ElementalHost) {}, ""},
		"a survivor":                {func(f *etcdrestore.Facts, h, _ *infrav1.ElementalHost) { survive(f, h) }, ""},
		"a survivor with an old agent": {func(f *etcdrestore.Facts, h, _ *infrav1.ElementalHost) {
			survive(f, h)
			h.Status.Agent.Capabilities = []string{"EtcdRestore"}
		}, "the data of its own member"},
		"another old agent": {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) {
			o.Status.Agent.Capabilities = []string{"EtcdRestore"}
		}, "host other can't be halted: its agent is too old"},
		"another that is away":   {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) { o.Status.Connection = nil }, "host other can't be halted: it is not connected"},
		"another that is off":    {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) { off(o) }, ""},
		"another that is fenced": {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) { o.Spec.Fence = &infrav1.HostFence{} }, "it is fenced, but connected"},
		"another that is locked": {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) { o.Spec.Lock = &infrav1.HostLock{} }, "it is not approved, or locked"},
		"another that is paused": {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) {
			o.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}, "it is paused"},
		"another that is busy": {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) {
			o.Status.Operations = append(o.Status.Operations, infrav1.HostOperation{State: infrav1.OperationRunning})
		}, "an operation runs on it"},
		"another that joins": {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) {
			o.Status.Operations[0].State = infrav1.OperationRunning
		}, "wait until its bootstrap has ended"},
		"another that has not begun": {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) {
			o.Status.Operations, o.Status.Agent = nil, nil
		}, ""},
		"another that is well": {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) { serve(o) }, "The API server of host other is well"},
		"another that is well, with permission": {func(f *etcdrestore.Facts, _, o *infrav1.ElementalHost) {
			serve(o)
			f.Restore.Spec.ReplaceHealthy = new(true)
		}, ""},
		"another that was well before it went off": {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) {
			serve(o)
			off(o)
		}, ""},
		"another that is younger than the snapshot": {func(_ *etcdrestore.Facts, _, o *infrav1.ElementalHost) {
			o.Status.Operations[0].FinishedAt = metav1.NewTime(taken().Add(time.Second))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts()
			other := host("other", infrav1.RoleControlPlane)
			f.Hosts = append(f.Hosts, other)
			test.change(&f, f.Hosts[1], other)
			got := etcdrestore.Refusal(f)
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, not %q", got, test.want)
			}
		})
	}
}

// off fences a host that is away.
func off(h *infrav1.ElementalHost) {
	h.Spec.Fence, h.Status.Connection = &infrav1.HostFence{}, nil
}

// Held and released hosts have no member of etcd any more, and workers never had one.
func TestOthers(t *testing.T) {
	t.Parallel()
	f := facts()
	held, releasing := host("held", infrav1.RoleControlPlane), host("releasing", infrav1.RoleControlPlane)
	held.Spec.Claim.Phase, releasing.Spec.Claim.Phase = infrav1.ClaimHeld, infrav1.ClaimReleasing
	f.Hosts = append(f.Hosts, held, releasing, host("b", infrav1.RoleControlPlane), host("a", infrav1.RoleControlPlane))
	var names []string
	for _, h := range f.Others() {
		names = append(names, h.Name)
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("got %q", names)
	}
}

// The plan of several control-plane hosts says which are halted, which must be off, and which
// Machines are replaced.
func TestPlanOfSeveral(t *testing.T) {
	t.Parallel()
	f := facts()
	f.Hosts = append(f.Hosts, host("b", infrav1.RoleControlPlane), host("a", infrav1.RoleControlPlane))
	off(f.Hosts[2])
	survive(&f, f.Hosts[1])
	plan := etcdrestore.Plan(f)
	want := []string{
		"Cluster c is paused: Cluster API changes nothing meanwhile",
		"The control planes on a are halted: they would go on with the former data",
		"Fenced, and off as somebody has said: b. They must not start before the restore has ended",
		"The control plane on host h stands still for some minutes; Pods on all Nodes go on",
		"etcd goes on with the data of host h as its only member. What only the lost members had is lost: at most the last writes before they stopped",
		"Nodes of Machines that were deleted since are deleted again, once they are not Ready",
		"The former data stays on host h until the next restore or a reset, and comes back if the control plane is not well",
		"The Machines a, b are deleted, without draining their Nodes: their hosts are reset",
		"The Cluster goes on: its control plane replaces these Machines one by one, and an endpoint that was the address of one of their hosts moves to host h",
	}
	if !slices.Equal(plan.Steps, want) || plan.HostName != "h" || plan.Snapshot.ID != "" {
		t.Errorf("got %q", plan.Steps)
	}
}

// The plan says on which host, from what, and since when everything is lost.
func TestPlan(t *testing.T) {
	t.Parallel()
	plan := etcdrestore.Plan(facts())
	text := strings.Join(plan.Steps, "\n")
	if plan.HostName != "h" || plan.Snapshot.ID != "1" || !strings.Contains(text, "after 2026-11-24T12:00:00Z is lost") {
		t.Errorf("got %+v", plan)
	}
}

// Hosts that became Nodes after the snapshot are named. Those that are replaced, released or held are not
// among them, and a survivor has all Nodes.
func TestPlanOfLaterNodes(t *testing.T) {
	t.Parallel()
	f := facts()
	f.Hosts = append(f.Hosts, host("b", infrav1.RoleControlPlane), host("releasing", infrav1.RoleWorker), host("held", infrav1.RoleWorker), host("early", infrav1.RoleWorker))
	for _, h := range f.Hosts[:5] {
		joinLater(h)
	}
	f.Hosts[3].Spec.Claim.Phase, f.Hosts[4].Spec.Claim.Phase = infrav1.ClaimReleasing, infrav1.ClaimHeld
	const want = "The hosts worker became Nodes after the snapshot, which does not have these Nodes: they are rebooted, and register again. Their Pods are lost with the data"
	if got := etcdrestore.Plan(f).Steps; !slices.Contains(got, want) {
		t.Errorf("got %q", got)
	}
	survive(&f, f.Hosts[1])
	if got := strings.Join(etcdrestore.Plan(f).Steps, "\n"); strings.Contains(got, "became Nodes") {
		t.Errorf("got %q", got)
	}
}

// The plan of a snapshot at the destination names the object, and asks for the deletion of the
// identity.
func TestPlanOfUploaded(t *testing.T) {
	t.Parallel()
	f := facts()
	upload(&f, f.Hosts[1])
	plan := etcdrestore.Plan(f)
	text := strings.Join(plan.Steps, "\n")
	if plan.HostName != "h" || plan.Object != "a/1.gone.tar.age" || !strings.Contains(text, "after 2026-11-24T12:00:00Z is lost") ||
		!strings.Contains(text, "Host h downloads") || !strings.Contains(text, "delete Secret identity") {
		t.Errorf("got %+v", plan)
	}
}

// Once a host is asked, the restore stays with it.
func TestHostOfRequest(t *testing.T) {
	t.Parallel()
	f := facts()
	upload(&f, f.Hosts[1])
	f.Restore.Spec.Request = &infrav1.EtcdRestoreRequest{HostName: "former"}
	if host := f.Host(); host != nil || etcdrestore.HostName(f.Restore) != "former" {
		t.Errorf("got %v", host)
	}
}
