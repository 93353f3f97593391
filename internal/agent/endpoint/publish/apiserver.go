package publish

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/apiserver"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
)

// localAPIServer returns access to this host's API server. ok is false on a host
// of k3s or RKE2, whose clusters have no objects to publish.
func localAPIServer(root string) (access kube.Access, ok bool, err error) {
	server, found, err := apiserver.Find(root)
	switch {
	case err != nil:
		return kube.Access{}, false, err
	case !found:
		return kube.Access{}, false, errors.New("there is no API server on this host")
	case server.Distribution != apiserver.Kubeadm:
		return kube.Access{}, false, nil
	}
	host, err := address(root, server)
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

// address returns the host:port that the API server advertises, or else the server of
// the host's kubelet, which is the local API server if the kubelet is in local mode.
func address(root string, server apiserver.Server) (string, error) {
	if server.Advertised == "" {
		return kubeletServer(root)
	}
	return server.Address(nil, apiserver.DefaultPort)
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
	return "", fmt.Errorf("neither the API server's manifest nor %s contains the address of the API server", name)
}
