package etcdrestore_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable/durabletest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/etcdrestore"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
)

const (
	data     = "/var/lib/etcd"
	database = "member/snap/db"
	// kubeletConfig is what the kubelet can't run without.
	kubeletConfig = "/etc/kubernetes/kubelet.conf"
	// kubeletSettings have the content settings, without which the kubelet ends.
	kubeletSettings, settings = "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration"
	former                    = "former"
	restored                  = "restored"
	uploaded                  = "uploaded"
	// alone is added to the data of a member that goes on as the only one.
	alone = " alone"
)

// clock is a clock on which nobody waits.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	return ctx.Err()
}

// machine is a host with a control plane. It is the Snapshots, the ControlPlane, the Nodes and
// the oscommand.Runner of the operation.
type machine struct {
	t           *testing.T
	root, state string
	disk        *durabletest.Disk
	life        *durabletest.Life
	plan        state.Plan
	op          state.Operation
	facts       protocol.EtcdSnapshotFacts
	// openErr is the error of reading the snapshot, and toolErr that of etcdutl.
	openErr, toolErr error
	// copyErr is the error of etcdutl for the member's own database.
	copyErr error
	free    int64
	// isRunning is true while a program of the control plane runs, and kubeletRuns while the kubelet does.
	isRunning, kubeletRuns bool
	// isBroken makes the control plane not well with some data.
	isBroken map[string]bool
	progress []string
	// store has what the host downloads; nil if the host has the snapshot.
	store *snapshot.Store
	// fetchErr is the error of downloads.
	fetchErr error
	// onFetch is called by downloads; nil does nothing.
	onFetch func()
	// startErr is the error of the next start of the kubelet.
	startErr error
	// credentials are the files of the certificate for health checks.
	credentials map[string]string
	// setupErr is the error of setting up the control plane, and kubeletErr that of the kubelet.
	setupErr, kubeletErr error
	// hadFiles is true if a machine that has lost its control plane has its folder.
	hadFiles bool
	// nodes are the Nodes that the restored data has, and nodesErr is the error of deleting one.
	nodes    []string
	nodesErr error
}

func newMachine(t *testing.T, seed uint64) *machine {
	t.Helper()
	return newMachineWith(t, seed, newCredentials(t))
}

func newMachineWith(t *testing.T, seed uint64, credentials map[string]string) *machine {
	t.Helper()
	m := &machine{
		t: t, root: t.TempDir(), state: t.TempDir(), disk: durabletest.NewDisk(t.TempDir(), rand.New(rand.NewPCG(seed, 0))),
		free: 1 << 40, isRunning: true, isBroken: map[string]bool{},
	}
	m.facts = protocol.EtcdSnapshotFacts{ID: "1", SHA256: "abc", SizeBytes: 1 << 20, Cluster: protocol.EtcdCluster{Namespace: "ns", Name: "c", UID: "u"}}
	m.op.Type, m.op.ID = protocol.OperationEtcdRestore, "claim.1"
	m.op.EtcdRestore = &protocol.EtcdRestore{
		SnapshotID: "1", SHA256: "abc", Cluster: protocol.EtcdCluster{Namespace: "ns", Name: "c"}, ReplaceHealthy: true,
	}
	m.plan.Operation = &m.op.Operation
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
		m.write(staticpods.Path(component), manifest(component))
	}
	for name, content := range credentials {
		m.write("/etc/kubernetes/pki/etcd/"+name, content)
	}
	m.write(kubeletConfig, "")
	m.write(kubeletSettings, settings)
	m.credentials = credentials
	m.write(filepath.Join(data, database), former)
	return m
}

// newCredentials returns the files of the certificate for health checks, by their names.
func newCredentials(t *testing.T) map[string]string {
	t.Helper()
	authority, err := pki.NewAuthority("etcd-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	client, err := authority.Client("kube-etcd-healthcheck-client")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"ca.crt": string(authority.Certificate), "healthcheck-client.crt": string(client.Certificate), "healthcheck-client.key": string(client.Key),
	}
}

func (m *machine) write(path, content string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		m.t.Fatal(err)
	}
}

// served returns the data that etcd uses; blank if it has no data.
func (m *machine) served() string {
	content, _ := os.ReadFile(filepath.Join(m.root, data, database))
	return string(content)
}

func (m *machine) hasManifest(component string) bool {
	_, err := os.Stat(filepath.Join(m.root, staticpods.Path(component)))
	return err == nil
}

// kubelet is a start of the kubelet. etcd must never start without complete data.
func (m *machine) kubelet() {
	_, err := os.Stat(filepath.Join(m.root, kubeletConfig))
	if content, _ := os.ReadFile(filepath.Join(m.root, kubeletSettings)); err != nil || string(content) != settings {
		m.isRunning, m.kubeletRuns = false, false
		return
	}
	m.kubeletRuns = true
	m.startPods()
}

// startPods starts what has a manifest.
func (m *machine) startPods() {
	m.isRunning = m.hasManifest("etcd") || m.hasManifest("kube-apiserver")
	if is := m.served(); m.hasManifest("etcd") && is != former && is != restored && is != former+alone {
		m.t.Errorf("etcd starts with the data %q", is)
	}
}

// boot is a start of the host after a power cut.
func (m *machine) boot() {
	m.disk.CutPower()
	m.kubelet()
}

