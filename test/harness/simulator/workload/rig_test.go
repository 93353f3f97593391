package workload_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/etcd"
	"sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server/proxy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload/certs"
)

// Port forwarding leaks goroutines in client and server: spdystream waits for a stream to be
// closed twice.
func TestMain(m *testing.M) {
	const of = "github.com/moby/spdystream.(*Connection)."
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(of+"Serve"), goleak.IgnoreAnyFunction(of+"frameHandler"),
		goleak.IgnoreAnyFunction(of+"shutdown"), goleak.IgnoreAnyFunction(of+"shutdown.func1"), goleak.IgnoreAnyFunction(of+"monitor"),
	)
}

const (
	soon  = 2 * time.Minute
	often = 10 * time.Millisecond
	token = "abcdef.0123456789abcdef"
	// callTimeout bounds requests that are answered at once, also on a busy machine. failTimeout is for calls of etcd that
	// fail, which its client repeats for as long.
	callTimeout, failTimeout = 30 * time.Second, 2 * time.Second
)

// rig runs simulated clusters on hosts without a fleet.
type rig struct {
	*WithT
	*workload.Clusters

	t    *testing.T
	net  netip.Addr
	made int
}

func newRig(t *testing.T, o workload.Options) *rig {
	t.Helper()
	r := &rig{WithT: NewWithT(t), t: t}
	r.SetDefaultEventuallyTimeout(soon)
	r.SetDefaultEventuallyPollingInterval(often)
	// A random network avoids conflicts with other test runs on this machine.
	r.net = netip.AddrFrom4([4]byte{127, byte(64 + mathrand.IntN(150)), byte(mathrand.IntN(250)), 0})
	var err error
	r.Clusters, err = workload.New(t.Context(), o)
	r.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(r.Close)
	return r
}

// machine returns a new host.
func (r *rig) machine() fleet.Machine {
	r.net = r.net.Next()
	r.made++
	name := fmt.Sprintf("host-%d", r.made)
	return fleet.Machine{Name: name, Hostname: name, Address: r.net, Root: r.t.TempDir(), Dial: dialer(r.net).DialContext}
}

// authority is a CA with an RSA key, as the control-plane provider creates them. Creating one
// takes long.
type authority struct{ certificate, key []byte }

var authorities = sync.OnceValue(func() (all []authority) {
	for range 3 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
			NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			panic(err)
		}
		all = append(all, authority{
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		})
	}
	return all
})

// cluster is a workload cluster as its control-plane provider sees it.
type cluster struct {
	*rig

	ca, etcdCA authority
	endpoint   netip.AddrPort
}

// cluster creates a cluster of one host, which others can join.
func (r *rig) cluster(first fleet.Machine, number int) *cluster {
	r.t.Helper()
	c := r.initialize(first, number)
	c.allow(token, time.Now().Add(time.Hour))
	return c
}

// initialize creates a cluster of one host without a request to it.
func (r *rig) initialize(first fleet.Machine, number int) *cluster {
	r.t.Helper()
	c := &cluster{rig: r, ca: authorities()[number], etcdCA: authorities()[2], endpoint: netip.AddrPortFrom(first.Address, 6443)}
	r.Expect(c.bootstrap(first, c.initData(first))).To(Succeed())
	return c
}

// allow creates a bootstrap token, as the bootstrap provider does.
func (c *cluster) allow(token string, until time.Time) {
	c.t.Helper()
	id, secret, _ := strings.Cut(token, ".")
	c.Expect(c.admin().Create(c.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte(secret), "expiration": []byte(until.UTC().Format(time.RFC3339))},
	})).To(Succeed())
}

func (r *rig) bootstrap(m fleet.Machine, data string) error {
	r.t.Helper()
	r.Expect(r.Check([]byte(data), "cloud-config")).To(Succeed())
	return r.Bootstrap(r.t.Context(), m, []byte(data), "cloud-config", func(string) {})
}

// document returns a cloud-config with files and the call of kubeadm.
func document(call string, files map[string]string) string {
	var b strings.Builder
	b.WriteString("## template: jinja\n#cloud-config\nwrite_files:\n")
	for name, content := range files {
		fmt.Fprintf(&b, "- path: %s\n  permissions: '0600'\n  encoding: base64\n  content: %s\n", name, base64.StdEncoding.EncodeToString([]byte(content)))
	}
	fmt.Fprintf(&b, "runcmd:\n- '%s  && echo success > /run/cluster-api/bootstrap-success.complete'\n", call)
	return b.String()
}

func (c *cluster) pki(files map[string]string) map[string]string {
	files["/etc/kubernetes/pki/ca.crt"], files["/etc/kubernetes/pki/ca.key"] = string(c.ca.certificate), string(c.ca.key)
	files["/etc/kubernetes/pki/etcd/ca.crt"], files["/etc/kubernetes/pki/etcd/ca.key"] = string(c.etcdCA.certificate), string(c.etcdCA.key)
	return files
}

func (c *cluster) initData(m fleet.Machine) string {
	return document("kubeadm init --config /run/kubeadm/kubeadm.yaml", c.pki(map[string]string{"/run/kubeadm/kubeadm.yaml": `---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
controlPlaneEndpoint: ` + c.endpoint.String() + `
networking: {serviceSubnet: 10.96.0.0/12}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {}
nodeRegistration: {name: ` + m.Hostname + `}
`}))
}

