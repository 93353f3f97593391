package publish_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/publish"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) { os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e })) }

const (
	former  = "10.0.0.1:6443"
	current = "10.0.0.2:6443"
)

// cluster is a workload cluster whose API server is that of the test.
type cluster struct {
	client.Client

	t    *testing.T
	root string
}

// newCluster makes a control-plane host, and the objects that kubeadm makes,
// which name a server.
func newCluster(t *testing.T, server string) *cluster {
	t.Helper()
	c := &cluster{Client: env.Client(t), t: t, root: t.TempDir()}
	c.host(env.Config)
	objects := []client.Object{
		c.configMap("kube-public", "cluster-info", map[string]string{"kubeconfig": kubeconfig(server), "jws-kubeconfig-abcdef": "signature"}),
		c.configMap("kube-system", "kubeadm-config", map[string]string{"ClusterConfiguration": configuration(server)}),
		c.configMap("kube-system", "kube-proxy", map[string]string{"config.conf": "mode: nftables\n", "kubeconfig.conf": kubeconfig(server)}),
		daemonSet(),
	}
	public := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-public"}}
	if err := client.IgnoreAlreadyExists(c.Create(t.Context(), public)); err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(c.Delete(context.Background(), object)); err != nil {
				t.Error(err)
			}
		})
	}
	return c
}

