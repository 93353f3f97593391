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

// manifest is the static Pod of the API server in kubeadm clusters.
const manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"

// defaultPort is the default of the API server's --secure-port.
const defaultPort = "6443"

// localAPIServer returns access to this host's API server. ok is false on a host
// of k3s or RKE2, whose clusters have no objects to publish.
func localAPIServer(root string) (access kube.Access, ok bool, err error) {
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
	host, err := apiServerAddress(root, data)
	if err != nil {
		return kube.Access{}, false, err
	}
	access, err = kube.Load(filepath.Join(root, "/etc/kubernetes/admin.conf"))
	if err != nil {
		return kube.Access{}, false, err
	}
	// A server name in the kubeconfig would be that of the endpoint.
	access.Server, access.TLS.ServerName = &url.URL{Scheme: "https", Host: host}, ""
	return access, true, nil
}

// apiServerAddress returns the host:port that the API server's manifest
// advertises, or else the server of the host's kubelet, which is the local API
// server if the kubelet is in local mode.
func apiServerAddress(root string, data []byte) (string, error) {
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
	return kubeletServer(root)
}

// kubeletServer returns the host:port in the kubelet's kubeconfig.
func kubeletServer(root string) (string, error) {
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
	return "", fmt.Errorf("neither %s nor %s contains the address of the API server", manifest, name)
}