// joinData returns the bootstrap data of a worker or of a control-plane host.
func (c *cluster) joinData(m fleet.Machine, controlPlane bool) string {
	ca, err := certs.Parse(c.ca.certificate, c.ca.key)
	c.Expect(err).NotTo(HaveOccurred())
	text := fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration: {name: %s}
discovery: {bootstrapToken: {token: %s, apiServerEndpoint: "%s", caCertHashes: ["%s"]}}
`, m.Hostname, token, c.endpoint, ca.Hash())
	files := map[string]string{}
	if controlPlane {
		files = c.pki(files)
		text += "controlPlane: {localAPIEndpoint: {}}\n"
	}
	files["/run/kubeadm/kubeadm-join-config.yaml"] = text
	return document("kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml", files)
}

func (c *cluster) join(m fleet.Machine, controlPlane bool) {
	c.t.Helper()
	c.Expect(c.bootstrap(m, c.joinData(m, controlPlane))).To(Succeed())
}

// of creates a cluster with the given number of control-plane hosts.
func (r *rig) of(controlPlanes int) (*cluster, []fleet.Machine) {
	r.t.Helper()
	hosts := []fleet.Machine{r.machine()}
	c := r.cluster(hosts[0], 0)
	for range controlPlanes - 1 {
		m := r.machine()
		c.join(m, true)
		hosts = append(hosts, m)
	}
	return c, hosts
}

// config returns an administrator's configuration for the endpoint.
func (c *cluster) config() *rest.Config {
	c.t.Helper()
	ca, err := certs.Parse(c.ca.certificate, c.ca.key)
	c.Expect(err).NotTo(HaveOccurred())
	pair, err := ca.Issue(certs.Request{Name: "kubernetes-admin", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, time.Now())
	c.Expect(err).NotTo(HaveOccurred())
	text, err := certs.Kubeconfig("https://"+c.endpoint.String(), c.ca.certificate, "admin", pair)
	c.Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	c.Expect(err).NotTo(HaveOccurred())
	config.Timeout = callTimeout
	return config
}

// admin returns a client that keeps no connection open.
func (c *cluster) admin() client.Client {
	c.t.Helper()
	config := c.config()
	web, err := rest.HTTPClientFor(config)
	c.Expect(err).NotTo(HaveOccurred())
	c.t.Cleanup(web.CloseIdleConnections)
	admin, err := client.New(config, client.Options{HTTPClient: web})
	c.Expect(err).NotTo(HaveOccurred())
	return admin
}

func (c *cluster) node(m fleet.Machine) *corev1.Node {
	c.t.Helper()
	node := &corev1.Node{}
	c.Expect(c.admin().Get(c.t.Context(), client.ObjectKey{Name: m.Hostname}, node)).To(Succeed())
	return node
}

// etcd connects to a member as the control-plane provider does, through the API server's port
// forwarding.
func (c *cluster) etcd(ctx context.Context, m fleet.Machine) (*etcd.Client, error) {
	c.t.Helper()
	ca, err := certs.Parse(c.etcdCA.certificate, c.etcdCA.key)
	c.Expect(err).NotTo(HaveOccurred())
	pair, err := ca.Issue(certs.Request{Name: "client", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, time.Now())
	c.Expect(err).NotTo(HaveOccurred())
	certificate, err := pair.TLS()
	c.Expect(err).NotTo(HaveOccurred())
	// The control-plane provider's own etcd client is not used, because its dialer shares state
	// between retries.
	dialer, err := proxy.NewDialer(proxy.Proxy{Kind: "pods", Namespace: "kube-system", KubeConfig: c.config(), Port: 2379})
	c.Expect(err).NotTo(HaveOccurred())
	name := "etcd-" + m.Hostname
	member, err := clientv3.New(clientv3.Config{
		Endpoints: []string{name}, DialTimeout: callTimeout, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := dialer.DialContextWithAddr(ctx, address)
			return forwarded{conn}, err
		})},
		TLS: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	})
	c.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, err := member.Status(ctx, name)
	if err != nil {
		return nil, errors.Join(err, member.Close())
	}
	return &etcd.Client{EtcdClient: member, Endpoint: name, LeaderID: status.Leader, CallTimeout: callTimeout}, nil
}

// forwarded is a connection through an API server. The wrapped connection ignores deadlines and
// stores them without a lock; gRPC sets deadlines from two goroutines when a connection is closed
// while it breaks.
type forwarded struct{ net.Conn }

func (forwarded) SetDeadline(time.Time) error      { return nil }
func (forwarded) SetReadDeadline(time.Time) error  { return nil }
func (forwarded) SetWriteDeadline(time.Time) error { return nil }

// ready returns the HTTP status of an API server's readiness check, requested from an address; 0
// if the API server cannot be reached.
func (c *cluster) ready(m fleet.Machine, from netip.Addr) int {
	c.t.Helper()
	return c.get(m, from, "/readyz", nil)
}

func (c *cluster) get(m fleet.Machine, from netip.Addr, path string, certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)) int {
	c.t.Helper()
	ca, err := certs.Parse(c.ca.certificate, c.ca.key)
	c.Expect(err).NotTo(HaveOccurred())
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12, GetClientCertificate: certificate},
		DialContext:       dialer(from).DialContext,
		DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: callTimeout}).Get("https://" + netip.AddrPortFrom(m.Address, 6443).String() + path)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// stranger returns a client certificate of another CA.
func stranger(g Gomega) *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	g.Expect(err).NotTo(HaveOccurred())
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
