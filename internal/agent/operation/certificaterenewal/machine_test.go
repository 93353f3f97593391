package certificaterenewal_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	random "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable/durabletest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/certificaterenewal"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const kubernetes = "/etc/kubernetes/"

// Generations of certificates.
const (
	former = iota
	renewed
)

// clock is a clock on which nobody waits.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	return ctx.Err()
}

// credentials are the files of each generation, by their paths below /etc/kubernetes.
type credentials [2]map[string]string

// newCredentials makes certificates of which the former ones end at a time, and the others a year
// later. Authorities are the same in both.
func newCredentials(t *testing.T, ends time.Time) credentials {
	t.Helper()
	all := credentials{{}, {}}
	authority, authorityKey := newCertificate(t, ends.AddDate(9, 0, 0), nil, nil)
	for generation := range all {
		files := all[generation]
		for _, name := range []string{"pki/ca", "pki/front-proxy-ca", "pki/etcd/ca"} {
			files[name+".crt"], files[name+".key"] = encode("CERTIFICATE", authority.Raw), "key of "+name
		}
		leaf, key := newCertificate(t, ends.AddDate(generation, 0, 0), authority, authorityKey)
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range protocol.CertificateNames() {
			switch {
			case protocol.IsAuthority(name):
			case strings.HasSuffix(name, ".conf"):
				data := base64.StdEncoding.EncodeToString([]byte(encode("CERTIFICATE", leaf.Raw)))
				files[name] = "kind: Config\nusers:\n- name: u\n  user:\n    client-certificate-data: " + data + "\n"
			default:
				files[name], files[strings.TrimSuffix(name, ".crt")+".key"] = encode("CERTIFICATE", leaf.Raw), encode("PRIVATE KEY", der)
			}
		}
	}
	return all
}

// newCertificate makes a certificate, of an authority without a parent.
func newCertificate(t *testing.T, ends time.Time, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(ends.Unix()), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: time.Now().AddDate(-2, 0, 0), NotAfter: ends,
		DNSNames: []string{"kubernetes"},
	}
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid, template.Subject.CommonName = true, true, "kubernetes-ca"
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// machine is a host with a control plane. It is the ControlPlane and the oscommand.Runner of the
// operation.
type machine struct {
	t           *testing.T
	root, state string
	disk        *durabletest.Disk
	life        *durabletest.Life
	files       credentials
	plan        state.Plan
	op          state.Operation
	free        int64
	// used is what each program has read of the API server's certificate at its start.
	used map[string]tls.Certificate
	// kubeadmErr is the error of kubeadm; isIdle makes it do nothing.
	kubeadmErr error
	isIdle     bool
	// isBroken makes the control plane not well with certificates of a generation.
	isBroken [2]bool
	// breaksAtRestart makes it not well for ever once a program was restarted.
	breaksAtRestart bool
	restarts        []string
	progress        []string
}

func newMachine(t *testing.T, seed uint64, files credentials) *machine {
	t.Helper()
	m := &machine{
		t: t, root: t.TempDir(), state: t.TempDir(), disk: durabletest.NewDisk(t.TempDir(), random.New(random.NewPCG(seed, 0))),
		files: files, free: 1 << 40, used: map[string]tls.Certificate{},
	}
	m.op.Type, m.op.ID = protocol.OperationCertificateRenewal, "claim.1"
	m.plan.Operation = &m.op.Operation
	for _, component := range components() {
		m.write(staticpods.Path(component), fmt.Sprintf("kind: Pod\nspec:\n  containers:\n  - image: registry.k8s.io/%s:v1.36.3\n    command:\n"+
			"    - %s\n    - --advertise-address=192.0.2.1\n", component, component))
	}
	for name, content := range files[former] {
		m.write(kubernetes+name, content)
	}
	m.boot()
	return m
}

func components() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
}

