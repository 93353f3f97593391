package publish

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
)

// manifest is the static Pod of kubeadm's API server.
const manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"

// defaultPort is the API server's --secure-port.
const defaultPort = "6443"

// own returns the way to the host's own API server. ok is false on a host whose
// cluster has nothing to publish, since it is not kubeadm's.
func own(root string) (access kube.Access, ok bool, err error) {
	data, err := os.ReadFile(filepath.Join(root, manifest))
	if errors.Is(err, fs.ErrNotExist) {
		for _, server := range []string{"/var/lib/rancher/k3s/server", "/var/lib/rancher/rke2/server"} {
			if _, err := os.Stat(filepath.Join(root, server)); err == nil {
				return kube.Access{}, false, nil
			}
		}
		return kube.Access{}, false, errors.New("there is no API server on this host")
	}
	if err != nil {
		return kube.Access{}, false, fmt.Errorf("looking for the API server's address: %w", err)
	}
	at, err := address(root, data)
	if err != nil {
		return kube.Access{}, false, err
	}
	access, err = kube.Load(filepath.Join(root, "/etc/kubernetes/admin.conf"))
	if err != nil {
		return kube.Access{}, false, err
	}
	// The name in a kubeconfig is that of the endpoint, if there is one.
	access.Server, access.TLS.ServerName = &url.URL{Scheme: "https", Host: at}, ""
	return access, true, nil
}

// address is where the host's API server says that it is, or else where the
// host's kubelet, in local mode, finds it.
func address(root string, data []byte) (string, error) {
	var pod struct {
		Spec struct {
			Containers []struct {
				Command []string `yaml:"command"`
				Args    []string `yaml:"args"`
			} `yaml:"containers"`
		} `yaml:"spec"`
	}
	if err := kube.Decode(data, &pod); err != nil {
		return "", fmt.Errorf("reading %s: %w", manifest, err)
	}
	host, port := "", defaultPort
	for _, container := range pod.Spec.Containers {
		for _, flag := range slices.Concat(container.Command, container.Args) {
			if value, found := strings.CutPrefix(flag, "--advertise-address="); found {
				host = value
			}
			if value, found := strings.CutPrefix(flag, "--secure-port="); found {
				port = value
			}
		}
	}
	if host != "" {
		return net.JoinHostPort(host, port), nil
	}
	return kubelets(root)
}

// kubelets is the server of the host's kubelet.
func kubelets(root string) (string, error) {
	const name = "/etc/kubernetes/kubelet.conf"
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return "", fmt.Errorf("looking for the API server's address: %w", err)
	}
	servers, err := rewrite.Servers(text)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", name, err)
	}
	for _, server := range servers {
		if u, err := url.Parse(server); err == nil && u.Host != "" {
			return u.Host, nil
		}
	}
	return "", fmt.Errorf("neither %s nor %s says where the API server is", manifest, name)
}
