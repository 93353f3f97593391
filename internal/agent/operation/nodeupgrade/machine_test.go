package nodeupgrade_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable/durabletest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
)

const (
	oldVersion = "v1.35.4"
	newVersion = "v1.36.3"
	nodeName   = "host-1"
)

// components are the static Pods in the order in which kubeadm upgrades them.
func components() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
}

func image(component, version string) string {
	if component == "etcd" {
		version = map[string]string{oldVersion: "3.6.6-0", newVersion: "3.6.8-0"}[version]
	}
	return "registry.k8s.io/" + component + ":" + version
}

func manifest(component, version string) string {
	return fmt.Sprintf("kind: Pod\nspec:\n  containers:\n  - image: %s\n    command:\n    - %s\n    - --advertise-address=192.0.2.1\n", image(component, version), component)
}

func kubeletConfig(version string) string {
	return "kind: KubeletConfiguration\nfor: " + version + "\n"
}

// clock is a clock on which nobody waits.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return nil
}

// machine is a host with a Node, and the cluster that it belongs to.
type machine struct {
	t    *testing.T
	root string
	// images is Elemental OS; nil for another operating system.
	images *images
	role   protocol.UpgradeRole
	disk   *durabletest.Disk
	life   *durabletest.Life
	clock  *clock
	api    *api
	plan   state.Plan
	want   protocol.NodeUpgrade
	// outlives is true if kubeadm goes on without the agent: the agent is killed. Otherwise
	// the power is cut.
	outlives bool
	// runs are the runs of kubeadm by their folder.
	runs map[string]*run
	// mu guards isRunning and crashing: nothing orders a handler that ends its connection
	// before what its caller does next.
	mu sync.Mutex
	// isRunning is false while the kubelet is stopped.
	isRunning bool
	// crashing are images and versions of kubelets that end at once.
	crashing []string
	// accepted are the files that the record of the installation was told.
	accepted []bundle.File
	origin   protocol.Origin
	free     int64
	// readOnly is a folder that can't be written to; blank for none.
	readOnly string
	stageErr error
	// stageRetries counts the calls of Retry.
	stageRetries int
	commands     []string
	filter       filter
	progress     []string
	// boots counts power cuts.
	boots int
	// operationID is that of the request.
	operationID string
	// refusal, if set, is the error of kubeadm, which changes nothing.
	refusal error
	// onStage, onKubeadm and onRestart are called before these happen; they may be nil.
	onStage, onKubeadm, onRestart func()
}

func newMachine(t *testing.T, role protocol.UpgradeRole, seed uint64) *machine {
	t.Helper()
	m := &machine{
		t: t, root: t.TempDir(), role: role, clock: &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		isRunning: true, operationID: "one", origin: protocol.OriginOther, free: 1 << 40, runs: map[string]*run{},
		want: protocol.NodeUpgrade{Role: role, Bundle: protocol.Bundle{Version: newVersion}, DrainTimeoutSeconds: 600},
	}
	m.disk = durabletest.NewDisk(t.TempDir(), rand.New(rand.NewPCG(seed, 0)))
	m.api = newAPI(t, m)
	m.write("/usr/bin/kubelet", "kubelet "+oldVersion, 0o755)
	m.write("/usr/bin/kubeadm", "kubeadm "+oldVersion, 0o755)
	m.write("/var/lib/kubelet/config.yaml", kubeletConfig(oldVersion), 0o644)
	m.write("/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=", 0o644)
	m.write("/staged/bin/kubelet", "kubelet "+newVersion, 0o755)
	m.write("/staged/bin/kubeadm", "kubeadm "+newVersion, 0o755)
	m.write("/staged/images/all.tar", "images", 0o644)
	m.write("/state/x", "", 0o600)
	client, err := m.api.authority.Client("system:node:"+nodeName, "system:nodes")
	m.must(err)
	m.write("/etc/kubernetes/kubelet.conf", kubeconfig(m.api.authority, client), 0o600)
	if role != protocol.UpgradeWorker {
		m.makeControlPlane()
		m.atEndpoint()
	}
	wanted := m.operation().Operation
	m.plan.Operation = &wanted
	return m
}

func (m *machine) makeControlPlane() {
	for _, component := range components() {
		m.write(staticpods.Path(component), manifest(component, oldVersion), 0o600)
	}
	health, err := m.api.authority.Client("kube-etcd-healthcheck-client")
	m.must(err)
	server, err := m.api.authority.Server("kube-apiserver", "kubernetes")
	m.must(err)
	for name, data := range map[string][]byte{
		"etcd/ca.crt": m.api.authority.Certificate, "etcd/ca.key": []byte("key"), "ca.crt": m.api.authority.Certificate, "ca.key": []byte("key"),
		"etcd/healthcheck-client.crt": health.Certificate, "etcd/healthcheck-client.key": health.Key,
		"apiserver.crt": server.Certificate, "apiserver.key": server.Key,
	} {
		if strings.HasSuffix(name, "ca.key") {
			data = health.Key // any text: nothing here signs with it
		}
		m.write("/etc/kubernetes/pki/"+name, string(data), 0o600)
	}
	m.write("/etc/kubernetes/pki/ca.key", "a key", 0o600)
	m.write("/var/lib/etcd/member/snap/db", strings.Repeat("x", 4096), 0o600)
	m.must(os.MkdirAll(m.path("/etc/kubernetes/tmp"), 0o700))
}

