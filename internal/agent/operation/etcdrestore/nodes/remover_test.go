package nodes_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/etcdrestore/nodes"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }, envtest.Bare()))
}

// clock is a clock on which nobody waits.
type clock struct {
	now time.Time
	// waited is called with each wait.
	waited func()
}

func (c *clock) Now() time.Time { return c.now }

func (c *clock) Wait(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	c.waited()
	return ctx.Err()
}

// cluster is a restored cluster whose API server runs on this host.
type cluster struct {
	client.Client

	t     *testing.T
	clock *clock
	root  string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Client: env.Client(t), t: t, clock: &clock{now: time.Now(), waited: func() {}}, root: t.TempDir()}
	server, err := url.Parse(env.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	inline := base64.StdEncoding.EncodeToString
	c.write(nodes.Kubeconfig, fmt.Sprintf(`clusters:
- cluster: {certificate-authority-data: %s, server: "https://192.0.2.1:6443", tls-server-name: endpoint.example.com}
  name: c
contexts:
- context: {cluster: c, user: u}
  name: x
current-context: x
users:
- name: u
  user: {client-certificate-data: %s, client-key-data: %s}
`, inline(env.Config.CAData), inline(env.Config.CertData), inline(env.Config.KeyData)))
	c.write("/etc/kubernetes/manifests/kube-apiserver.yaml",
		fmt.Sprintf("spec: {containers: [{command: [kube-apiserver, --advertise-address=%s, --secure-port=%s]}]}", server.Hostname(), server.Port()))
	return c
}

func (c *cluster) write(path, content string) {
	c.t.Helper()
	path = filepath.Join(c.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		c.t.Fatal(err)
	}
}

// node creates a Node.
func (c *cluster) node(name, providerID string, ready corev1.ConditionStatus) *corev1.Node {
	c.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	if err := c.Create(c.t.Context(), node); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.IgnoreNotFound(c.Delete(context.Background(), node)) })
	c.set(node, ready)
	return node
}

// set sets the condition Ready.
func (c *cluster) set(node *corev1.Node, ready corev1.ConditionStatus) {
	c.t.Helper()
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}, {Type: corev1.NodeReady, Status: ready},
	}
	if err := c.Status().Update(c.t.Context(), node); err != nil {
		c.t.Fatal(err)
	}
}

// names returns the Nodes that there are.
func (c *cluster) names() []string {
	c.t.Helper()
	var list corev1.NodeList
	if err := c.List(c.t.Context(), &list); err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, node := range list.Items {
		names = append(names, node.Name)
	}
	slices.Sort(names)
	return names
}

func (c *cluster) remove(providerIDs ...string) (removed, left []string, err error) {
	return nodes.Remover{Root: c.root, Clock: c.clock}.Remove(c.t.Context(), providerIDs)
}

// More Nodes than fit into one page: those of other hosts of the namespace go, and nothing else.
func TestRemove(t *testing.T) {
	c := newCluster(t)
	var want []string
	for i := range 30 {
		name := fmt.Sprintf("gone-%02d", i)
		c.node(name, "elemental://ns/"+name, corev1.ConditionUnknown)
		want = append(want, name)
	}
	c.node("a", "elemental://ns/a", corev1.ConditionTrue)
	c.node("b", "elemental://ns/b", corev1.ConditionFalse)
	c.node("cloud", "aws:///eu/i-1", corev1.ConditionFalse)
	c.node("none", "", corev1.ConditionFalse)
	c.node("tenant", "elemental://other/gone", corev1.ConditionFalse)
	removed, left, err := c.remove("elemental://ns/a", "elemental://ns/b")
	slices.Sort(removed)
	if err != nil || len(left) > 0 || !slices.Equal(removed, want) {
		t.Errorf("removed %q, left %q, %v", removed, left, err)
	}
	if got := c.names(); !slices.Equal(got, []string{"a", "b", "cloud", "none", "tenant"}) {
		t.Errorf("the Nodes are %q", got)
	}
	if removed, left, err = c.remove("elemental://ns/a", "elemental://ns/b"); err != nil || len(removed)+len(left) > 0 {
		t.Errorf("then removed %q, left %q, %v", removed, left, err)
	}
}

