package endpoint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/redirect"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	former  = "10.0.0.1:6443"
	current = "10.0.0.2:6443"
	table   = "inet elemental_endpoint"
)

// box is a host in a directory, with a kubelet, a packet filter and network
// interfaces.
type box struct {
	t    *testing.T
	root string
	disk *disk
	// kubeletConfig is the kubelet.conf that the kubelet read at its start.
	kubeletConfig string
	restarts      int
	filter        string
	// redirection is the table of package redirect.
	redirection string
	nics        map[string][]string
	// broken contains the errors of programs that fail.
	broken map[string]error
	ran    []string
	local  *localEndpoint
}

// localEndpoint is what the host serves itself.
type localEndpoint struct {
	served   string
	backends []string
	broken   error
}

func (l *localEndpoint) Apply(_ context.Context, e protocol.Endpoint) (string, error) {
	if l.broken != nil {
		return "", l.broken
	}
	l.served, l.backends = e.Host, e.Local.Backends
	return l.served, nil
}

func (l *localEndpoint) Keep(context.Context) (string, error) { return l.served, l.broken }

func (l *localEndpoint) Remove(context.Context) error {
	if l.broken == nil {
		l.served = ""
	}
	return l.broken
}

func (l *localEndpoint) Leftovers() ([]string, error) {
	if l.served == "" {
		return nil, nil
	}
	return []string{"name " + l.served + " in /etc/hosts"}, nil
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{
		t: t, root: t.TempDir(), broken: map[string]error{}, local: &localEndpoint{},
		nics: map[string][]string{"lo": {"127.0.0.1/8"}, "eth0": {"10.0.0.7/24", "2001:db8::7/64"}},
	}
	b.disk = &disk{System: durable.OS{}, owners: map[string]string{}, opened: map[string]*handle{}}
	b.write("/var/lib/elemental/x", "")
	return b
}

// applier returns the Applier of an agent that has just started.
func (b *box) applier() *endpoint.Applier {
	b.t.Helper()
	a := b.restartAgent()
	if a == nil {
		b.t.Fatal("the agent died during its start")
	}
	return a
}

// restartAgent returns the Applier of an agent that has just started, or nil if
// the agent dies during its start.
func (b *box) restartAgent() *endpoint.Applier {
	b.t.Helper()
	documents, err := state.OpenDir(filepath.Join(b.root, "var/lib/elemental"), b.disk)
	if errors.Is(err, errDead) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return endpoint.New(endpoint.Options{
		Documents: documents, Root: b.root, System: b.disk, Commands: b, Interfaces: b.interfaces, Local: b.local, Log: slog.New(slog.DiscardHandler),
	})
}

func (b *box) interfaces() ([]platform.NetworkInterface, error) {
	var list []platform.NetworkInterface
	for name, addresses := range b.nics {
		nic := platform.NetworkInterface{Name: name}
		for _, text := range addresses {
			ip, network, err := net.ParseCIDR(text)
			if err != nil {
				return nil, err
			}
			nic.Addresses = append(nic.Addresses, &net.IPNet{IP: ip, Mask: network.Mask})
		}
		list = append(list, nic)
	}
	return list, nil
}

// Run imitates systemctl, nft and ip as long as the agent is alive.
func (b *box) Run(_ context.Context, stdin string, args ...string) (out string, err error) {
	line := strings.Join(args, " ")
	if args[0] == "nft" && args[1] == "list" {
		listed := b.filter
		if strings.HasSuffix(line, redirect.Name) {
			listed = b.redirection
		}
		if listed == "" {
			return "", errors.New("No such file or directory")
		}
		return listed, nil
	}
	b.ran = append(b.ran, line)
	return "", b.disk.do(func() error {
		switch {
		case b.broken[args[0]] != nil:
			return b.broken[args[0]]
		case line == "systemctl try-restart kubelet.service":
			b.restarts++
			b.kubeletConfig = b.read("/etc/kubernetes/kubelet.conf")
		case line == "nft -f -" && strings.Contains(stdin, redirect.Name):
			_, b.redirection, _ = strings.Cut(stdin, "delete table "+redirect.Name+"\n")
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

// kubeconfig returns a kubeconfig as kubeadm writes it.
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

// worker makes the box a worker node whose kubelet uses a server.
func (b *box) worker(server string) {
	b.write("/etc/kubernetes/kubelet.conf", kubeconfig(server))
	b.kubeletConfig = kubeconfig(server)
}

// controlPlane makes the box a control-plane node whose kubeconfigs name a
// server. Those of the controller manager and the scheduler name the host's own
// API server.
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

// kubeconfigsOf lists the kubeconfigs that name a server.
func (b *box) kubeconfigsOf(server string) string {
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

// apply applies twice and checks that the second call writes nothing.
func (b *box) apply(e *protocol.Endpoint, files []protocol.File) protocol.EndpointReport {
	b.t.Helper()
	report, err := b.applier().Apply(b.t.Context(), e, files)
	if err != nil {
		b.t.Fatalf("applying: %v", err)
	}
	writes, ran := b.disk.writes, len(b.ran)
	again, err := b.applier().Apply(b.t.Context(), e, files)
	if err != nil || again != report {
		b.t.Errorf("first %+v, then %+v: %v", report, again, err)
	}
	if b.disk.writes != writes || len(b.ran) != ran {
		b.t.Errorf("a second call wrote %d times and ran %v", b.disk.writes-writes, b.ran[ran:])
	}
	return report
}
