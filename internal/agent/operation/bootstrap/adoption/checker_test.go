package adoption_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/etcdmember"
)

// check is a host that is changed, and what the Checker says then: nothing, or a text.
type check struct {
	change func(*host)
	want   string
	// later is true if the check is to be repeated.
	later bool
}

func (c check) run(t *testing.T, h *host) {
	t.Helper()
	c.change(h)
	err := h.check()
	if c.want == "" {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), c.want) {
		t.Errorf("got %v", err)
	}
	if errors.Is(err, operation.ErrNothingDone) != c.later {
		t.Errorf("repeated %t: %v", !c.later, err)
	}
}

func TestThreat102_OnlyTheDeclaredWorker(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]check{
		"the wanted Node": {change: func(*host) {}},
		"any version":     {change: func(h *host) { h.wanted.Version = "" }},
		"no Node":         {func(h *host) { h.remove(kubeletConfig) }, "the host runs no Node of kubeadm", false},
		"no kubeconfig":   {func(h *host) { h.write(kubeletConfig, "{") }, "it is not the YAML", false},
		"another name": {
			func(h *host) { h.wanted.NodeName = "node-2" }, "the Node is named node-1, not \"node-2\": set spec.hostname of the ElementalHost to node-1", false,
		},
		"no name": {func(h *host) { h.wanted.NodeName = "" }, "the Node is named node-1", false},
		"the credential of an administrator": {
			func(h *host) { h.writeConfig(kubeletConfig, h.server.URL, "admin") }, "is for \"admin\", not for a Node", false,
		},
		"another cluster": {
			func(h *host) { h.wanted.AuthorityHash = hashOf(h.t, newAuthority(h.t)) }, "the host belongs to another cluster", false,
		},
		"the authority is replaced": {change: func(h *host) {
			h.writeConfig(kubeletConfig, h.server.URL, "system:node:node-1", newAuthority(h.t))
		}},
		"another endpoint": {func(h *host) { h.wanted.Endpoint = "api.example.com:6443" }, "the cluster's endpoint is 127.0.0.1:", false},
		"another port":     {func(h *host) { h.wanted.Endpoint = "127.0.0.1:6443" }, "as spec.controlPlaneEndpoint of the ElementalCluster", false},
		"no endpoint":      {func(h *host) { h.wanted.Endpoint = "::" }, "not ::", false},
		"the server of administrators, who have none on a worker": {change: func(h *host) {
			h.writeConfig(adminConfig, "https://192.0.2.1:6443", "kubernetes-admin")
		}},
		"a control plane": {
			func(h *host) { h.write(serverManifest, "kind: Pod") }, "set spec.adoption.role of the ElementalHost to ControlPlane", false,
		},
		"a control plane, whose address is the endpoint": {func(h *host) {
			h.write(serverManifest, "kind: Pod")
			h.wanted.Endpoint = "192.0.2.1:6443"
		}, "set spec.adoption.role of the ElementalHost to ControlPlane", false},
		"another version":  {func(h *host) { h.wanted.Version = "v1.36.1" }, "the Node runs Kubernetes v1.36.2, the Machine is of version v1.36.1", false},
		"a deleted Node":   {func(h *host) { h.answer(http.StatusNotFound) }, "the cluster has no Node node-1", false},
		"a server in need": {func(h *host) { h.answer(http.StatusServiceUnavailable) }, "the API server answers 503", true},
		"no server":        {func(h *host) { h.server.Close() }, "getting Node node-1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newHost(t))
		})
	}
}

// An endpoint is the same however it is written.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	for server, endpoint := range map[string]string{
		"https://api.example.com":         "api.example.com:443",
		"https://API.example.com:6443":    "api.example.com:6443",
		"https://api.example.com:6443/":   "api.example.com:6443",
		"https://[::1]:6443":              "[0:0:0:0:0:0:0:1]:6443",
		"https://[::1]":                   "[::1]:443",
		"https://[::ffff:127.0.0.1]:6443": "127.0.0.1:6443",
		"https://api.example.com:443":     "api.example.com",
	} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			h.writeConfig(kubeletConfig, server, "system:node:node-1")
			h.wanted.Endpoint = endpoint
			h.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, h.address())
			}
			if err := h.check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// newControlPlane returns a host with an API server and the files of a member of etcd.
func newControlPlane(t *testing.T, member etcdmember.Host) *host {
	t.Helper()
	h := newHost(t)
	h.wanted.ControlPlane = true
	if err := os.CopyFS(filepath.Join(h.root, "etc"), os.DirFS(filepath.Join(member.Root, "etc"))); err != nil {
		t.Fatal(err)
	}
	h.write(serverManifest, "kind: Pod")
	return h
}

func TestThreat102_OnlyTheDeclaredControlPlane(t *testing.T) {
	t.Parallel()
	member := etcdmember.New(t)
	for name, test := range map[string]check{
		"the wanted Node": {change: func(*host) {}},
		"a kubelet that uses the host's own API server": {change: func(h *host) {
			h.writeConfig(kubeletConfig, h.local(), "system:node:node-1")
			h.writeConfig(adminConfig, h.server.URL, "kubernetes-admin")
		}},
		"administrators who use another endpoint": {
			func(h *host) { h.writeConfig(adminConfig, "https://192.0.2.1:6443", "kubernetes-admin") }, "the cluster's endpoint is 192.0.2.1:6443", false,
		},
		"another endpoint": {func(h *host) { h.wanted.Endpoint = "192.0.2.1:6443" }, "the cluster's endpoint is 127.0.0.1:", false},
		"no kubeconfig":    {func(h *host) { h.write(adminConfig, "") }, "finding the endpoint of the cluster", false},
		"a worker":         {func(h *host) { h.remove(serverManifest) }, "set spec.adoption.role of the ElementalHost to Worker", false},
		"etcd elsewhere":   {func(h *host) { h.remove(etcdManifest) }, "no etcd of kubeadm runs on the host", false},
		"no credential of etcd": {
			func(h *host) { h.remove("etc/kubernetes/pki/etcd/healthcheck-client.key") }, "reading the client certificate of etcd", false,
		},
		"no etcd": {func(h *host) {
			h.write(etcdManifest, "spec: {containers: [{command: [--listen-client-urls=https://127.0.0.1:1]}]}")
		}, "asking etcd for its members", true},
		"another version": {func(h *host) { h.wanted.Version = "v1.36.1" }, "the Node runs Kubernetes v1.36.2", false},
	} {
		t.Run(name, func(t *testing.T) { test.run(t, newControlPlane(t, member)) })
	}
	member.AddLearner(t)
	check{func(*host) {}, "etcd has 2 members", false}.run(t, newControlPlane(t, member))
}