// A Node of the snapshot is Ready until Kubernetes notices that its kubelet is silent. One whose
// kubelet runs stays.
func TestReadyNodes(t *testing.T) {
	c := newCluster(t)
	c.node("a", "elemental://ns/a", corev1.ConditionTrue)
	silent := c.node("silent", "elemental://ns/silent", corev1.ConditionTrue)
	c.node("runs", "elemental://ns/runs", corev1.ConditionTrue)
	waits := 0
	c.clock.waited = func() {
		if waits++; waits == 3 {
			c.set(silent, corev1.ConditionUnknown)
		}
	}
	began := c.clock.now
	removed, left, err := c.remove("elemental://ns/a")
	if err != nil || !slices.Equal(removed, []string{"silent"}) || !slices.Equal(left, []string{"runs"}) {
		t.Errorf("removed %q, left %q, %v", removed, left, err)
	}
	if waited := c.clock.now.Sub(began); waited < 50*time.Second || waited > 4*time.Minute {
		t.Errorf("it waited for %s", waited)
	}
	if got := c.names(); !slices.Equal(got, []string{"a", "runs"}) {
		t.Errorf("the Nodes are %q", got)
	}
}

// A Node whose kubelet comes back between the look and the deletion stays.
func TestNodeComesBack(t *testing.T) {
	c := newCluster(t)
	back := c.node("back", "elemental://ns/back", corev1.ConditionUnknown)
	connections, comesBack := 0, func() { c.set(back, corev1.ConditionTrue) }
	remover := nodes.Remover{Root: c.root, Clock: c.clock, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if connections++; connections == 2 { // the deletion: each request has a connection of its own
			comesBack()
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	removed, left, err := remover.Remove(t.Context(), []string{"elemental://ns/a"})
	if err != nil || len(removed) > 0 || !slices.Equal(left, []string{"back"}) {
		t.Errorf("removed %q, left %q, %v", removed, left, err)
	}
}

// What can't be is said, and nothing is deleted.
func TestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		providerIDs []string
		change      func(c *cluster)
		says        string
	}{
		"no host":           {nil, func(*cluster) {}, "no host"},
		"no scheme":         {[]string{"a"}, func(*cluster) {}, "does not begin"},
		"another namespace": {[]string{"elemental://ns/a", "elemental://other/a"}, func(*cluster) {}, "elemental://other/a"},
		"a nested name":     {[]string{"elemental://ns/a", "elemental://ns/b/c"}, func(*cluster) {}, "elemental://ns/b/c"},
		"no name":           {[]string{"elemental://ns/"}, func(*cluster) {}, "does not begin"},
		"no administrator":  {[]string{"elemental://ns/a"}, func(c *cluster) { _ = os.Remove(filepath.Join(c.root, nodes.Kubeconfig)) }, "admin.conf"},
		"no API server": {[]string{"elemental://ns/a"}, func(c *cluster) {
			_ = os.RemoveAll(filepath.Join(c.root, "/etc/kubernetes/manifests"))
		}, "no manifest of an API server"},
		"it does not answer": {[]string{"elemental://ns/a"}, func(c *cluster) {
			c.write("/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{command: [--advertise-address=127.0.0.1, --secure-port=1]}]}")
		}, "listing the Nodes"},
		"an empty kubeconfig": {[]string{"elemental://ns/a"}, func(c *cluster) { c.write(nodes.Kubeconfig, "{}") }, "names no cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.node("gone", "elemental://ns/gone", corev1.ConditionFalse)
			test.change(c)
			_, _, err := c.remove(test.providerIDs...)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v", err)
			}
			if got := c.names(); !slices.Equal(got, []string{"gone"}) {
				t.Errorf("the Nodes are %q", got)
			}
		})
	}
}
