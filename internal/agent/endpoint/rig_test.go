package endpoint_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrap/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/host"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	former  = "10.0.0.1:6443"
	current = "10.0.0.2:6443"
	table   = "inet elemental_endpoint"
)

// box is a host in a directory, with a kubelet, a packet filter and interfaces.
type box struct {
	t    *testing.T
	root string
	disk *disk
	// runs is the server of kubelet.conf that the kubelet has read.
	runs     string
	restarts int
	filter   string
	nics     map[string][]string
	// broken are programs that fail.
	broken map[string]error
	ran    []string
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{
		t: t, root: t.TempDir(), broken: map[string]error{},
		nics: map[string][]string{"lo": {"127.0.0.1/8"}, "eth0": {"10.0.0.7/24", "2001:db8::7/64"}},
	}
	b.disk = &disk{System: durable.OS{}, owners: map[string]string{}, opened: map[string]*handle{}}
	b.write("/var/lib/elemental/x", "")
	return b
}

// keeper is that of an agent that has just been started.
func (b *box) keeper() *endpoint.Keeper {
	b.t.Helper()
	k := b.restarted()
	if k == nil {
		b.t.Fatal("the agent has died")
	}
	return k
}

// restarted is keeper, or nil if the agent dies as it starts.
func (b *box) restarted() *endpoint.Keeper {
	b.t.Helper()
	documents, err := state.OpenDir(filepath.Join(b.root, "var/lib/elemental"), b.disk)
	if errors.Is(err, errDead) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return endpoint.New(endpoint.Options{
		Documents: documents, Root: b.root, System: b.disk, Commands: b, Interfaces: b.interfaces, Log: slog.New(slog.DiscardHandler),
	})
}

func (b *box) interfaces() ([]host.Interface, error) {
	var list []host.Interface
	for name, addresses := range b.nics {
		one := host.Interface{Name: name}
		for _, text := range addresses {
			ip, network, err := net.ParseCIDR(text)
			if err != nil {
				return nil, err
			}
			one.Addresses = append(one.Addresses, &net.IPNet{IP: ip, Mask: network.Mask})
		}
		list = append(list, one)
	}
	return list, nil
}

// Run plays systemctl, nft and ip, as far as the process that asks is alive.
func (b *box) Run(_ context.Context, stdin string, args ...string) (out string, err error) {
	line := strings.Join(args, " ")
	if args[0] == "nft" && args[1] == "list" {
		if b.filter == "" {
			return "", errors.New("No such file or directory")
		}
		return b.filter, nil
	}
	b.ran = append(b.ran, line)
	return "", b.disk.do(func() error {
		switch {
		case b.broken[args[0]] != nil:
			return b.broken[args[0]]
		case line == "systemctl try-restart kubelet.service":
			b.restarts++
			b.runs = b.read("/etc/kubernetes/kubelet.conf")
		case line == "nft -f -":
			_, b.filter, _ = strings.Cut(stdin, "delete table "+table+"\n")
		case len(args) == 6 && strings.HasPrefix(line, "ip address delete ") && args[4] == "dev":
			left := strings.ReplaceAll(" "+strings.Join(b.nics[args[5]], " ")+" ", " "+args[3]+" ", " ")
			b.nics[args[5]] = strings.Fields(left)
		default:
			return fmt.Errorf("running %s: %w", line, errors.ErrUnsupported)
		}
		return nil
	})
}

func (b *box) write(name, content string) {
	b.t.Helper()
	path := filepath.Join(b.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) read(name string) string {
	data, err := os.ReadFile(filepath.Join(b.root, name))
	if err != nil {
		return ""
	}
	return string(data)
}

func (b *box) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(b.root, name))
	return err == nil
}

// kubeconfig is one as kubeadm writes it.
func kubeconfig(server string) string {
	return `apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTg==
    server: https://` + server + `
  name: kubernetes
contexts:
- context:
    cluster: kubernetes
    user: someone
  name: someone@kubernetes
current-context: someone@kubernetes
kind: Config
users:
- name: someone
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
`
}

// worker makes the box a node whose kubelet runs with a server.
func (b *box) worker(server string) {
	b.write("/etc/kubernetes/kubelet.conf", kubeconfig(server))
	b.runs = kubeconfig(server)
}

// controlPlane makes the box one whose kubeconfigs name a server, but those that
// kubeadm has name the host's own API server.
func (b *box) controlPlane(server, own string) {
	b.worker(server)
	for _, name := range []string{"admin.conf", "super-admin.conf"} {
		b.write("/etc/kubernetes/"+name, kubeconfig(server))
	}
	for _, name := range []string{"controller-manager.conf", "scheduler.conf"} {
		b.write("/etc/kubernetes/"+name, kubeconfig(own))
	}
	b.write("/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{command: [kube-apiserver]}]}\n")
}