func kubeconfig(authority *pki.Authority, client pki.Pair) string {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`current-context: c
contexts:
- name: c
  context: {cluster: k, user: u}
clusters:
- name: k
  cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: %s}
users:
- name: u
  user: {client-certificate-data: %s, client-key-data: %s}
`, encode(authority.Certificate), encode(client.Certificate), encode(client.Key))
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) path(name string) string { return filepath.Join(m.root, name) }

func (m *machine) write(name, content string, mode os.FileMode) {
	m.t.Helper()
	m.must(os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
	m.must(os.WriteFile(m.path(name), []byte(content), mode))
}

func (m *machine) read(name string) string {
	data, err := os.ReadFile(m.path(name))
	if err != nil {
		return ""
	}
	return string(data)
}

func (m *machine) operation() state.Operation {
	return state.Operation{Operation: protocol.Operation{Type: protocol.OperationNodeUpgrade, ID: m.operationID, NodeUpgrade: &m.want}, State: protocol.StateRunning}
}

// boot starts the host after a power cut.
func (m *machine) boot() {
	m.disk.CutPower()
	m.filter.table = ""
	m.run(true)
	m.boots++
}

// live runs the agent until it dies at an operation, or has a result. It returns the number
// of operations.
func (m *machine) live(dieAt int) (result *operation.Result, operations int, err error) {
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	m.life = &durabletest.Life{Disk: m.disk, DieAt: dieAt, Die: cancel}
	documents, err := state.OpenDir(m.path("/state"), m.life)
	if err != nil {
		return nil, m.life.Done, err
	}
	runner := m.runner(documents)
	for range 20 {
		got, err := runner.Run(ctx, m.operation(), func(step string) { m.progress = append(m.progress, step) })
		switch {
		case err == nil && !m.life.Dead:
			m.life.DieAt = 0
			return &got, m.life.Done, runner.Cleanup(m.operation())
		case m.life.Dead, errors.Is(err, operation.ErrSuperseded), errors.Is(err, operation.ErrNothingDone):
			return nil, m.life.Done, err
		}
		m.must(m.clock.Wait(ctx, time.Minute))
	}
	return nil, m.life.Done, errors.New("the agent retries for ever")
}

func (m *machine) runner(documents state.Files) *nodeupgrade.Runner {
	r := &nodeupgrade.Runner{
		Documents: documents, Checkpoints: m.path("/state/checkpoints"), Root: m.root, System: m.life,
		Stager: m, Inspector: m, Installed: m, Kubeadm: kubeadm{m}, Commands: m, Cluster: cluster.Client{Root: m.root, Dial: m.api.dial},
		Free:       func(string) (int64, error) { return m.free, nil },
		IsReadOnly: func(folder string) bool { return m.readOnly != "" && folder == m.path(m.readOnly) }, Plan: func() state.Plan { return m.plan }, BootID: fmt.Sprint(m.boots),
		LocalAddresses: func() []string { return []string{address, "192.0.2.200"} }, Clock: m.clock, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if m.images != nil {
		m.images.equip(r, documents)
	}
	return r
}

// Retry implements nodeupgrade.Stager.
func (m *machine) Retry(context.Context) error {
	m.stageRetries++
	return nil
}

// Stage implements nodeupgrade.Stager.
func (m *machine) Stage(context.Context, protocol.Bundle, func(string)) (string, bundle.Manifest, error) {
	happen(m.onStage)
	if m.stageErr != nil {
		return "", bundle.Manifest{}, m.stageErr
	}
	manifest := bundle.Manifest{KubernetesVersion: newVersion, Files: []bundle.File{{Name: "images/all.tar", Kind: bundle.KindImage}}}
	for _, name := range []string{"kubeadm", "kubectl", "kubelet"} {
		sum := sha256.Sum256([]byte(name + " " + newVersion))
		manifest.Files = append(manifest.Files, bundle.File{
			Name: "bin/" + name, Kind: bundle.KindProgram, Path: "/usr/local/bin/" + name, Mode: 0o755, Size: 15, SHA256: hex.EncodeToString(sum[:]),
		})
	}
	return m.path("/staged"), manifest, nil
}

// Kubernetes implements nodeupgrade.Inspector. The host has no kubectl.
func (m *machine) Kubernetes(context.Context) (protocol.Kubernetes, error) {
	return protocol.Kubernetes{
		Kubelet:          protocol.Program{Path: "/usr/bin/kubelet", Origin: m.origin},
		Kubeadm:          protocol.Program{Path: "/usr/bin/kubeadm", Origin: m.origin},
		ContainerRuntime: protocol.ContainerRuntime{Name: protocol.RuntimeContainerd, Socket: "/run/c.sock"},
	}, nil
}

// Accept implements nodeupgrade.Installed.
func (m *machine) Accept(files []bundle.File) error {
	m.accepted = files
	return nil
}

// Run implements oscommand.Runner.
func (m *machine) Run(_ context.Context, stdin string, args ...string) (out string, err error) {
	return out, m.life.Do(func() error {
		if args[0] == "nft" {
			out, err = m.filter.nft(stdin, args...)
			return err
		}
		m.commands = append(m.commands, strings.Join(args, " "))
		switch strings.Join(args[:2], " ") {
		case "systemctl stop":
			m.run(false)
		case "systemctl start":
			if goes := m.filter.goes(); goes != "" && goes != "cut" {
				m.t.Errorf("the kubelet starts while connections to the endpoint go to %s", goes)
			}
			m.run(true)
		case "systemctl restart":
			happen(m.onRestart)
			m.run(true)
		}
		return nil
	})
}

func happen(f func()) {
	if f != nil {
		f()
	}
}
