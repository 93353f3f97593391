package apiserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/apiserver"
)

const (
	kubeadm = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	rke2    = "/var/lib/rancher/rke2/agent/pod-manifests/kube-apiserver.yaml"
)

func TestFind(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files map[string]string
		want  apiserver.Server
		found bool
		says  string
	}{
		"a worker": {},
		"kubeadm": {
			files: map[string]string{kubeadm: "spec: {containers: [{command: [kube-apiserver, --advertise-address=FD00:0::7, --secure-port=6444]}]}"},
			want:  apiserver.Server{Distribution: apiserver.Kubeadm, Advertised: "fd00::7", Port: "6444"}, found: true,
		},
		"arguments": {
			files: map[string]string{kubeadm: "spec: {containers: [{args: [--advertise-address=192.0.2.7]}]}"},
			want:  apiserver.Server{Distribution: apiserver.Kubeadm, Advertised: "192.0.2.7"}, found: true,
		},
		"an empty manifest": {files: map[string]string{kubeadm: ""}, want: apiserver.Server{Distribution: apiserver.Kubeadm}, found: true},
		"RKE2": {
			files: map[string]string{rke2: "spec: {containers: [{command: [kube-apiserver, --secure-port=6445]}]}"},
			want:  apiserver.Server{Distribution: apiserver.RKE2, Port: "6445"}, found: true,
		},
		"RKE2 before its first start": {
			files: map[string]string{"/var/lib/rancher/rke2/server/token": ""}, want: apiserver.Server{Distribution: apiserver.RKE2}, found: true,
		},
		"k3s":         {files: map[string]string{"/var/lib/rancher/k3s/server/token": ""}, want: apiserver.Server{Distribution: apiserver.K3s}, found: true},
		"k3s's agent": {files: map[string]string{"/var/lib/rancher/k3s/agent/kubelet.kubeconfig": ""}},
		"no YAML":     {files: map[string]string{kubeadm: "["}, says: kubeadm},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for path, content := range test.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			server, found, err := apiserver.Find(root)
			if server != test.want || found != test.found {
				t.Errorf("got %+v, %v", server, found)
			}
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	server := apiserver.Server{Advertised: "192.0.2.7", Port: "6444"}
	for name, test := range map[string]struct {
		server apiserver.Server
		local  []string
		want   string
	}{
		"advertised":        {server, []string{"192.0.2.1", "192.0.2.7"}, "192.0.2.7:6444"},
		"address replaced":  {server, []string{"192.0.2.1"}, "192.0.2.1:6444"},
		"unknown addresses": {server, nil, "192.0.2.7:6444"},
		"no manifest":       {apiserver.Server{}, []string{"fd00::1"}, "[fd00::1]:16443"},
		"nothing":           {apiserver.Server{}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := test.server.Address(test.local, "16443")
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