// servers are the kubeconfigs that name a server.
func (b *box) servers(server string) string {
	var names []string
	for _, name := range []string{"admin", "bootstrap-kubelet", "controller-manager", "kubelet", "scheduler", "super-admin"} {
		if b.read("/etc/kubernetes/"+name+".conf") == kubeconfig(server) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func to(host string, formers ...string) *protocol.Endpoint {
	return &protocol.Endpoint{Host: host, Port: 6443, Former: formers}
}

// apply applies twice, and the second time must have nothing to write.
func (b *box) apply(e *protocol.Endpoint, files []protocol.File) protocol.EndpointReport {
	b.t.Helper()
	report, err := b.keeper().Apply(b.t.Context(), e, files)
	if err != nil {
		b.t.Fatalf("applying: %v", err)
	}
	writes, ran := b.disk.writes, len(b.ran)
	again, err := b.keeper().Apply(b.t.Context(), e, files)
	if err != nil || again != report {
		b.t.Errorf("first %+v, then %+v: %v", report, again, err)
	}
	if b.disk.writes != writes || len(b.ran) != ran {
		b.t.Errorf("a second pass writes %d times and runs %v", b.disk.writes-writes, b.ran[ran:])
	}
	return report
}

var errDead = errors.New("the process is dead")

// disk is a disk that a process dies on, at the operation numbered dieAt, before
// or after that took effect. A power cut besides takes back the names that were
// not synced.
type disk struct {
	durable.System

	dieAt, done  int
	after, power bool
	dead         bool
	writes       int
	// full is the folder that can hold no more.
	full     string
	unsynced []undo
	// owners are those that files were given, user:group.
	owners map[string]string
	opened map[string]*handle
	// beforeAttributes is called with the temporary file of a write.
	beforeAttributes func(path string)
}

type undo struct {
	dir  string
	back func()
}

func (d *disk) do(f func() error) error {
	if d.dead {
		return errDead
	}
	if d.done++; d.done == d.dieAt {
		if d.after {
			_ = f()
		}
		d.dead = true
		if d.power {
			for len(d.unsynced) > 0 {
				last := len(d.unsynced) - 1
				d.unsynced[last].back()
				d.unsynced = d.unsynced[:last]
			}
		}
		return errDead
	}
	return f()
}

// live starts the next process.
func (d *disk) live(dieAt int) { d.dieAt, d.done, d.dead, d.unsynced = dieAt, 0, false, nil }

func (d *disk) Create(path string) (durable.File, error) {
	var file durable.File
	err := d.do(func() error {
		d.writes++
		if d.full != "" && strings.HasPrefix(path, d.full) {
			return errors.New("no space left on device")
		}
		made, err := d.System.Create(path)
		if err != nil {
			return err
		}
		d.unsynced = append(d.unsynced, undo{filepath.Dir(path), func() { _ = os.Remove(path) }})
		h := &handle{File: made.(*os.File), disk: d, path: path}
		file, d.opened[path] = h, h
		return nil
	})
	return file, err
}

// handle is an open file.
type handle struct {
	*os.File

	disk        *disk
	path, owner string
}

func (h *handle) Chmod(mode fs.FileMode) error {
	if h.disk.beforeAttributes != nil {
		h.disk.beforeAttributes(h.path)
	}
	return h.File.Chmod(mode)
}

// Chown gives a file the owner that it has: only root could give it another.
func (h *handle) Chown(uid, gid int) error {
	h.owner = fmt.Sprintf("%d:%d", uid, gid)
	return h.File.Chown(uid, gid)
}

// Sync only counts: the machine that runs the tests keeps its power.
func (h *handle) Sync() error { return h.disk.do(func() error { return nil }) }

func (d *disk) Rename(from, to string) error {
	return d.do(func() error {
		d.writes++
		if h := d.opened[from]; h != nil {
			d.owners[filepath.Base(to)] = h.owner
		}
		before, err := os.ReadFile(to)
		existed := err == nil
		d.unsynced = append(d.unsynced, undo{filepath.Dir(to), func() {
			_ = os.Remove(to)
			if existed {
				_ = os.WriteFile(to, before, 0o600)
			}
		}})
		return d.System.Rename(from, to)
	})
}

func (d *disk) Remove(path string) error {
	return d.do(func() error {
		before, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		d.writes++
		d.unsynced = append(d.unsynced, undo{filepath.Dir(path), func() { _ = os.WriteFile(path, before, 0o600) }})
		return d.System.Remove(path)
	})
}

func (d *disk) Mkdir(path string) error { return d.do(func() error { return d.System.Mkdir(path) }) }

func (d *disk) SyncDir(path string) error {
	return d.do(func() error {
		kept := d.unsynced[:0]
		for _, one := range d.unsynced {
			if one.dir != path {
				kept = append(kept, one)
			}
		}
		d.unsynced = kept
		return nil
	})
}