// host writes what a control-plane host has: admin.conf, whose server nobody
// reaches, and the API server's manifest.
func (c *cluster) host(config *rest.Config) {
	c.t.Helper()
	address, port, err := net.SplitHostPort(hostPort(config))
	if err != nil {
		c.t.Fatal(err)
	}
	inline := base64.StdEncoding.EncodeToString
	c.write("/etc/kubernetes/admin.conf", fmt.Sprintf(`apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: %s
    server: https://192.0.2.1:6443
    tls-server-name: another.example.com
  name: kubernetes
contexts:
- context: {cluster: kubernetes, user: kubernetes-admin}
  name: kubernetes-admin@kubernetes
current-context: kubernetes-admin@kubernetes
users:
- name: kubernetes-admin
  user:
    client-certificate-data: %s
    client-key-data: %s
`, inline(config.CAData), inline(config.CertData), inline(config.KeyData)))
	c.write("/etc/kubernetes/manifests/kube-apiserver.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
spec:
  containers:
  - command:
    - kube-apiserver
    - --advertise-address=%s
    - --secure-port=%s
    name: kube-apiserver
`, address, port))
}

func hostPort(config *rest.Config) string {
	return strings.TrimSuffix(strings.TrimPrefix(config.Host, "https://"), "/")
}

func (c *cluster) write(name, content string) {
	c.t.Helper()
	path := filepath.Join(c.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) configMap(namespace, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"theirs": "stays"}}, Data: data}
}

func daemonSet() *appsv1.DaemonSet {
	labels := map[string]string{"k8s-app": "kube-proxy"}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Template.ObjectMeta = metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"theirs": "stays"}}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "kube-proxy", Image: "kube-proxy"}}
	return set
}

func kubeconfig(server string) string {
	return "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    server: https://" + server + "\n  name: default\n"
}

func configuration(server string) string {
	return "apiServer: {}\ncontrolPlaneEndpoint: " + server + "\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\n"
}

func rules(t *testing.T, host string, formers ...string) rewrite.Rules {
	t.Helper()
	r, err := rewrite.New(protocol.Endpoint{Host: host, Port: 6443, Former: formers})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// publish publishes twice, and the second time must write nothing.
func (c *cluster) publish(r rewrite.Rules) {
	c.t.Helper()
	if err := publish.Publish(c.t.Context(), c.root, r); err != nil {
		c.t.Fatal(err)
	}
	before := c.versions()
	if err := publish.Publish(c.t.Context(), c.root, r); err != nil || c.versions() != before {
		c.t.Errorf("a second pass writes: %v", err)
	}
}

func (c *cluster) get(object client.Object, namespace, name string) {
	c.t.Helper()
	if err := client.IgnoreNotFound(c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) data(namespace, name string) map[string]string {
	c.t.Helper()
	object := &corev1.ConfigMap{}
	c.get(object, namespace, name)
	if object.Name != "" && object.Labels["theirs"] != "stays" {
		c.t.Errorf("ConfigMap %s has the labels %v", name, object.Labels)
	}
	return object.Data
}

func (c *cluster) set() *appsv1.DaemonSet {
	c.t.Helper()
	set := &appsv1.DaemonSet{}
	c.get(set, "kube-system", "kube-proxy")
	if set.Name != "" && set.Spec.Template.Annotations["theirs"] != "stays" {
		c.t.Errorf("the Pods' annotations are %v", set.Spec.Template.Annotations)
	}
	return set
}

func (c *cluster) versions() string {
	c.t.Helper()
	var maps corev1.ConfigMapList
	if err := c.List(c.t.Context(), &maps); err != nil {
		c.t.Fatal(err)
	}
	text := c.set().ResourceVersion
	for _, one := range maps.Items {
		text += " " + one.Name + ":" + one.ResourceVersion
	}
	return text
}

// names checks what all objects name, and with which endpoint kube-proxy's Pods
// were started.
func (c *cluster) names(server, pods string) {
	c.t.Helper()
	info, config, proxy := c.data("kube-public", "cluster-info"), c.data("kube-system", "kubeadm-config"), c.data("kube-system", "kube-proxy")
	if info["kubeconfig"] != kubeconfig(server) || info["jws-kubeconfig-abcdef"] != "signature" {
		c.t.Errorf("cluster-info has %v", info)
	}
	if config["ClusterConfiguration"] != configuration(server) {
		c.t.Errorf("kubeadm-config has %v", config)
	}
	if proxy["kubeconfig.conf"] != kubeconfig(server) || proxy["config.conf"] != "mode: nftables\n" {
		c.t.Errorf("kube-proxy has %v", proxy)
	}
	if got := c.set().Spec.Template.Annotations[publish.Annotation]; got != pods {
		c.t.Errorf("kube-proxy's Pods were started for %q", got)
	}
}

func TestPublish(t *testing.T) {
	c := newCluster(t, former)
	c.publish(rules(t, "10.0.0.2", former))
	c.names(current, current)
	// And on, by a host that was away during the first move.
	c.publish(rules(t, "10.0.0.3", former, current))
	c.names("10.0.0.3:6443", "10.0.0.3:6443")
	// And back.
	c.publish(rules(t, "10.0.0.1", former, current, "10.0.0.3:6443"))
	c.names(former, former)
}

// Where nothing has moved no Pod is replaced.
func TestNothingToPublish(t *testing.T) {
	for name, formers := range map[string][]string{"no former endpoint": nil, "the endpoint as a former one": {current}} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, current)
			before := c.versions()
			c.publish(rules(t, "10.0.0.2", formers...))
			if c.versions() != before {
				t.Error("something was written")
			}
		})
	}
}

// A value that is no former endpoint is the user's.
func TestForeignValuesStay(t *testing.T) {
	c := newCluster(t, "lb.example.com:6443")
	before := c.versions()
	c.publish(rules(t, "10.0.0.2", former))
	c.names("lb.example.com:6443", "")
	if c.versions() != before {
		t.Error("something was written")
	}
}

// Whoever comes after one that died between the ConfigMap and the Pods replaces
// the Pods.
func TestGoesOnBetweenConfigMapAndPods(t *testing.T) {
	c := newCluster(t, current)
	c.publish(rules(t, "10.0.0.2", former))
	c.names(current, current)
}

func TestMissingObjects(t *testing.T) {
	c := newCluster(t, former)
	if err := c.Delete(t.Context(), daemonSet()); err != nil {
		t.Fatal(err)
	}
	c.publish(rules(t, "10.0.0.2", former))
	for _, name := range []string{"kube-proxy", "kubeadm-config"} {
		if err := c.Delete(t.Context(), c.configMap("kube-system", name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	c.publish(rules(t, "10.0.0.3", former, current))
	if got := c.data("kube-public", "cluster-info")["kubeconfig"]; got != kubeconfig("10.0.0.3:6443") {
		t.Errorf("cluster-info has %s", got)
	}
	if err := c.Delete(t.Context(), c.configMap("kube-public", "cluster-info", nil)); err != nil {
		t.Fatal(err)
	}
	c.publish(rules(t, "10.0.0.2", former))
}

// One object that can't be dealt with keeps no other one back.
func TestOneBadObject(t *testing.T) {
	c := newCluster(t, former)
	bad := c.configMap("kube-public", "cluster-info", map[string]string{"kubeconfig": "clusters: ["})
	if err := c.Update(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	err := publish.Publish(t.Context(), c.root, rules(t, "10.0.0.2", former))
	if err == nil || !strings.Contains(err.Error(), "kube-public/cluster-info") {
		t.Errorf("got %v", err)
	}
	if c.data("kube-system", "kubeadm-config")["ClusterConfiguration"] != configuration(current) || c.set().Spec.Template.Annotations[publish.Annotation] != current {
		t.Error("the others were not published")
	}
}

// Pods are not replaced before they would read the endpoint.
func TestForbidden(t *testing.T) {
	c := newCluster(t, former)
	c.host(env.AddUser(t, "reader", "readers"))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}
	if err := c.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), binding) })
	err := publish.Publish(t.Context(), c.root, rules(t, "10.0.0.2", former))
	if err == nil || strings.Count(err.Error(), "the API server answers 403") != 3 {
		t.Errorf("got %v", err)
	}
	c.names(former, "")
}

// meddler is an API server at which somebody changes an object just before each
// of the first patches of it.
func (c *cluster) meddler(object client.Object, times int) *rest.Config {
	c.t.Helper()
	target, err := url.Parse("https://" + hostPort(env.Config))
	if err != nil {
		c.t.Fatal(err)
	}
	transport, err := rest.TransportFor(env.Config)
	if err != nil {
		c.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch && times > 0 {
			times--
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"meddled":"%d"}}}`, times))
			if err := c.Patch(r.Context(), object, patch); err != nil {
				c.t.Error(err)
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	c.t.Cleanup(server.Close)
	config := rest.CopyConfig(env.Config)
	config.Host = server.URL
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return config
}

