package publish_test

import (
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/publish"
)

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

// Without an address in the manifest, the kubelet's server is used.
func TestAddressOfTheKubelet(t *testing.T) {
	c := newCluster(t, former)
	c.write("/etc/kubernetes/manifests/kube-apiserver.yaml", "spec: {containers: [{command: [kube-apiserver]}]}")
	c.write("/etc/kubernetes/kubelet.conf", kubeconfig(hostPort(env.Config)))
	c.publish(rules(t, "10.0.0.2", former))
	c.check(current, current)
}