func (m *machine) write(path, content string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(name string) string {
	content, _ := os.ReadFile(filepath.Join(m.root, kubernetes, name))
	return string(content)
}

// boot starts all programs, with what is on the disk.
func (m *machine) boot() {
	m.disk.CutPower()
	for _, component := range components() {
		m.start(component)
	}
}

func (m *machine) start(program string) {
	m.used[program], _ = tls.X509KeyPair([]byte(m.read("pki/apiserver.crt")), []byte(m.read("pki/apiserver.key")))
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
	runner := &certificaterenewal.Runner{
		Documents: documents, Checkpoints: filepath.Join(m.state, "checkpoints"), Root: m.root, System: m.life, ControlPlane: m, Commands: m,
		Free: func(string) (int64, error) { return m.free, nil }, Dial: m.dial,
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

// dial connects to the API server, which serves the certificate that it read at its start.
func (m *machine) dial(ctx context.Context, _, address string) (net.Conn, error) {
	if address != "192.0.2.1:6443" {
		return nil, fmt.Errorf("dialling %s", address)
	}
	client, server := net.Pipe()
	config := &tls.Config{Certificates: []tls.Certificate{m.used["kube-apiserver"]}, MinVersion: tls.VersionTLS12}
	go func() {
		conn := tls.Server(server, config)
		_ = conn.HandshakeContext(ctx)
		_ = conn.Close()
	}()
	return client, nil
}

// Restart is ControlPlane.
func (m *machine) Restart(_ context.Context, program string) error {
	return m.life.Do(func() error {
		m.restarts = append(m.restarts, program)
		if m.breaksAtRestart {
			m.isBroken = [2]bool{true, true}
		}
		m.start(program)
		return nil
	})
}

// Ready is ControlPlane.
func (m *machine) Ready(context.Context) error {
	used := m.used["kube-apiserver"]
	if used.Leaf == nil {
		return errors.New("the API server does not start: its certificate is damaged")
	}
	generation := former
	if encode("CERTIFICATE", used.Leaf.Raw) == m.files[renewed]["pki/apiserver.crt"] {
		generation = renewed
	}
	if m.isBroken[generation] {
		return errors.New("the API server does not answer")
	}
	return nil
}

// Run stands in for kubeadm. It begins with the certificates that are there, and what it writes is
// not durable.
func (m *machine) Run(_ context.Context, _ string, args ...string) (string, error) {
	switch command := strings.Join(args, " "); {
	case command == "kubeadm version -o short":
		return "v1.36.3", m.kubeadmErr
	case command != "kubeadm certs renew all":
		return "", fmt.Errorf("%s: not found", command)
	case m.isIdle:
		return "", nil
	}
	for _, name := range protocol.CertificateNames() {
		if protocol.IsAuthority(name) {
			continue
		}
		if m.read(name) != m.files[former][name] {
			return "", fmt.Errorf("%s is not a certificate", name)
		}
		for _, path := range []string{name, strings.TrimSuffix(name, ".crt") + ".key"} {
			content, has := m.files[renewed][path]
			if !has {
				continue
			}
			on := filepath.Join(m.root, kubernetes, path)
			if err := m.life.Remove(on); err != nil {
				return "", err
			}
			file, err := m.life.Create(on)
			if err != nil {
				return "", err
			}
			_, err = file.Write([]byte(content))
			if err := errors.Join(err, file.Close()); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

// expect checks which certificates are on the disk and in use, and that no checkpoint is left.
func (m *machine) expect(generation int) {
	m.t.Helper()
	for name, want := range m.files[generation] {
		if m.read(name) != want {
			m.t.Errorf("%s is not that of generation %d", name, generation)
		}
	}
	for _, program := range components() {
		if used := m.used[program]; used.Leaf == nil || encode("CERTIFICATE", used.Leaf.Raw) != m.files[generation]["pki/apiserver.crt"] {
			m.t.Errorf("%s does not use generation %d", program, generation)
		}
	}
	entries, err := os.ReadDir(filepath.Join(m.state, "checkpoints"))
	if err != nil && !os.IsNotExist(err) || len(entries) > 0 {
		m.t.Errorf("checkpoints are left: %v, %v", entries, err)
	}
}

// hasSteps reports whether the steps were these.
func (m *machine) hasSteps(want ...string) bool { return slices.Equal(m.progress, want) }
