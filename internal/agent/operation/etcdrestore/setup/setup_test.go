package setup_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/apply/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/etcdrestore/setup"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	bootstrapData = `## template: jinja
#cloud-config
write_files:
- {path: /etc/kubernetes/pki/ca.key, owner: "root:root", permissions: "0600", content: "key"}
- {path: /etc/app/name, permissions: "0644", content: "{{ ds.meta_data.local_hostname }} {{ ds.meta_data.instance_id }}"}
- {path: /etc/app/limits, permissions: "0644", content: "after"}
- {path: /etc/app/table, append: true, content: "line"}
runcmd:
- kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml
`
	kubeadmConfig = `## template: jinja
#cloud-config
write_files:
- path: /etc/kubernetes/elemental-kubeadm.conf
  owner: root:root
  permissions: '0600'
  content: |
    ---
    kind: InitConfiguration
    nodeRegistration:
      name: '{{ ds.meta_data.local_hostname }}'
`
)

// box is a host, and its manager.
type box struct {
	t        *testing.T
	root     string
	answer   protocol.ControlPlaneSetup
	asked    []string
	commands []string
	files    *bootstrap.LocalExecutor
	// fails is the phase of kubeadm that fails.
	fails string
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{t: t, root: t.TempDir()}
	b.answer = protocol.ControlPlaneSetup{BootstrapData: []byte(bootstrapData), Format: protocol.FormatCloudConfig, KubeadmConfig: kubeadmConfig}
	for path, content := range map[string]string{
		"/etc/os-release": "ID=debian\n", "/etc/app/table": "line",
		"/etc/app/limits": "before", "/proc/self/mountinfo": "", "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "/etc/group": "root:x:0:\n",
	} {
		path = filepath.Join(b.root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := state.OpenDir(t.TempDir(), durable.OS{})
	if err != nil {
		t.Fatal(err)
	}
	b.files = &bootstrap.LocalExecutor{
		Files: dir, Dir: dir.Path(""), Root: b.root, System: relabelling{}, Chown: func(string, int, int) error { return nil },
	}
	return b
}

func (b *box) setup() setup.Setup {
	return setup.Setup{
		Root: b.root, Manager: func() setup.Manager { return b }, Files: b.files, Commands: b, Hostname: func() (string, error) { return "edge-1", nil },
	}
}

// ControlPlaneSetup is setup.Manager.
func (b *box) ControlPlaneSetup(_ context.Context, request protocol.ControlPlaneSetupRequest) (protocol.ControlPlaneSetup, error) {
	b.asked = append(b.asked, request.ID)
	return b.answer, nil
}

// Run stands in for kubeadm.
func (b *box) Run(_ context.Context, _ string, args ...string) (string, error) {
	command := strings.ReplaceAll(strings.Join(args, " "), b.root, "")
	b.commands = append(b.commands, command)
	if b.fails != "" && strings.Contains(command, b.fails) {
		return "", errors.New("exit status 1: it did not work")
	}
	return "", nil
}

// relabelling is a host without security contexts.
type relabelling struct{}

func (relabelling) Run(context.Context, host.Command) (string, error) { return "", nil }

func (b *box) content(path string) string {
	content, err := os.ReadFile(filepath.Join(b.root, path))
	if err != nil {
		return err.Error()
	}
	return string(content)
}

func TestControlPlane(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for range 2 { // it can be repeated
		b.commands = nil
		if err := b.setup().ControlPlane(t.Context(), "claim.1"); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(b.asked, []string{"claim.1", "claim.1"}) {
		t.Errorf("asked for %q", b.asked)
	}
	for path, want := range map[string]string{
		"/etc/kubernetes/pki/ca.key": "key", "/etc/app/name": "edge-1 claim", "/etc/app/table": "line", "/etc/app/limits": "after",
		protocol.KubeadmConfigPath: "---\nkind: InitConfiguration\nnodeRegistration:\n  name: 'edge-1'\n",
	} {
		if got := b.content(path); got != want {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
	info, err := os.Stat(filepath.Join(b.root, "/etc/kubernetes/pki/ca.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has the mode %v, %v", info.Mode(), err)
	}
	const config = " --config=" + protocol.KubeadmConfigPath
	want := []string{
		"kubeadm init phase certs all" + config, "kubeadm init phase kubeconfig admin" + config,
		"kubeadm init phase kubeconfig controller-manager" + config, "kubeadm init phase kubeconfig scheduler" + config,
		"kubeadm init phase control-plane all" + config, "kubeadm init phase etcd local" + config,
	}
	if !slices.Equal(b.commands, want) {
		t.Errorf("the commands were %q", b.commands)
	}
	b.commands = nil
	if err := b.setup().Kubelet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"kubeadm init phase kubeconfig kubelet" + config, "kubeadm init phase kubelet-start" + config}; !slices.Equal(b.commands, want) {
		t.Errorf("the commands for the kubelet were %q", b.commands)
	}
}

// The host of a dead machine is another machine now, which has executed no bootstrap. A reset removes
// what was written, and restores what was replaced.
func TestResetUndoesTheFiles(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for range 2 {
		if err := b.setup().ControlPlane(t.Context(), "claim.1"); err != nil {
			t.Fatal(err)
		}
	}
	executed, err := b.files.Executed()
	if err != nil || !slices.Equal(executed, []string{"operations/bootstrap-claim"}) {
		t.Fatalf("executed %q, %v", executed, err)
	}
	if err := b.files.Undo(t.Context(), executed[0]); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/etc/app/limits": "before", "/etc/app/table": "line"} {
		if got := b.content(path); got != want {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"/etc/kubernetes", "/etc/app/name"} {
		if _, err := os.Stat(filepath.Join(b.root, path)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left, %v", path, err)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(b *box)
		want   string
	}{
		"kubeadm fails":         {func(b *box) { b.fails = "certs all" }, "running kubeadm init phase certs all: exit status 1: it did not work"},
		"no configuration":      {func(b *box) { b.answer.KubeadmConfig = "#cloud-config\nhostname: edge-1\n" }, "the manager sent no configuration of kubeadm"},
		"broken bootstrap data": {func(b *box) { b.answer.BootstrapData = []byte("#cloud-config\nwrite_files: 1\n") }, "reading the bootstrap data: "},
		"an unknown format":     {func(b *box) { b.answer.Format = "talos" }, "reading the bootstrap data: "},
		"an unknown user": {func(b *box) {
			b.answer.BootstrapData = []byte("#cloud-config\nwrite_files:\n- {path: /a, owner: 'nobody-here:root', content: x}\n")
		}, `writing file /a: there is no user "nobody-here"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			test.change(b)
			if err := b.setup().ControlPlane(t.Context(), "claim.1"); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