// live is the life of one agent, which dies at an operation; at 0 it does not.
func (m *machine) live(dieAt int) (result operation.Result, operations int, err error) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	m.life = &durabletest.Life{Disk: m.disk, DieAt: dieAt, Die: cancel}
	documents, err := state.NewDir(m.state)
	if err != nil {
		m.t.Fatal(err)
	}
	if m.store != nil {
		m.store = m.newStore()
	}
	runner := &etcdrestore.Runner{
		Documents: documents, Checkpoints: filepath.Join(m.state, "checkpoints"), Root: m.root, System: guarded{m.life, m},
		Snapshots: m, Fetcher: m, ControlPlane: m, Setup: rebuilt{m}, Nodes: m, Commands: m, Free: func(string) (int64, error) { return m.free, nil },
		Plan: func() state.Plan { return m.plan }, Clock: &clock{now: time.Now()}, Log: slog.New(slog.DiscardHandler),
	}
	for range 10 { // the run loop repeats it
		result, err = runner.Run(ctx, m.op, func(step string) { m.progress = append(m.progress, step) })
		if err == nil || m.life.Dead || errors.Is(err, operation.ErrNothingDone) && m.plan.Operation == nil {
			break
		}
	}
	return result, m.life.Done, err
}

// guarded refuses to move data that a program uses.
type guarded struct {
	*durabletest.Life

	m *machine
}

func (g guarded) Rename(from, to string) error {
	if strings.HasPrefix(filepath.Base(from), "member") && g.m.isRunning {
		g.m.t.Errorf("%s is moved while the control plane runs", from)
	}
	return g.Life.Rename(from, to)
}

// Verify is Snapshots.
func (m *machine) Verify(ctx context.Context, id string) (string, protocol.EtcdSnapshotFacts, error) {
	if m.store != nil {
		return m.store.Verify(ctx, id)
	}
	return "/snapshots/1.db", m.facts, m.openErr
}

// upload has the snapshot at the destination only.
func (m *machine) upload() {
	sum := sha256.Sum256([]byte(uploaded))
	m.facts.SHA256, m.facts.SizeBytes = hex.EncodeToString(sum[:]), int64(len(uploaded))
	m.op.EtcdRestore.SHA256, m.op.EtcdRestore.Uploaded = m.facts.SHA256, true
	m.store = m.newStore()
}

// survive has the member go on with its own data. It does not run without the others.
func (m *machine) survive() {
	m.op.EtcdRestore = &protocol.EtcdRestore{OwnData: true, Cluster: m.op.EtcdRestore.Cluster}
	m.isBroken[former] = true
}

// newStore returns the Store of a new process.
func (m *machine) newStore() *snapshot.Store {
	return &snapshot.Store{
		Root: m.root, Folder: filepath.Join(m.state, snapshot.Folder), System: guarded{m.life, m}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Space: func(string) (int64, int64, error) { return m.free, m.free, nil },
	}
}

// Fetch is Fetcher.
func (m *machine) Fetch(ctx context.Context, _ string, want protocol.EtcdRestore) error {
	if m.onFetch != nil {
		m.onFetch()
	}
	if m.fetchErr != nil {
		return m.fetchErr
	}
	facts := m.facts
	facts.SHA256 = want.SHA256
	return m.store.Add(ctx, facts, func(to io.Writer) error {
		for _, part := range []string{uploaded[:3], uploaded[3:]} {
			if _, err := io.WriteString(to, part); err != nil {
				return err
			}
		}
		return nil
	})
}

// Halt is ControlPlane.
func (m *machine) Halt(context.Context) error {
	return m.life.Do(func() error {
		m.isRunning, m.kubeletRuns = false, false
		return nil
	})
}

// Start is ControlPlane.
func (m *machine) Start(context.Context) error {
	return m.life.Do(func() error {
		if err := m.startErr; err != nil {
			m.startErr = nil
			return err
		}
		m.kubelet()
		return nil
	})
}

// Ready is ControlPlane.
func (m *machine) Ready(context.Context) error {
	if !m.isRunning || m.isBroken[m.served()] {
		return errors.New("etcd does not answer")
	}
	return nil
}

// Run stands in for etcdutl. What it writes is not durable.
func (m *machine) Run(_ context.Context, _ string, args ...string) (string, error) {
	if args[0] != "etcdutl" || m.toolErr != nil {
		return "", errors.Join(m.toolErr, fs.ErrNotExist)
	}
	if args[1] == "version" {
		return "etcdutl version: 3.6.8", nil
	}
	content := restored
	if m.op.EtcdRestore.OwnData {
		if m.copyErr != nil {
			return "", m.copyErr
		}
		content = m.own(args)
	}
	i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--data-dir=") })
	folder := strings.TrimPrefix(args[i], "--data-dir=")
	for _, path := range []string{folder, filepath.Join(folder, "member"), filepath.Join(folder, "member/snap")} {
		if err := m.life.Mkdir(path); err != nil {
			return "", err
		}
	}
	file, err := m.life.Create(filepath.Join(folder, database))
	if err != nil {
		return "", err
	}
	_, err = file.Write([]byte(content))
	return "", errors.Join(err, file.Close())
}

// expect checks which data etcd uses, and that the control plane runs.
func (m *machine) expect(served string) {
	m.t.Helper()
	if got := m.served(); got != served || !m.isRunning {
		m.t.Errorf("etcd has the data %q, not %q, running: %t", got, served, m.isRunning)
	}
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"} {
		content, err := os.ReadFile(filepath.Join(m.root, staticpods.Path(component)))
		if err != nil || string(content) != manifest(component) {
			m.t.Errorf("the manifest of %s is %q, %v", component, content, err)
		}
	}
}

var _ durable.System = guarded{}