// What somebody else writes at the same time is not lost.
func TestConflicts(t *testing.T) {
	for name, object := range map[string]func(c *cluster) client.Object{
		"a ConfigMap":   func(c *cluster) client.Object { return c.configMap("kube-public", "cluster-info", nil) },
		"the DaemonSet": func(*cluster) client.Object { return daemonSet() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, former)
			if name == "the DaemonSet" {
				c.publish(rules(t, "10.0.0.3", former))
				if err := c.Update(t.Context(), c.configMap("kube-system", "kube-proxy", map[string]string{"config.conf": "mode: nftables\n", "kubeconfig.conf": kubeconfig(current)})); err != nil {
					t.Fatal(err)
				}
			}
			c.host(c.meddler(object(c), 3))
			c.publish(rules(t, "10.0.0.2", former, "10.0.0.3:6443"))
			c.names(current, current)
			c.host(c.meddler(object(c), 100))
			err := publish.Publish(t.Context(), c.root, rules(t, "10.0.0.1", current))
			if err == nil || !strings.Contains(err.Error(), "the API server answers 409") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestHosts(t *testing.T) {
	r := rules(t, "10.0.0.2", former)
	for name, test := range map[string]struct {
		files map[string]string
		says  string
	}{
		"a worker":            {nil, "there is no API server on this host"},
		"k3s":                 {map[string]string{"/var/lib/rancher/k3s/server/token": ""}, ""},
		"RKE2":                {map[string]string{"/var/lib/rancher/rke2/server/token": ""}, ""},
		"a manifest alone":    {map[string]string{"/etc/kubernetes/manifests/kube-apiserver.yaml": "spec: {containers: [{command: [--advertise-address=127.0.0.1]}]}"}, "admin.conf"},
		"an empty manifest":   {map[string]string{"/etc/kubernetes/manifests/kube-apiserver.yaml": ""}, "kubelet.conf"},
		"no YAML in manifest": {map[string]string{"/etc/kubernetes/manifests/kube-apiserver.yaml": "["}, "not the YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{t: t, root: t.TempDir()}
			for file, content := range test.files {
				c.write(file, content)
			}
			err := publish.Publish(t.Context(), c.root, r)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A manifest without an address leaves the kubelet's server, in local mode.
func TestAddressOfTheKubelet(t *testing.T) {
	c := newCluster(t, former)
	c.write("/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{command: [kube-apiserver]}]}")
	c.write("/etc/kubernetes/kubelet.conf", kubeconfig(hostPort(env.Config)))
	c.publish(rules(t, "10.0.0.2", former))
	c.names(current, current)
}
