package publish_test

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/publish"
)

// conflicting returns an API server at which another client changes an object
// just before each of its first patches.
func (c *cluster) conflicting(object client.Object, times int) *rest.Config {
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
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, times))
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

// A concurrent change by another client is not lost.
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
			c.host(c.conflicting(object(c), 3))
			c.publish(rules(t, "10.0.0.2", former, "10.0.0.3:6443"))
			c.check(current, current)
			c.host(c.conflicting(object(c), 100))
			err := publish.Publish(t.Context(), c.root, rules(t, "10.0.0.1", current))
			if err == nil || !strings.Contains(err.Error(), "the API server answers 409") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func hostPort(config *rest.Config) string {
	return strings.TrimSuffix(strings.TrimPrefix(config.Host, "https://"), "/")
}
