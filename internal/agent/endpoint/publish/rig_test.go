package publish_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/publish"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/envtest"
)

var env *envtest.Environment

func TestMain(m *testing.M) { os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e })) }

const (
	former  = "10.0.0.1:6443"
	current = "10.0.0.2:6443"
)

// cluster is a workload cluster whose API server is the test's.
type cluster struct {
	client.Client

	t    *testing.T
	root string
}

// newCluster creates a control-plane host and the objects of kubeadm, which name
// a server.
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

// host writes the files of a control-plane host: the API server's manifest, and
// admin.conf with a server that is unavailable.
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
	return rulesSince(t, time.Time{}, host, formers...)
}

func rulesSince(t *testing.T, since time.Time, host string, formers ...string) rewrite.Rules {
	t.Helper()
	r, err := rewrite.New(protocol.Endpoint{Host: host, Port: 6443, Former: formers, Since: since})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// publish publishes twice and checks that the second call writes nothing.
func (c *cluster) publish(r rewrite.Rules) {
	c.t.Helper()
	if err := publish.Publish(c.t.Context(), c.root, r); err != nil {
		c.t.Fatal(err)
	}
	before := c.versions()
	if err := publish.Publish(c.t.Context(), c.root, r); err != nil || c.versions() != before {
		c.t.Errorf("the second call wrote something: %v", err)
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
	for _, object := range maps.Items {
		text += " " + object.Name + ":" + object.ResourceVersion
	}
	return text
}

// check checks which server all objects name, and for which endpoint kube-proxy's
// Pods were started.
func (c *cluster) check(server, pods string) {
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
