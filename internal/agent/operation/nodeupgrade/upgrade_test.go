package nodeupgrade_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func roles() []protocol.UpgradeRole {
	return []protocol.UpgradeRole{protocol.UpgradeFirstControlPlane, protocol.UpgradeControlPlane, protocol.UpgradeWorker}
}

// finish runs the agent without interruption.
func (m *machine) finish() operation.Result {
	m.t.Helper()
	result, _, err := m.live(0)
	if err != nil {
		m.t.Fatal(err)
	}
	return *result
}

// expectServing fails the test unless the Node serves with these versions, and nothing is
// left half done.
func (m *machine) expectServing(kubelet, controlPlane string) {
	m.t.Helper()
	if got := m.kubeletVersion(); got != kubelet {
		m.t.Errorf("the kubelet is %q, not %s, with the configuration %q", got, kubelet, m.read("/var/lib/kubelet/config.yaml"))
	}
	if got := m.read("/usr/bin/kubeadm"); got != "kubeadm "+kubelet {
		m.t.Errorf("kubeadm is %q", got)
	}
	if m.api.unschedulable {
		m.t.Error("the Node is still cordoned")
	}
	if m.filter.table != "" {
		m.t.Errorf("the table is left: %s", m.filter.table)
	}
	if m.role == protocol.UpgradeWorker {
		return
	}
	for _, component := range components() {
		got := m.read(staticpods.Path(component))
		// etcd stays if it has been well.
		if component == "etcd" && controlPlane == oldVersion && got == manifest(component, newVersion) && m.image("etcd") != "" {
			continue
		}
		if got != manifest(component, controlPlane) {
			m.t.Errorf("the manifest of %s is %q", component, got)
		}
	}
	if got := m.serverVersion(); got != controlPlane {
		m.t.Errorf("the API server has %q", got)
	}
}

func (m *machine) expectFailure(result operation.Result, step string, outcome protocol.UpgradeOutcome, words ...string) {
	m.t.Helper()
	if result.State != protocol.StateFailed || result.Step != step || protocol.UpgradeOutcomeOf(result.Message) != outcome {
		m.t.Errorf("got %+v, not a failure at %s with %q", result, step, outcome)
	}
	for _, word := range words {
		if !strings.Contains(result.Message, word) {
			m.t.Errorf("the message %q does not say %q", result.Message, word)
		}
	}
	if len(result.Message) > protocol.MaxMessageBytes {
		m.t.Errorf("the message has %d bytes", len(result.Message))
	}
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, role := range roles() {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, role, 1)
			m.want.IgnorePreflightErrors, m.want.PatchesDirectory = []string{"Swap", "Mem"}, "/etc/kubernetes/patches"
			m.write("/etc/kubernetes/patches/etcd.json", "{}", 0o600)
			m.api.pods = []pod{{name: "web", refusals: 2}, {name: "agent", daemonSet: true}}
			m.write("/state/checkpoints/nodeupgrade-former/index.json", "[]", 0o600)
			if result := m.finish(); result.State != protocol.StateSucceeded || result.Message != "" {
				t.Fatalf("got %+v", result)
			}
			m.expectServing(newVersion, newVersion)
			arguments, ignored := "node", "Swap,Mem"
			if role == protocol.UpgradeFirstControlPlane {
				arguments, ignored = "apply "+newVersion+" --yes", "Swap,Mem,CreateJob"
			}
			want := m.path("/staged/bin/kubeadm") + " upgrade " + arguments + " --skip-phases=addon --patches=/etc/kubernetes/patches --ignore-preflight-errors=" + ignored
			if len(m.runs) != 1 {
				t.Errorf("kubeadm ran %d times", len(m.runs))
			}
			for _, r := range m.runs {
				if got := strings.Join(r.args, " "); got != want {
					t.Errorf("got %s, not %s", got, want)
				}
			}
			if want := []string{"web", "web", "web"}; !slices.Equal(m.api.evictions, want) || m.api.cordons != 2 {
				t.Errorf("evicted %q, changed the cordon %d times", m.api.evictions, m.api.cordons)
			}
			if want := []string{
				"ctr --address /run/c.sock --namespace k8s.io images import " + m.path("/staged/images/all.tar"),
				"systemctl stop kubelet.service", "systemctl start kubelet.service",
			}; !slices.Equal(m.commands, want) {
				t.Errorf("ran %q", m.commands)
			}
			if len(m.accepted) != 2 || !strings.HasPrefix(m.accepted[0].Path, "/usr/bin/") {
				t.Errorf("the installation's record was told %+v", m.accepted)
			}
			m.expectCheckpoint()
		})
	}
}

// expectCheckpoint fails the test unless the last checkpoint is there alone.
func (m *machine) expectCheckpoint() {
	m.t.Helper()
	entries, err := os.ReadDir(m.path("/state/checkpoints"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "nodeupgrade-one" {
		m.t.Fatalf("got %v, %v", entries, err)
	}
	folder := filepath.Join("/state/checkpoints", entries[0].Name())
	if got := m.read(folder + "/files/usr/bin/kubelet"); got != "kubelet "+oldVersion {
		m.t.Errorf("the checkpoint's kubelet is %q", got)
	}
	if m.role == protocol.UpgradeWorker {
		return
	}
	if got := m.read(folder + "/etcd.db"); !strings.HasPrefix(got, "etcdetcd") || len(got) != 512+32 {
		m.t.Errorf("the snapshot has %d bytes", len(got))
	}
	for _, path := range []string{folder, folder + "/etcd.db"} {
		if info, err := os.Stat(m.path(path)); err != nil || info.Mode().Perm()&0o077 != 0 {
			m.t.Errorf("others may read %s: %v, %v", path, info.Mode(), err)
		}
	}
}
